#!/usr/bin/env bash
# trace.sh FILE…: whether each of these traces is a run of turns.pml (see trace.pml). It says which
# are not, and what the model cannot take.
set -euo pipefail
model=$(cd "$(dirname "$0")" && pwd)/turns.pml
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cc=$(command -v gcc || command -v clang || command -v cc)
(cd "$work" && spin "-P$cc -E -x c" -DTRACE -a "$model" && "$cc" -w -O1 -DSAFETY -DNOREDUCE -DMEMLIM=2000 -o pan pan.c)
refused=0
for file in "$@"; do
	said=$(TRACE=$file "$work/pan" -E -m100000 -w16 2>&1) || true
	grep -q '^pan:1: .*the_trace_is_a_run' <<<"$said" && continue
	echo "$file: no run of the model"
	grep 'cannot take' <<<"$said" || echo "$said"
	refused=1
done
exit $refused
