#!/usr/bin/env bash
# Runs the test that came with a fix on the code as it was before the fix. It has to fail.
# usage: internal/lab/replay.sh COMMIT [TEST], as a row of docs/TRACK_RECORD.md has them
set -euo pipefail
cd "$(dirname "$0")/../.."
fix=${1:?which commit? docs/TRACK_RECORD.md has them}
if [ $# -gt 1 ]; then
	test=$2
else
	row=$(grep -m1 "^|.*| \`$fix\`" docs/TRACK_RECORD.md) || { echo "docs/TRACK_RECORD.md has no row of $fix" >&2; exit 64; }
	[[ $row =~ \`(Test[A-Za-z0-9]+)\` ]] || { echo "the row of $fix names no test" >&2; exit 64; }
	test=${BASH_REMATCH[1]}
fi
file=$(git grep -l "func $test(" "$fix" -- '*_test.go' | head -1 | cut -d: -f2)
[ -n "$file" ] || { echo "$test is not among the tests of $fix" >&2; exit 2; }

before=$(mktemp -d)
trap 'rm -rf "$before"' EXIT
git archive "$fix^" | tar -x -C "$before"
lab=(internal/lab internal/testserver internal/netproxy internal/testbed internal/guardtest)
changed() { git diff --name-only --no-renames "--diff-filter=$1" "$fix^" "$fix" -- '*_test.go' "${lab[@]}"; }
changed D | (cd "$before" && xargs -r rm -f)
mapfile -t new < <(changed AM)
git archive "$fix" -- "${new[@]}" | tar -x -C "$before"

status=0
said=$(cd "$before/$(dirname "$file")" && go test -count=1 -timeout 5m -run "^$test\$" . 2>&1) || status=$?
tail -n 40 <<<"$said"
case $said in
*"build failed]"* | *"setup failed]"*) echo "$test does not build on the code before $fix"; exit 2 ;;
*"no tests to run"*) echo "$test does not run on this system"; exit 2 ;;
esac
if [ $status = 0 ]; then
	echo "$test passes on the code before $fix: it does not show the bug"
	exit 1
fi
echo "$test fails on the code before $fix, as it has to"
