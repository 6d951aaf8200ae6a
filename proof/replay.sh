#!/usr/bin/env bash
# Runs the test that came with a fix on the code as it was before the fix. It has to fail.
# usage: proof/replay.sh COMMIT [TEST], as a row of docs/TRACK_RECORD.md has them. Without TEST it
# is the first test in the first row of COMMIT.
set -euo pipefail
cd "$(dirname "$0")/.."
fix=${1:?which commit? say FIX=COMMIT, with one of docs/TRACK_RECORD.md}
if [ $# -gt 1 ]; then
	test=$2
else
	row=$(grep -m1 "^|.*| \`$fix\`" docs/TRACK_RECORD.md) || { echo "docs/TRACK_RECORD.md has no row of $fix" >&2; exit 64; }
	[[ $row =~ \`(Test[A-Za-z0-9]+)\` ]] || { echo "the first row of $fix names no test; if another row does: FIX=\"$fix TEST\"" >&2; exit 64; }
	test=${BASH_REMATCH[1]}
fi
git cat-file -e "$fix^^{commit}" 2>/dev/null || { echo "$fix, or the commit before it, is not in this clone: git fetch --unshallow" >&2; exit 2; }
mapfile -t files < <(git grep -l "func $test(" "$fix" -- '*_test.go')
file=${files[0]:-} && file=${file#*:}
[ -n "$file" ] || { echo "$test is not among the tests of $fix" >&2; exit 2; }

before=$(mktemp -d)
trap 'rm -rf "$before"' EXIT
lab=(internal/lab internal/testserver internal/netproxy internal/testbed internal/guardtest internal/specimen internal/process internal/redishook internal/simplelock proof/testbed) # what tests share, where it stands today and where it stood
changed() { git diff --name-only --no-renames "--diff-filter=$1" "$fix^" "$fix" -- "${@:2}"; }

# play FILE… makes the code before the fix with these files of the fix, and runs the test.
play() {
	rm -rf "${before:?}"/*
	git archive "$fix^" | tar -x -C "$before"
	changed D '*_test.go' "${lab[@]}" | (cd "$before" && xargs -r rm -f)
	git archive "$fix" -- "$@" | tar -x -C "$before"
	status=0
	said=$(cd "$before/$(dirname "$file")" && go test -count=1 -timeout 5m -run "^$test\$" . 2>&1) || status=$?
	[[ $said != *"build failed]"* && $said != *"setup failed]"* ]]
}

mapfile -t all < <(changed AM '*_test.go' "${lab[@]}")
mapfile -t few < <(changed AM "${lab[@]}")
# Where the fix has tests of something new as well, the test's own file alone may build.
if ! play "${all[@]}" && ! play "$file" ${few[@]+"${few[@]}"}; then
	tail -n 20 <<<"$said"
	echo "$test does not build on the code before $fix"
	exit 2
fi
tail -n 40 <<<"$said"
if [[ $said == *"no tests to run"* ]]; then
	echo "$test does not run on this system"
	exit 2
elif [ $status = 0 ]; then
	echo "$test passes on the code before $fix: it does not show the bug"
	exit 1
fi
echo "$test fails on the code before $fix, as it has to"
