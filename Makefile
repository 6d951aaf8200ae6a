# What the tests need of a machine is Go and make; "make test" installs the rest.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

# Runs tests with what those on real servers need.
WITH := internal/testserver/with.sh

LINT := github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0
ACTIONS := github.com/rhysd/actionlint/cmd/actionlint@v1.7.12
VULN := golang.org/x/vuln/cmd/govulncheck@v1.9.0
VULNDB ?= https://vuln.go.dev

# The folders of the modules that "make test" tests, the users' one first, and of all modules.
TESTED := . $(patsubst %/go.mod,%,$(wildcard docs/go.mod adapters/*/go.mod register/*/go.mod register/*/*/go.mod))
MODULES := $(TESTED) $(patsubst %/go.mod,%,$(wildcard proof/go.mod proof/bench/go.mod internal/testserver/*/go.mod))

# Systems and processors on which we run nothing. Users' programs must build for them.
ELSEWHERE := darwin/arm64 windows/amd64 freebsd/amd64 openbsd/amd64 linux/386 linux/arm linux/arm64

BENCH ?=
FIX ?=
STEP ?=
ROUNDS ?= 5
LOAD ?= 6

.PHONY: help
help: ## say what there is
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "make %-9s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: run
run: ## lock, and show the token: twice, the second is greater
	go run ./cmd/locker run demo -- sh -c 'echo token $$LOCKER_TOKEN'
	go run ./cmd/locker run demo -- sh -c 'echo token $$LOCKER_TOKEN'

.PHONY: servers
servers: ## install the servers that the tests start, where they are missing
	internal/testserver/install.sh

.PHONY: test
test: servers ## the users' module, the adapters and the pages, on real servers
	$(WITH) internal/testserver/test.sh $(TESTED) proof/mutants

.PHONY: steady
steady: ## make test five times with nothing beside it and five beside six busy loops; the record is steady/log; can be stopped
	proof/steady.sh $(ROUNDS) $(LOAD)

.PHONY: proof
proof: servers ## everything that make test leaves out; the record is proof/log; can be stopped; STEP=mutants
	$(WITH) proof/proof.sh '$(STEP)'

ONLY ?=
SINCE ?=

.PHONY: mutants
mutants: servers ## break each line of safety, and see a test fail; ONLY=driver or driver:17, SINCE=origin/main
	$(WITH) go -C proof run ./mutants -only '$(ONLY)' -since '$(SINCE)'

# What says most in little time: the contract, the driver on its virtual clock, locks and their faults
# on this machine's kernel and in memory, and all clauses on one Redis. No race detector. What
# has passed and has not changed is not run again.
QUICK := . ./driver ./fencing ./fencing/httpfence ./fencing/redisfence ./internal/dial ./internal/hashslot \
	./internal/mailbox ./internal/meter ./local ./lockertest ./observe

.PHONY: quick
quick: ## what to run on every save, under a minute; says what it leaves out
	go vet ./...
	export LOCKER_TEST_REQUIRE=1; \
	go test -vet=off -parallel 8 -run '^TestConformance$$' ./singlenode & \
	go test -vet=off -p 4 -parallel 8 $(QUICK) || failed=1; \
	go -C proof test -count=1 -vet=off -short ./mutants || failed=1; \
	wait $$! || failed=1; exit $${failed:-0}
	@echo "left out, for \"make test\": the race detector, the other modules, ./singlenode but its conformance, and"
	@go list -f '{{if or .TestGoFiles .XTestGoFiles}}{{.ImportPath}}{{end}}' ./... | grep -vxF "$$(go list $(QUICK) ./singlenode)" | sed "s|^$$(go list -m)|.|" | xargs

FUZZTIME ?= 1m

.PHONY: fuzz
fuzz: ## each fuzz target for FUZZTIME, two at a time
	internal/testserver/fuzz.sh $(FUZZTIME)

COUNT ?= 20
JOBS ?= 4
PACKAGES ?= ./...

.PHONY: hunt
hunt: servers ## run every package COUNT times, JOBS at a time, beside LOAD busy loops; the record is hunt/log; can be stopped
	$(WITH) proof/hunt.sh $(COUNT) $(LOAD) $(JOBS) $(PACKAGES)

.PHONY: check
check: lint test ## lint and test: what a patch has to pass

VERSION ?=

.PHONY: release
release: ## commit and tag all modules of a release, and push nothing; VERSION=v1.2.3
	internal/release/release.sh '$(VERSION)'

.PHONY: lint
lint: ## gofmt, vet, golangci-lint, actionlint, govulncheck and tidy modules
	test -z "$$(gofmt -l . | tee /dev/stderr)"
	for m in $(MODULES); do (cd $$m && go vet ./... && go run $(LINT) run ./...); done
	go run $(ACTIONS) -shellcheck= -pyflakes= # the workflows
	for m in $(filter-out proof/bench,$(MODULES)); do (cd $$m && go mod tidy -diff); done # not in proof/bench: other libraries' tests need modules that not every proxy has
	for t in $(ELSEWHERE); do echo "vet for $$t"; GOOS=$${t%/*} GOARCH=$${t#*/} go vet ./...; done
	if curl -sfo /dev/null --max-time 20 $(VULNDB)/index/db.json; then go run $(VULN) -db $(VULNDB) ./...; \
	else echo "govulncheck: $(VULNDB) cannot be reached, so nobody looked for known vulnerabilities"; fi

.PHONY: model
model: servers ## look at every state of the models in proof/spec; the wrong ones must fail, and how is shown
	proof/spec/check.sh

.PHONY: bench
bench: servers ## benchmarks beside other libraries, as Markdown; BENCH="-stores redis"
	cd proof/bench && go run . $(BENCH)

.PHONY: record
record: servers ## show the bugs of other libraries on the versions that had them, and that ours has them not
	cd proof/bench && LOCKER_RECORD=1 LOCKER_TEST_REQUIRE=1 go test -count=1 -v -timeout 20m ./record/...

.PHONY: replay
replay: servers ## the test of a fix on the code before it, where it has to fail: FIX=COMMIT of docs/TRACK_RECORD.md
	LOCKER_TEST_REQUIRE=1 proof/replay.sh $(FIX)

COMPARE ?=

.PHONY: compare
compare: servers ## break every backend on purpose; writes docs/GUARANTEES.md and compare.html; with COMPARE="--backends etcd" only the latter
	cd proof && go run ./compare --html ../compare.html $(if $(COMPARE),$(COMPARE),--markdown ../docs/GUARANTEES.md --readme ../README.md)

FOR ?= 10m
SEED ?= 0
BACKENDS ?=
CROWD ?= 0

.PHONY: soak
soak: servers ## break at random for 10 minutes, and add rows to docs/GUARANTEES.md; FOR=1h, BACKENDS=etcd, CROWD=64; SEED=N plays a round again and writes nothing
	cd proof && go run ./compare --soak '$(FOR)' --seed '$(SEED)' --crowd '$(CROWD)' --backends '$(BACKENDS)' $(if $(filter 0,$(SEED)),--markdown ../docs/GUARANTEES.md)

PEERS ?=

.PHONY: peers
peers: servers ## the same for other people's locks; writes docs/PEERS.md and peers.html; with PEERS="-subjects redsync" only the latter
	cd proof/bench && go run . -matrix -html ../../peers.html $(if $(PEERS),$(PEERS),-markdown ../../docs/PEERS.md)
