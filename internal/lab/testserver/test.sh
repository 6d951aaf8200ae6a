#!/usr/bin/env bash
# Runs the tests of the modules that it is given, with the race detector, and prints
# what "go test -json" says. The packages that take longest begin, so that none of them
# runs alone at the end. Most tests wait more than they work, so more of them run side by
# side than there are processors. "make lint" does the vetting.
set -uo pipefail
export LOCKER_TEST_REQUIRE=1 # a server that is missing fails
export GORACE="suppressions='$PWD/internal/lab/testserver/races.txt'"
work=$(mktemp -d)
trap clean EXIT

# clean removes what tests that were killed have left, and the System V segments of their
# PostgreSQL servers (the second number in line 7).
clean() {
	for notes in "${LOCKER_TEST_POSTGRES:-/nowhere}"/*/data/postmaster.pid; do
		[ -f "$notes" ] && ipcrm -m "$(sed -n 7p "$notes" | awk '{print $2}')"
	done
	rm -rf "$work" ${LOCKER_TEST_POSTGRES:-}
}

if [ "$(df --output=avail /dev/shm 2>/dev/null | tail -1)" -gt 4000000 ] 2>/dev/null; then
	# In memory: making and removing the files of so many servers takes long on a disk.
	LOCKER_TEST_POSTGRES=$(mktemp -d /dev/shm/lockstile-XXXXXX)
	export LOCKER_TEST_POSTGRES
	chmod 755 "$LOCKER_TEST_POSTGRES" # the server's user is another one
fi

# tests MODULE FLAG… runs a module's tests.
tests() {
	cd "$1" || return 1
	shift
	local first=()
	for package in redlock zookeeper postgres internal/lab/testbed singlenode conformance etcd internal/redisnode driver cmd/locker open; do
		if [ -d "$package" ]; then first+=("./$package"); fi
	done
	go test -json -race -count=1 -timeout 25m -vet=off -parallel 4 "$@" "${first[@]}" ./...
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
(tests "$1" -p 3) || failed=1
wait $! || failed=1
cat "$work"/*
exit $failed
