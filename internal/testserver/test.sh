#!/usr/bin/env bash
# Runs the tests of the modules that it is given, with the race detector, and
# prints what "go test -json" says. The packages that take longest begin, so that
# none of them is left over at the end. Most tests wait more than they work, so more
# of them run side by side than there are processors.
set -uo pipefail
export LOCKER_TEST_REQUIRE=1 # a server that is missing fails
if [ "$(df --output=avail /dev/shm 2>/dev/null | tail -1)" -gt 4000000 ] 2>/dev/null; then
	# In memory: to make and remove the files of so many servers is much of the work.
	LOCKER_TEST_POSTGRES=$(mktemp -d /dev/shm/lockstile-XXXXXX)
	export LOCKER_TEST_POSTGRES
	chmod 755 "$LOCKER_TEST_POSTGRES" # the server's user is another one
	trap 'rm -rf "$LOCKER_TEST_POSTGRES"' EXIT
fi
longest=(redlock postgres zookeeper singlenode internal/testbed etcd cmd/locker open)
failed=0
for module in "$@"; do
	(
		cd "$module" || exit 1
		first=()
		for package in "${longest[@]}"; do
			if [ -d "$package" ]; then first+=("./$package"); fi
		done
		go test -json -race -count=1 -timeout 25m -p 3 -parallel 8 "${first[@]}" ./...
	) || failed=1
done
exit $failed
