#!/usr/bin/env bash
# Runs each package's tests COUNT times with the race detector and LOAD busy loops beside
# them, to find tests that fail now and then. Every run is a line of hunt/log (commit,
# load, package, round, result, seconds, tests that failed); the output of a run that
# failed is a file beside it. It can be stopped at any moment: called again on the same
# commit, it goes on where it was.
#
#   hunt.sh COUNT LOAD [PACKAGE…]
set -uo pipefail
cd "$(dirname "$0")/../../.."
count=${1:?how many runs of each package} load=${2:?how many busy loops}
shift 2
[ $# -gt 0 ] || set -- ./...
export LOCKER_TEST_REQUIRE=1 # a server that is missing fails
export GORACE="suppressions='$PWD/internal/lab/testserver/races.txt'"

if [ -n "$(git status --porcelain --untracked-files=no)" ]; then
	echo "There are changes that are not committed: the record would name the wrong commit." >&2
	exit 1
fi
commit=$(git rev-parse --short HEAD)
mkdir -p hunt
work=$(mktemp -d)
loops=()
trap 'kill "${loops[@]}" 2>/dev/null; rm -rf "$work"' EXIT

packages=$(go list -f '{{if or .TestGoFiles .XTestGoFiles}}{{.ImportPath}} {{.Dir}}{{end}}' "$@" | sed '/^$/d') || exit 1
while read -r package _; do
	go test -race -c -o "$work/${package//\//_}" "$package" || exit 1
done <<<"$packages"

for ((i = 0; i < load; i++)); do
	while :; do :; done &
	loops+=($!)
done

failures=0
for ((round = 1; round <= count; round++)); do
	while read -r package dir; do
		key="$commit load=$load $package round=$round"
		if grep -qsF "$key " hunt/log; then continue; fi
		out="$work/out" begin=$SECONDS result=ok failed=
		if ! (cd "$dir" && "$work/${package//\//_}" -test.timeout 25m) >"$out" 2>&1; then
			result=FAIL failures=$((failures + 1))
			failed=$(grep -oE '^ *--- FAIL: [^ ]+' "$out" | awk '{print $3}' | paste -sd,)
			cp "$out" "hunt/$commit-load$load-${package//\//_}-$round.txt"
		fi
		echo "$key $result $((SECONDS - begin))s $failed" | tee -a hunt/log
	done <<<"$packages"
done
[ $failures -eq 0 ]
