#!/usr/bin/env bash
# Runs the tests of the modules, or parts of modules, that it is given, the users' one first; prints a line for each
# package, then what failed, and at the end what took longest, how busy the machine was and which clauses were played again. It is run by
# with.sh.
#
# -short leaves out what "make proof" runs: other configurations of the stores, and what takes long. The race detector
# is there where goroutines are the point, and in one run of the suite for each backend. Each test's program is linked
# anew in each run, and without debugging symbols that takes half as long. "make lint" does the vetting.
set -uo pipefail
[ "${1-}" = . ] || { echo "the first module has to be the users' one" >&2; exit 64; }
export work
work=$(mktemp -d)
watcher=
trap 'kill $watcher 2>/dev/null; rm -rf "$work"' EXIT

# others is how many threads of other programs want a processor, at least.
others() {
	local running least=99
	for _ in {1..10}; do
		read -r _ _ _ running _ </proc/loadavg || return
		((${running%/*} - 1 < least)) && least=$((${running%/*} - 1)) # without this one
		sleep 0.1
	done
	echo "$least"
}

# slow reports whether this machine takes more than 5 ms to start a program, as a virtual machine with slow memory does.
# The tests start thousands of servers and connections, which alone would keep it busy.
slow() {
	local began=${EPOCHREALTIME//[!0-9]/}
	for _ in {1..20}; do bash -c :; done
	((${EPOCHREALTIME//[!0-9]/} - began > 100000))
}

# How many packages, those of them with the race detector, and tests of each run side by side. Most tests wait more than
# they work. But what all of them do at once must not be what makes one of them late, so that there are fewer
# on a slow machine, or beside other programs.
atonce=5 raced=2 parallel=5
if slow || { [ -r /proc/loadavg ] && (($(others) > 2)); }; then
	echo "This machine is slow, or other programs want it: fewer tests run at once."
	atonce=2 raced=1 parallel=3
fi
export atonce=${LOCKER_TEST_PACKAGES:-$atonce} raced parallel=${LOCKER_TEST_PARALLEL:-$parallel}

gotest() { go test -json -short -count=1 -timeout 20m -vet=off -ldflags=-w -parallel "$parallel" "$@"; }

# all MODULE… prints what "go test -json" says. Lines of two runs must not mix, so those of the first come at once,
# and those of the others at the end.
all() {
	set -o pipefail
	local failed=0 goroutines=(. ./driver ./internal/mailbox ./lockertest)
	local backends=(./zookeeper ./postgres ./etcd ./redlock ./singlenode ./register/file ./local)
	local slow=(./conformance "${backends[@]}" ./register ./internal/redisnode ./cmd/locker ./internal/doctor ./open ./election) # they begin
	local packages elsewhere
	packages=$(cd "$1" && go list ./...) && elsewhere=$(cd "$1" && go list "${goroutines[@]}") || return 1
	(
		cd "$1" || exit 1
		gotest -race -p "$raced" -run '^TestConformance$' "${backends[@]}" || failed=1
		exit $failed
	) >"$work/races" &
	local races=$!
	(
		(cd "$1" && gotest -race -p "$raced" "${goroutines[@]}") || failed=1
		for module in "${@:2}"; do
			case $module in adapters/*) (cd "$module" && gotest -race ./...) || failed=1 ;; esac
		done
		exit $failed
	) >"$work/adapters" &
	local adapters=$!
	(
		for module in "${@:2}"; do
			case $module in
			adapters/*) ;;
			register/*) # all clauses take a minute on each store, and test the same code
				(cd "$module" && gotest -skip '^TestConformance/^conformance$' ./...) || failed=1
				;;
			*) (cd "$module" && gotest ./...) || failed=1 ;; # they build programs, or have no goroutines
			esac
		done
		exit $failed
	) >"$work/others" &
	local others=$!
	# shellcheck disable=SC2046 # the paths of packages have no spaces
	(cd "$1" && gotest -p "$atonce" -skip '^TestConformance$' "${slow[@]}" $(grep -vxF "$elsewhere" <<<"$packages")) |
		tee "$work/first" || failed=1
	wait $races || failed=1
	wait $adapters || failed=1
	wait $others || failed=1
	cat "$work"/{races,adapters,others}
	return $failed
}
export -f gotest all

# watch notes, twice a second, how many threads want a processor, and how late it is to do so.
watch() {
	local load late worst=0 sum=0 n=0 then
	while :; do
		then=${EPOCHREALTIME//[!0-9]/}
		sleep 0.5
		late=$(((${EPOCHREALTIME//[!0-9]/} - then) / 1000 - 500))
		((late > worst)) && worst=$late
		read -r _ _ _ load _ </proc/loadavg || return
		sum=$((sum + ${load%/*} - 1)) n=$((n + 1))
		echo "on average $((sum / n)) threads wanted a processor; a sleep of 500 ms took up to $worst ms more" >"$work/load"
	done
}
if [ -r /proc/loadavg ]; then
	watch &
	watcher=$!
fi

status=0
go run gotest.tools/gotestsum@v1.13.0 --raw-command --format pkgname-and-test-fails --format-hide-empty-pkg \
	--hide-summary skipped -- bash -c 'all "$@"' _ "$@" || status=$?
if ! cat "$work"/{first,races,adapters,others} >"$work/events" || grep -qE '"Action":"(build-)?fail"' "$work/events"; then
	status=$((status ? status : 1)) # whatever the commands between have made of it
fi
cat "$work/load" 2>/dev/null
echo "The slowest tests:"
go run gotest.tools/gotestsum@v1.13.0 tool slowest --num 6 --threshold 20s <"$work/events"
sed -nE 's/.*"Output":"(stalled: .*)\\n".*/\1/p' "$work/events" | sed 's/\\"/"/g'
cat <<END
Left out, for "make proof": other configurations of the stores, all clauses on the stores of package register but files,
what takes long, the race detector where goroutines are not the point, broken lines (make mutants; only that they are still there is tested), broken servers (make
compare), the models, bugs of other libraries.
END
exit $status
