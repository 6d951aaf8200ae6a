#!/usr/bin/env bash
# Runs each fuzz target for a time, two at a time, from the inputs in testdata/fuzz and those that
# Go keeps in its build cache: "fuzz.sh TIME", or "fuzz.sh TIME PATTERN" for those that match it.
# What makes one fail is written to testdata/fuzz of its package: commit it with what mends it.
set -euo pipefail
export time=$1

# one PACKAGE TARGET runs a target, and prints how often it ran, or if it failed all that it said.
one() {
	local said
	if said=$(go test -vet=off -run '^$' -fuzz "^$2\$" -fuzztime "$time" -fuzzminimizetime 1s -parallel 1 "./$1" 2>&1); then
		echo "✓  $1 $2: $(grep -o 'execs: [0-9]*' <<<"$said" | tail -1)"
	else
		printf '✗  %s %s\n%s\n' "$1" "$2" "$said"
		return 1
	fi
}
export -f one

git grep --untracked -oE '^func Fuzz\w+' -- '*_test.go' | sed 's|/[^/]*:func | |' | grep -E "${2:-.}" | xargs -P 2 -L 1 bash -c 'one "$@"' _
