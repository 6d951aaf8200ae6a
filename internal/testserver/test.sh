#!/usr/bin/env bash
# Runs the tests of the modules that it is given, with the race detector, and prints
# what "go test -json" says. The packages that take longest begin, so that none of them
# runs alone at the end. Most tests wait more than they work, so more of them run side by
# side than there are processors, and fewer where these are slow or busy. Without debugging
# symbols the linker takes half as long: every package's test is linked anew in each run.
# "make lint" does the vetting. It is run by with.sh.
set -uo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# slow reports whether it takes long to start a process: on some virtual machines ten times as
# long as elsewhere, and so do requests to a server when the processors are busy.
slow() {
	local begun=${EPOCHREALTIME//[!0-9]/}
	for _ in {1..100}; do /bin/true; done
	((${EPOCHREALTIME//[!0-9]/} - begun > 300000))
}

packages=5 parallel=6
if slow; then packages=3 parallel=4; fi

# tests MODULE FLAG… runs a module's tests.
tests() {
	cd "$1" || return 1
	shift
	local first=()
	for package in redlock proof/testbed zookeeper postgres singlenode etcd conformance spec internal/redisnode open cmd/locker driver doctor election; do
		if [ -d "$package" ]; then first+=("./$package"); fi
	done
	go test -json -race -count=1 -timeout 25m -vet=off -ldflags=-w -parallel $parallel "$@" "${first[@]}" ./...
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
(tests "$1" -p $packages) || failed=1
wait $! || failed=1
cat "$work"/*
exit $failed
