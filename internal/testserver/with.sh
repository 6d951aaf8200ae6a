#!/usr/bin/env bash
# Runs a command, and the tests that it runs, with what tests on real servers need: a server
# that is missing fails, and PostgreSQL's files are in memory, where there is room.
#
#   with.sh COMMAND [ARG…]
set -uo pipefail
export LOCKER_TEST_REQUIRE=1
export GORACE="suppressions='$PWD/internal/testserver/races.txt'"
trap clean EXIT

# clean removes what tests that were killed have left, and the System V segments of their
# PostgreSQL servers (the second number in line 7).
clean() {
	for notes in "${LOCKER_TEST_POSTGRES:-/nowhere}"/*/data/postmaster.pid; do
		[ -f "$notes" ] && ipcrm -m "$(sed -n 7p "$notes" | awk '{print $2}')"
	done
	rm -rf ${LOCKER_TEST_POSTGRES:-}
}

if [ "$(df --output=avail /dev/shm 2>/dev/null | tail -1)" -gt 4000000 ] 2>/dev/null; then
	# In memory: making and removing the files of so many servers takes long on a disk.
	LOCKER_TEST_POSTGRES=$(mktemp -d /dev/shm/lockstile-XXXXXX)
	export LOCKER_TEST_POSTGRES
	chmod 755 "$LOCKER_TEST_POSTGRES" # the server's user is another one
fi
"$@"
