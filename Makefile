# All targets are made for Debian and Ubuntu; those that need packages install them (test/setup), as root.
SHELL := /bin/bash
BIN   := bin
GO    := go
export GOFLAGS := -trimpath

.DEFAULT_GOAL := help

help: ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 17

build: ## build bin/weave-npc, a static binary
	CGO_ENABLED=0 $(GO) build -o $(BIN)/weave-npc ./cmd/weave-npc

demo: ## show policies being enforced in a small cluster of network namespaces (KEEP=1 leaves it running)
	@test/setup demo
	@echo "Building; the first time, Go downloads modules."
	@$(GO) mod download # go build would print a line for each
	@$(MAKE) -s build
	@$(GO) build -o $(BIN)/demo ./test/demo
	@$(BIN)/demo -weave-npc $(BIN)/weave-npc $(if $(KEEP),-keep)

# unit_packages lists the packages whose tests make no network namespace, and so need no root: they use neither of the two
# packages that make them. Tests that need a browser or an API server run in one.
unit_packages = $(GO) list -test -f '{{.ImportPath}} {{.Deps}}' ./... | sed -nE '\,/test/(sandbox|lab)[] ],d; s/\.test \[.*//p'

unit: ## run the tests that need only Go, as any user (a minute and a half; seconds if little changed)
	$(GO) test $$($(unit_packages))

# The packages that take longest begin first.
test: ## run all tests: unit tests, and tests with the real kernel, a browser and a real API server
	test/setup browser
	test/controlplane/build
	$(GO) vet ./...
	$(GO) test -count=1 -timeout 40m ./test/enforce/... ./npc/enforce/... ./...
	$(GO) -C test/controlplane test ./conformance/command ./conformance/report ./conformance/tiers ./conformance/agnhost
	$(GO) -C test/alerts test -count=1 . # without the cache, which misses changes of the files outside of this module
	$(GO) -C test/manifests test -count=1 .
	$(GO) -C cmd/weave-npc-relay vet ./...
	$(GO) -C cmd/weave-npc-relay test -count=1 -timeout 20m ./...

# RACE names the packages whose goroutines share memory. Random histories have one goroutine.
RACE_SKIP = Random|BetweenTheSteps
RACE = ./npc/enforce/controller ./npc/enforce/syncer ./npc/enforce/binding ./npc/enforce/alive ./npc/enforce/domainnames ./npc/enforce/established ./npc/observe/... ./npc/source/relayclient

race: ## run the tests of what is concurrent with the race detector (RACE=./... for all packages), and those of the relay
	test/setup
	test/controlplane/build
	$(GO) test -race -count=1 -timeout 60m -skip '$(RACE_SKIP)' $(RACE)
	$(GO) -C cmd/weave-npc-relay test -race -count=1 -timeout 40m ./...

nightly: ## run what takes hours: all tests with the race detector, random checks, kills, mutants, soak
	@.ci/nightly

kernels: ## run SUITES (folders; all whose tests ask the kernel) under Debian's KERNELS ("6.1 6.12", 6.12-cloud), with BACKENDS ("nft legacy"), in virtual machines; RUN=RE as go test
	test/setup kernels
	CGO_ENABLED=0 $(GO) build -o $(BIN)/kernels ./test/kernels
	$(BIN)/kernels -tests $(if $(KERNELS),-kernels '$(KERNELS)') $(if $(BACKENDS),-backends '$(BACKENDS)') $(if $(SUITES),-suites '$(SUITES)') $(if $(RUN),-run '$(RUN)')

resolvers: ## have pods look names up by the resolvers of glibc, musl, Go and systemd, at CoreDNS (built in minutes the first time)
	test/setup resolvers
	$(GO) -C test/coredns build -o $(CURDIR)/$(BIN)/coredns .
	WEAVE_NPC_TEST_COREDNS=$(CURDIR)/$(BIN)/coredns WEAVE_NPC_TEST_RESOLVED=$(CURDIR)/.cache/resolved \
	  $(GO) test -count=1 -run CoreDNSAndStubResolvers -v ./test/enforce/names

portable: ## vet the commands that also run on macOS and Windows, amd64 and arm64, and link their tests (TARGETS=darwin/arm64)
	test/portable/check $(TARGETS)

controlplane: ## build the kube-apiserver and the etcd that the tests run (cached in .cache/controlplane)
	test/controlplane/build

conformance: ## run the suites of NetworkPolicy and ClusterNetworkPolicy against a cluster, KUBECONFIG=FILE (docs/conformance.md lists the variables)
	@test/controlplane/conformance/run

