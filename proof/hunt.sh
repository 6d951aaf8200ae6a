#!/usr/bin/env bash
# Runs each package's tests COUNT times with the race detector and LOAD busy loops beside
# them, JOBS packages at a time, to find tests that fail now and then. Every run is a line of
# hunt/log (commit, load, package, round, result, seconds, tests that failed); the output of a
# run that failed is a file beside it. It can be stopped at any moment: called again on the same
# commit, it goes on where it was. It is run by with.sh.
#
#   hunt.sh COUNT LOAD JOBS [PACKAGE…]
set -uo pipefail
cd "$(dirname "$0")/.."
count=${1:?how many runs of each package} load=${2:?how many busy loops} jobs=${3:?how many packages at a time}
shift 3
[ $# -gt 0 ] || set -- ./...

if [ -n "$(git status --porcelain --untracked-files=no)" ]; then
	echo "There are changes that are not committed: the record would name the wrong commit." >&2
	exit 1
fi
commit=$(git rev-parse --short HEAD)
mkdir -p hunt
work=$(mktemp -d)
loops=()
trap 'kill "${loops[@]}" 2>/dev/null; rm -rf "$work"' EXIT
export commit load work

packages=$(go list -f '{{if or .TestGoFiles .XTestGoFiles}}{{.ImportPath}} {{.Dir}}{{end}}' "$@" | sed '/^$/d') || exit 1
while read -r package _; do
	go test -race -c -ldflags=-w -o "$work/${package//\//_}" "$package" || exit 1
done <<<"$packages"

for ((i = 0; i < load; i++)); do
	while :; do :; done &
	loops+=($!)
done

# one ROUND PACKAGE FOLDER runs a package's tests once. A job in the background of a shell ignores
# ^C, and so would the programs of the tests that send it.
one() {
	local key="$commit load=$load $2 round=$1" name=${2//\//_} begin=$SECONDS result=ok failed=
	if grep -qsF "$key " hunt/log; then return; fi
	local out="$work/$name-$1"
	if ! (cd "$3" && env --default-signal=INT,QUIT "$work/$name" -test.timeout 25m -test.parallel 6) >"$out" 2>&1; then
		result=FAIL
		failed=$(grep -oE '^ *--- FAIL: [^ ]+' "$out" | awk '{print $3}' | paste -sd,)
		cp "$out" "hunt/$commit-load$load-$name-$1.txt"
	fi
	rm "$out"
	echo "$key $result $((SECONDS - begin))s $failed" | tee -a hunt/log
	[ $result = ok ]
}
export -f one

for ((round = 1; round <= count; round++)); do
	sed "s/^/$round /" <<<"$packages"
done | xargs -P "$jobs" -L 1 bash -c 'one "$@"' _
