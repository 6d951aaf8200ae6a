#!/usr/bin/env bash
# Has Spin look at every state of every model. A right model must pass, with no line that it
# never reached. A wrong one must fail, with the property that its text names; then the shortest
# way there is printed. Flags are passed on to all of them: proof/spec/check.sh -DGRANTS=6.
set -euo pipefail
cd "$(dirname "$0")"
command -v spin >/dev/null || { echo "spin is not installed: make model does it" >&2; exit 1; }
cc=$(command -v gcc || command -v clang || command -v cc)
more=("$@")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failed=0

# look MODEL FLAG…: what Spin says of a model is in $said then, and the way to a failure in $way.
look() {
	local model=$PWD/$1.pml flags=("${@:2}" ${more[@]+"${more[@]}"})
	rm -rf "${work:?}"/*
	pushd "$work" >/dev/null
	# The first failure of a breadth-first search is a shortest one.
	spin "-P$cc -E -x c" "${flags[@]}" -a "$model" && "$cc" -w -O0 -DBFS -DSAFETY -DMEMLIM=2000 -o pan pan.c
	said=$(./pan -w20 -m1000000 2>&1) || true
	way=
	if compgen -G '*.trail' >/dev/null; then
		way=$(spin "-P$cc -E -x c" "${flags[@]}" -t -T -B -k ./*.trail "$model" | grep -v '^spin: ')
	fi
	popd >/dev/null
}

# row MODEL FLAG VERDICT
row() {
	local states
	states=$(sed -n 's/^ *\([0-9]*\) states, stored.*/\1/p' <<<"$said")
	printf '%-9s %-16s %9s states  %s\n' "$1" "${2#-D}" "$states" "$3"
}

right() {
	look "$1" "$2"
	if ! grep -q 'errors: 0$' <<<"$said" || grep -qi 'search not completed' <<<"$said"; then
		row "$1" "$2" "FAILS, and it must hold:"
		printf '%s\n' "$said" "$way"
		failed=1
	elif grep -A9 '^unreached in' <<<"$said" | grep -q '([1-9][0-9]* of'; then
		row "$1" "$2" "holds, but not all of it was reached:"
		grep -A9 '^unreached in' <<<"$said"
		failed=1
	else
		row "$1" "$2" "holds"
	fi
}

# wrong MODEL FLAG PROPERTY: what Spin calls the property that fails.
wrong() {
	look "$1" "$2"
	if grep -q "^pan:1: .*$3" <<<"$said" && [ -n "$way" ]; then
		row "$1" "$2" "fails as it must: ${3//_/ }"
		sed 's/^ */    /' <<<"$way"
	else
		row "$1" "$2" "MUST FAIL ($3), and does not"
		printf '%s\n' "$said" "$way"
		failed=1
	fi
}

right shared -DTWO_MARKS
wrong shared -DNO_GUARD interleaved
wrong shared -DONE_MARK refused_a_live_holder
wrong shared -DWRITERS_MARK interleaved
wrong shared -DDRAWN_EARLY refused_a_live_holder
right slots -DA_MARK_EACH
wrong slots -DNO_GUARD interleaved
wrong slots -DCOMMON_MARK refused_a_live_holder
wrong slots -DBARE_UNLOCK too_many_holders
wrong slots -DBARE_COUNTER 'invalid end state'
right turns -DNUMBERED
right turns -DCOUNTED
wrong turns -DEARLY two_turns_at_once
wrong turns -DNO_RANGE_END number_given_twice
wrong turns -DPASS_LOST two_turns_at_once
wrong turns -DPASS_PINNED condition_met_late
wrong turns -DPASS_COUNTED refused_a_live_holder
wrong turns -DSTALE_ANSWER live_turn_is_ended
wrong turns -DPASS_RELEASED two_turns_at_once
wrong turns -DNO_BOUND other_is_kept_waiting
wrong turns -DFORGOTTEN 'invalid end state'
right queue -DRESERVED
wrong queue -DBELIEVE_WORD two_holders
wrong queue -DNO_END 'invalid end state'
wrong queue -DNO_LOOK 'invalid end state'
wrong queue -DNO_PASS free_and_nobody_knows
wrong queue -DNEWCOMER overtaken
right handover -DFORMULA
wrong handover -DFROM_RECEIPT two_holders
wrong handover -DNO_DRIFT two_holders
wrong handover -DWHOLE_TTL two_holders
wrong handover -DOLD_WORD two_holders
wrong handover -DWORD_TWICE two_holders
wrong handover -DTAKEN_BACK two_holders
wrong handover -DCROSSED left_behind
wrong handover -DKEPT_BACK free_and_nobody_knows
right majority -DEXCLUSIVE
right majority -DSHARED
wrong majority -DSLOTS=2 too_many_holders
right lease -DLEASE
wrong lease -DCLOCK_STANDS two_holders
wrong lease -DFROM_RECEIPT two_holders
wrong lease -DRENEWED_RECEIPT two_holders
wrong lease -DNO_DRIFT two_holders
wrong lease -DNO_TIMER two_holders
wrong lease -DNOT_ANEW two_holders
wrong lease -DUNLOCKS_LATE two_holders
wrong lease -DBARE_RELEASE two_holders
wrong lease -DBARE_RENEWAL outlives_its_lease
wrong lease -DNO_MARK left_behind
wrong lease -DUNMARKED_RELEASE left_behind
right guard -DCLAIMED
right guard -DUNCLAIMED
right guard -DPROMPT
wrong guard -DPAUSED a_late_write
wrong guard -DNO_CLAIM a_late_write
wrong guard -DNO_RECORD a_late_write
wrong guard -DSMALLER a_late_write
wrong guard -DNOT_EQUAL refused_a_live_holder
wrong guard -DDRAWN_EARLY numbers_go_back
right redlock -DMAJORITY
wrong redlock -DNO_WRITE_BACK numbers_go_back
wrong redlock -DLATE_WRITE_BACK numbers_go_back
wrong redlock -DRAISED_TO_T numbers_go_back
wrong redlock -DUNCONFIRMED numbers_go_back
wrong redlock -DNO_CLOCK numbers_go_back
wrong redlock -DVOTES_AT_ONCE two_holders
wrong redlock -DMINORITY two_holders
wrong redlock -DTOO_LATE two_holders
wrong redlock -DREENTERS two_holders
[ $failed = 0 ] && echo "all right models hold, and all wrong ones fail as they must" || echo "NOT every model did what it must: see above"
exit $failed
