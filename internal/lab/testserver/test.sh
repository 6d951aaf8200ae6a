#!/usr/bin/env bash
# Runs the tests of the modules that it is given, with the race detector, and prints
# what "go test -json" says. The packages that take longest begin, so that none of them
# runs alone at the end. Most tests wait more than they work, so more of them run side by
# side than there are processors. Without debugging symbols the linker takes half as long: every
# package's test is linked anew in each run. "make lint" does the vetting. It is run by with.sh.
set -uo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# tests MODULE FLAG… runs a module's tests.
tests() {
	cd "$1" || return 1
	shift
	local first=()
	for package in redlock internal/lab/testbed zookeeper postgres singlenode etcd conformance spec internal/redisnode open cmd/locker driver doctor election; do
		if [ -d "$package" ]; then first+=("./$package"); fi
	done
	go test -json -race -count=1 -timeout 25m -vet=off -ldflags=-w -parallel 6 "$@" "${first[@]}" ./...
}

# small MODULE… runs one after another; their output must not mix with the large one's.
small() {
	local failed=0
	for module in "$@"; do
		(tests "$module" -p 1) >"$work/${module//\//-}" || failed=1
	done
	return $failed
}

failed=0
small "${@:2}" &
(tests "$1" -p 5) || failed=1
wait $! || failed=1
cat "$work"/*
exit $failed
