#!/usr/bin/env bash
# Runs everything that "make test" leaves out, a step after another: the tests of every package of the users' module
# whole and with the race detector, those of the stores of package register, of the pages, of this module and of proof/bench, the models, the bugs of other
# libraries, a comparison, a short soak, and the mutants of each folder. (Of the adapters "make test" runs all.) Every step is a line of
# proof/log (commit, step, result, seconds); its output is a file in proof/logs. It can be stopped at any moment: called
# again on the same commit, it goes on where it was, and plays what failed again. Within a step nothing is played again: a
# clause that is late fails. It is run by with.sh.
#
#   proof.sh [PATTERN]    only steps that match the pattern
set -uo pipefail
cd "$(dirname "$0")/.."
only=${1:-}
if [ -n "$(git status --porcelain --untracked-files=no)" ]; then
	echo "There are changes that are not committed: the record would name the wrong commit." >&2
	exit 1
fi
commit=$(git rev-parse --short HEAD)
mkdir -p proof/logs
export LOCKER_TEST_NO_REPLAY=1
failed=0 chosen=0

# step NAME COMMAND [ARG…]
step() {
	local name=$1 out="proof/logs/${1//[\/ ]/-}.txt" begin=$SECONDS result=ok
	shift
	[[ $name =~ $only ]] || return 0
	chosen=$((chosen + 1))
	grep -qsF "$commit $name ok" proof/log && return
	"$@" >"$out" 2>&1 </dev/null || result=FAIL
	echo "$commit $name $result $((SECONDS - begin))s" | tee -a proof/log
	if [ $result != ok ]; then
		failed=1
		tail -n 40 "$out"
	fi
}

# whole MODULE PACKAGE runs all of a package's tests, with the race detector. What looks at millions of states has one
# goroutine, and is a step of its own.
explorers=TestEveryInterleaving
whole() { (cd "$1" && go test -race -count=1 -timeout 40m -vet=off -ldflags=-w -parallel 4 -skip "$explorers" "$2"); }

for module in . docs $(dirname register/*/go.mod register/*/*/go.mod) proof proof/bench; do
	packages=$(cd "$module" && go list -f '{{if or .TestGoFiles .XTestGoFiles}}{{.ImportPath}}{{end}}' ./...) || exit 1
	for package in $packages; do
		case $package in */bench/record*) continue ;; esac # a step of its own
		step "test ${package#*/*/}" whole "$module" "$package"
	done
done
step explore go test -count=1 -timeout 40m -vet=off -run "$explorers" ./register
step record make record
step compare go -C proof run ./compare --html logs/compare.html --json logs/compare.json --markdown logs/GUARANTEES.md
step soak go -C proof run ./compare --soak 1m
for table in $(cd proof/mutants && find . -name '*.txt' | cut -d / -f 2 | sed 's/\.txt$//' | sort -u); do
	step "mutants $table" go -C proof run ./mutants -root .. -only "$table"
done
if [ $chosen = 0 ]; then
	echo "no step matches $only" >&2
	exit 64
fi
[ $failed = 0 ] && echo "$chosen steps have passed on $commit"
exit $failed