image: ## build the images of the last commit without a registry, bin/weave-npc-image-ARCH.tar, and test them (ARCHS="amd64 arm64", TAG=latest)
	test/setup image
	prod/image $(or $(TAG),latest) $(or $(ARCHS),amd64 arm64)
	WEAVE_NPC_TEST_IMAGE=$(CURDIR)/bin/weave-npc-image-$(shell $(GO) env GOHOSTARCH).tar $(GO) test -count=1 -run TestImageEnforces ./test/enforce/node
	WEAVE_NPC_TEST_IMAGES="$(addsuffix .tar,$(addprefix $(CURDIR)/bin/weave-npc-image-,$(or $(ARCHS),amd64 arm64)))" \
	  $(GO) test -count=1 ./test/image

relay-image: ## build the images of weave-npc-relay, bin/weave-npc-relay-image-ARCH.tar, and test them (ARCHS="amd64 arm64", TAG=latest)
	test/setup image
	IMAGE=weave-npc-relay prod/image $(or $(TAG),latest) $(or $(ARCHS),amd64 arm64)
	WEAVE_NPC_TEST_RELAY_IMAGES="$(addsuffix .tar,$(addprefix $(CURDIR)/bin/weave-npc-relay-image-,$(or $(ARCHS),amd64 arm64)))" \
	  $(GO) test -count=1 -run TestRelay ./test/image

release: ## make the files of a release of the last commit's tag, bin/release, and test them (VERSION=v1.2.3 makes that tag first)
	test/setup image
	$(if $(VERSION),prod/tag $(VERSION))
	prod/release
	WEAVE_NPC_TEST_RELEASE=$(CURDIR)/bin/release $(GO) test -count=1 ./test/release

site: ## build the site of the documentation, bin/site, from the pages as they are
	test/setup site
	hugo --config prod/site/hugo.yaml --destination $(BIN)/site --cleanDestinationDir --noBuildLock --panicOnWarning --quiet

lint: ## run golangci-lint, as pinned in .ci/lint.mod
	$(GO) tool -modfile=.ci/lint.mod golangci-lint run ./...
	cd cmd/weave-npc-relay && $(GO) tool -modfile=../../.ci/lint.mod golangci-lint run --config ../../.golangci.yaml ./...

fmt: ## format the code
	$(GO) tool -modfile=.ci/lint.mod golangci-lint fmt ./...

bench: ## run the benchmarks (docs/performance.md) and plot the results (COUNT=1, BENCH=RE, PLOTS=docs/performance)
	test/setup
	@mkdir -p $(BIN) $(or $(PLOTS),docs/performance)
	set -o pipefail; $(GO) test -run '^$$' -bench '$(or $(BENCH),.)' -count $(or $(COUNT),1) -benchmem -timeout 0 -p 1 ./... | tee $(BIN)/bench.txt
	$(GO) run ./test/speed/plot $(or $(PLOTS),docs/performance) < $(BIN)/bench.txt

fuzz: ## compare HISTORIES (20000, over 100,000 states) of random clusters with the reference model; fuzz all parsers, FUZZTIME (1m) each
	$(GO) test ./npc/enforce/controller -run TestRandomHistories -timeout 0 -v -rapid.checks=$${HISTORIES:-20000}
	@set -e; for p in $$($(GO) list ./...); do \
	  for f in $$($(GO) test -list '^Fuzz' $$p | grep ^Fuzz); do \
	    echo "$$p $$f"; $(GO) test -run '^$$' -fuzz "^$$f$$" -fuzztime $${FUZZTIME:-1m} $$p; done; done

fuzz-interrupts: ## compare the state that CHECKS (300) random histories of interrupted and postponed transactions leave with the desired one
	WEAVE_NPC_TEST_STORMS=1 $(GO) test ./npc/enforce/controller -run TestRandomStorms -timeout 0 -v -rapid.checks=$${CHECKS:-300}

fuzz-cluster: ## compare STATES (1000 for each backend) of random clusters with the reference model, by packets; TIERS=no leaves out cluster network policies
	test/setup
	WEAVE_NPC_TEST_STEPS=$${STATES:-1000} WEAVE_NPC_TEST_TIERS=$${TIERS:-yes} $(GO) test ./test/enforce/random -run 'TestRandomStates|TestS62_S63_Random' -timeout 0 -v

soak: ## change, break and kill at random for FOR (10m), checked by the reference model, and look for leaks
	test/setup
	WEAVE_NPC_TEST_SOAK=$${FOR:-10m} $(GO) test ./test/enforce/random -run TestSoak -timeout 0 -v

