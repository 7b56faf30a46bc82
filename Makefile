# `make` prints what there is. All targets need nothing but Go, git and make; what they build and keep
# lies in the user's cache directory, under ccm-from-scratch.

.DEFAULT_GOAL := help
SHELL := bash
.SHELLFLAGS := -euo pipefail -c

# -race needs cgo and a C compiler; without one the tests run without it and say so.
RACE := $(shell scripts/race-flag.sh)
# All other builds are without cgo, as the images are: so Go compiles each package once for all of them.
export CGO_ENABLED := 0
# The Go modules whose tests run, each in its own folder. e2e is a suite of its own (make e2e).
MODULES := . fakecloud kind/nodeimage scripts/chart scripts/crds scripts/dev-env
# scripts/lint.sh runs vet on these. go test would run it once more, on them and on each package that they import.
VETTED := . fakecloud kind/nodeimage
# Go repeats the result of a test until a file changes that the test has read, but looks only at files of the test's own
# module. The tests of these modules read others.
UNCACHED := kind/nodeimage scripts/chart scripts/crds

##@ Use

.PHONY: run
run: ## Run the simulated cloud with its data plane on loopback (flags: ARGS="--help")
	go tool fakecloud --data-plane $(ARGS)

.PHONY: image
image: ## Build fakecloud:dev, ccm-from-scratch:dev and machine-controller:dev FROM scratch (pulls nothing; OUT=folder: files, ARCH="amd64 arm64": one for both)
	scripts/image.sh

.PHONY: up
up: ## A kind cluster that is a Hetzner cluster, with cloud and CCM; repairs one that is there (KIND_NAME=, KIND_SUBNET=, ARGS="--help")
	@scripts/up.sh up $(ARGS)

.PHONY: env
env: ## Print the exports of `make up` again: eval "$$(make -s env)"
	@scripts/up.sh env

.PHONY: status
status: ## What works of `make up` and what does not, with how to restart that
	@scripts/up.sh status

.PHONY: load
load: ## Put IMAGE=name, which Docker has, into all nodes of `make up`, and into those of later servers
	@scripts/up.sh load $(IMAGE)

.PHONY: down
down: ## Remove what `make up` made
	@scripts/up.sh down

.PHONY: dev
dev: ## Rebuild the CCM and have the cluster of `make up` run it
	@scripts/up.sh dev

.PHONY: dev-env-up
dev-env-up: ## A cluster on the real cloud, without a CCM, by Terraform: eval "$$(make -s dev-env-up)" (ARGS="-var=workers=3"; HCLOUD_TOKEN)
	@scripts/dev-env.sh up $(ARGS)

.PHONY: dev-env-down
dev-env-down: ## Remove what `make dev-env-up` made
	@scripts/dev-env.sh down $(ARGS)

##@ Test

.PHONY: test
test: ## Unit and contract tests, with the race detector where there is a C compiler
	@echo "compiling and testing $(MODULES): minutes the first time (Ctrl-C stops it)"
	{ for m in $(MODULES); do (cd $$m && export GOWORK=$$([ $$m = . ] || echo off) && CGO_ENABLED=$(if $(RACE),1,0) go test -json $(RACE) $$([[ " $(VETTED) " != *" $$m "* ]] || echo -vet=off) $$([[ " $(UNCACHED) " != *" $$m "* ]] || echo -count=1) $$(go list ./... | grep -v '/e2e$$')) || failed=1; done; exit $${failed:-0}; } | \
		go run ./scripts/testsummary -name unit

.PHONY: e2e
e2e: ## The end-to-end suite: API server, CCM and simulated cloud (LABELS=, FOCUS=, PROCS=, E2E_CLUSTER=, CCM=)
	scripts/e2e.sh

.PHONY: e2e-probe
e2e-probe: ## Find out what a cloud-controller-manager lacks, and write it into its file (CCM=, and the settings of e2e)
	scripts/e2e-probe.sh

.PHONY: e2e-clean
e2e-clean: ## Remove what runs on an existing cluster left there and in its cloud (RUN=name: one run)
	go run ./e2e/cmd/e2e-clean

.PHONY: e2e-hygiene
e2e-hygiene: ## Prove that the suite leaves nothing behind: success, failure, time out, Ctrl-C, SIGTERM, SIGKILL (minutes)
	scripts/e2e-hygiene.sh

.PHONY: conformance
conformance: ## Kubernetes' own specs of load balancers and networking, on kind; writes e2e/CONFORMANCE.md (half an hour; FOCUS=, PROCS=)
	scripts/conformance.sh

.PHONY: bench
bench: ## Benchmarks, each with its baseline
	cd fakecloud && go test -run '^$$' -bench . -benchmem ./...

