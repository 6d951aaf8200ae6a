#!/usr/bin/env bash
# Runs "make test" whole ROUNDS times with nothing beside it, and ROUNDS times beside LOAD busy loops, in turn. Every
# run is a line of steady/log (commit, load, round, result, seconds, how often a clause was played again, tests); its output is
# a file beside it. It can be stopped at any moment: called again on the same commit, it goes on where it was.
#
#   steady.sh ROUNDS LOAD
set -uo pipefail
cd "$(dirname "$0")/.."
rounds=${1:?how many runs of each kind} most=${2:?how many busy loops}

if [ -n "$(git status --porcelain --untracked-files=no)" ]; then
	echo "There are changes that are not committed: the record would name the wrong commit." >&2
	exit 1
fi
commit=$(git rev-parse --short HEAD)
mkdir -p steady
loops=()
trap 'kill "${loops[@]}" 2>/dev/null' EXIT

# once LOAD ROUND
once() {
	local key="$commit load=$1 round=$2" out="steady/$commit-load$1-$2.txt" begin=$SECONDS result=ok
	grep -qsF "$key ok" steady/log && return
	loops=()
	for ((i = 0; i < $1; i++)); do
		while :; do :; done &
		loops+=($!)
	done
	make test >"$out" 2>&1 </dev/null || result=FAIL
	if ((${#loops[@]})); then kill "${loops[@]}" && wait "${loops[@]}" 2>/dev/null; fi
	loops=()
	echo "$key $result $((SECONDS - begin))s $(grep -c '^stalled: ' "$out") played again, $(grep '^DONE ' "$out")" | tee -a steady/log
	[ $result = ok ] || ! mv "$out" "${out%.txt}-failed-$(date +%s).txt" # it may be called again
}

failed=0
for ((round = 1; round <= rounds; round++)); do
	once 0 "$round" || failed=1
	((most == 0)) || once "$most" "$round" || failed=1
done
grep -q "^$commit .* FAIL " steady/log && failed=1 # a run that has failed counts, whatever came after it
exit $failed