chaos-kill: ## kill weave-npc before system calls while it starts and follows changes, each transition KILLS (20) times, under 1,000 new flows a second (ONLY=SCENARIOS)
	test/setup
	WEAVE_NPC_TEST_KILLS=$${KILLS:-20} $(GO) test ./test/enforce/faults -run 'TestS63_KilledAtEveryStep$(if $(ONLY),/.*/$(ONLY))' -timeout 0 -v

fuzz-terminate: ## terminate connections by EDITS (1000 for each backend) random changes, measure the delay, and test an end that sends only after 6 minutes
	test/setup
	WEAVE_NPC_TEST_STEPS=$${EDITS:-1000} $(GO) test ./test/enforce/connections -run TestS95_Random -count=1 -timeout 0 -v
	@for b in nft legacy; do WEAVE_NPC_TEST_LONG=1 $(GO) test ./test/enforce/connections -run "TestS95_HowSoon/$$b" -count=1 -timeout 0 -v || exit 1; done
	WEAVE_NPC_TEST_LONG=1 $(GO) test ./test/enforce/connections -run TestS96_AnEndThatSpeaksLate -count=1 -timeout 0 -v

bench-drift: ## measure the duration of repairs, REPEATS (30) times each kind, and the cost of watching
	test/setup
	$(GO) test ./npc/enforce/syncer -run 'TestHowLongARepairTakes|TestHowMuchWatchingCosts' -timeout 0 -v -drift.repeats=$${REPEATS:-30} -drift.cpu=1m

bench-relay: ## measure weave-npc-relay with AGENTS (50,200,1000; direct:N for agents without it) at 100 changes a second, in a cluster of PODS (200)
	test/setup
	test/controlplane/build
	WEAVE_NPC_TEST_RELAY=$${AGENTS:-50,200,1000} WEAVE_NPC_TEST_RELAY_PODS=$${PODS:-200} \
	  $(GO) -C cmd/weave-npc-relay test ./relay -run 'TestMeasure|TestMemory|TestWhatAgentsTake' -count=1 -timeout 0 -v

chaos-relay: ## kill replicas of the relay and weave-npc at random, KILLS (500) times, while policies and pods change, checked by the reference model
	test/setup
	test/controlplane/build
	WEAVE_NPC_TEST_RELAY_KILLS=$${KILLS:-500} $(GO) test ./test/enforce/faults -run TestS63_S93_RelaysAndAgentsAreKilled -count=1 -timeout 0 -v

load-drops: ## drop 20,000 new flows a second for FOR (30s), record as many, and kill ulogd2 KILLS (100) times under load; prints the resources used
	test/setup
	@for b in nft legacy; do WEAVE_NPC_TEST_FLOOD=$${FOR:-30s} $(GO) test ./test/enforce/observe -run "TestFloodOfBlockedFlows/$$b" -timeout 0 -v || exit 1; done
	WEAVE_NPC_TEST_FLOOD=$${FOR:-30s} $(GO) test ./test/enforce/observe -run TestS99_ConnectionsOfAFlood -timeout 0 -v
	WEAVE_NPC_TEST_ULOGD_KILLS=$${KILLS:-100} $(GO) test ./test/enforce/observe ./ulogd -run 'TestUlogdIsKilledUnderLoad|TestRunKilledAgainAndAgain' -timeout 0 -v

upgrade: ## compare the state of the kernel with that of an earlier commit's weave-npc (BASE=COMMIT), in STATES (1000) dry runs, and in a tenth of them after a restart
	test/setup
	WEAVE_NPC_TEST_UPGRADE=$${STATES:-1000} WEAVE_NPC_TEST_BASE=$(BASE) $(GO) test ./test/enforce/random -run TestUpgradeKeepsTheKernel -count=1 -timeout 0 -v

mutants: export WEAVE_NPC_TEST_NIGHTLY=1
mutants: ## apply mutants, one at a time, and show that the tests catch each (ONLY=NAMES); takes half an hour
	test/setup
	$(GO) run ./test/mutants $(if $(ONLY),-only '$(ONLY)')

vuln: ## check the dependencies against Go's vulnerability database (needs network access)
	$(GO) run golang.org/x/vuln/cmd/govulncheck@v1.9.0 ./...

clean: ## remove what was built
	rm -rf $(BIN) .cache

.PHONY: help build demo unit test race nightly kernels resolvers portable controlplane conformance image relay-image release site lint fmt bench fuzz fuzz-interrupts fuzz-cluster soak chaos-kill fuzz-terminate bench-drift bench-relay chaos-relay load-drops upgrade mutants vuln clean