.PHONY: bench-ccm
bench-ccm: ## Measure what the CCM costs: the tables of ccm/README.md (half an hour)
	@cd ccm/internal/proof/budget && go test -run TestTable -count=1 -timeout=60m -args -table
	@cd e2e/scale && go test -run TestColdStart -count=1 -timeout=60m -args -table

SEEDS ?= 1000
.PHONY: sim
sim: ## Simulate random histories of the CCM (SEEDS=10000; SEED=n: one, with all that happens; KEEP=0,3: some of its steps)
	@overlay=$$(scripts/sim-runtime.sh) && scripts/progress.sh "compiling the simulation, with Go's own packages (minutes the first time)" \
		go test -v -overlay "$$overlay" -tags sim -c -o "$${TMPDIR:-/tmp}/ccm-sim.test" ./ccm/internal/proof/sim
	@cd ccm/internal/proof/sim && "$${TMPDIR:-/tmp}/ccm-sim.test" -test.run '^(TestSim|TestRegressions)$$' -test.timeout 0 \
		$(if $(SEED),-test.v -seed $(SEED) $(if $(KEEP),-keep $(KEEP)),-seeds $(SEEDS))

.PHONY: sim-reverted
sim-reverted: ## Revert the fixes of scripts/mutate/reverted.txt one by one: after how many seeds does the simulation notice? (ONLY=text)
	overlay=$$(scripts/sim-runtime.sh) && go run ./scripts/mutate -package ccm -named scripts/mutate/reverted.txt -simulate "$$overlay" -only "$(ONLY)"

SAMPLE ?= 0
LEAST ?= 0
.PHONY: mutate
mutate: ## Change the CCM's code in small ways and see whether its tests notice (hours; SAMPLE=200: some of them, drawn by SEED; LEAST=80: fail below 80 %; NAMED=1: the named ones)
	go run ./scripts/mutate -package ccm -named scripts/mutate/named.txt
	$(if $(NAMED),,go run ./scripts/mutate -package ccm -sample $(SAMPLE) $(if $(SEED),-seed $(SEED)) -least $(LEAST) -jobs $$(nproc))

.PHONY: tidy
tidy: ## go mod tidy in all modules, with the fakecloud of this checkout
	scripts/tidy.sh $(MODULES)

.PHONY: outside
outside: ## Install all programs, and test two modules that import ours, as from outside: with an empty module cache (minutes)
	OUTSIDE_COMPILE=1 go test -count=1 -v ./scripts/modproxy

.PHONY: fuzz
fuzz: ## Fuzz every decoder for FUZZTIME each (default 30s)
	scripts/fuzz.sh

.PHONY: coverage
coverage: ## Write the page of what the API models: fakecloud/COVERAGE.md (needs the API document)
	cd fakecloud && REQUIRE_API_DOCUMENT=1 go test -run '^TestContractEveryAnswer' ./internal/contract -update

.PHONY: behaviour
behaviour: ## Write the page of which test guards which sentence of the API document: fakecloud/BEHAVIOUR.md
	cd fakecloud && go test -run '^TestThePageOfBehaviour' ./internal/contract -update

##@ Develop

.PHONY: lint
lint: ## Plain English (scripts/plain-english.sh) and golangci-lint in the pinned version
	scripts/lint.sh

.PHONY: fmt
fmt: ## Format the code
	gofmt -w $$(git ls-files '*.go')

.PHONY: manifests
manifests: ## Render the Helm chart into ccm/deploy again, after a change of ccm/chart
	scripts/manifests.sh

.PHONY: generate
generate: ## Write the CRDs and the methods DeepCopy again, after a change of ccm/machine/v1alpha1
	scripts/generate.sh

.PHONY: release
release: ## Make all files of a release from its tag, in out/release: VERSION=v1.2.3 (ARGS=--dry-run: only check)
	scripts/release.sh $(ARGS) $(VERSION)

.PHONY: kubernetes
kubernetes: ## Build the control plane's programs that e2e needs (once; minutes)
	@echo "the control plane's programs: downloaded or built once, in minutes, then found at once"
	scripts/gorun.sh kind/nodeimage kubernetes

.PHONY: node-image
node-image: ## The node image for `make up`: kind's own, or one built from source (once; minutes)
	scripts/node-image.sh

.PHONY: ci
ci: ## What CI runs
	env -u CGO_ENABLED .ci/run # else the tests that it runs would be without the race detector

.PHONY: help
help: ## This help
	@awk 'BEGIN {FS = ":.*## "} /^##@/ {printf "\n%s\n", substr($$0, 5)} /^[a-z0-9-]+:.*## / {printf "  %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)
