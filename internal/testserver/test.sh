#!/usr/bin/env bash
# Runs the tests of the modules that it is given, with the race detector, and
# prints what "go test -json" says. The packages that take longest begin, so that
# none of them is left over at the end.
set -uo pipefail
export LOCKER_TEST_REQUIRE=1 # a server that is missing fails
longest=(redlock postgres zookeeper singlenode internal/testbed etcd cmd/locker open)
failed=0
for module in "$@"; do
	(
		cd "$module" || exit 1
		first=()
		for package in "${longest[@]}"; do
			if [ -d "$package" ]; then first+=("./$package"); fi
		done
		go test -json -race -count=1 -timeout 25m "${first[@]}" ./...
	) || failed=1
done
exit $failed
