#!/usr/bin/env bash
# Runs the tests of the modules that it is given, with the race detector, and
# prints what "go test -json" says. Tests wait for servers and for leases to end
# more than they work, so more packages than there are processors run side by side.
set -uo pipefail
export LOCKER_TEST_REQUIRE=1 # a server that is missing fails
failed=0
for module in "$@"; do
	(cd "$module" && go test -json -race -count=1 -timeout 25m -p 4 ./...) || failed=1
done
exit $failed
