# `make` prints what there is. All targets need Go, git, make and bash, and some say what else; what they build and
# keep lies in the user's cache directory, under ccm-from-scratch.

.DEFAULT_GOAL := help

# All builds are without cgo, as the images are: so Go compiles each package once for all of them.
export CGO_ENABLED := 0
# The Go modules whose tests run, each in its own folder. Specs are a suite of their own (make e2e).
MODULES := . e2e e2e/hetzner fakecloud fakecloud/gomegacloud fakecloud/testcontainers kind/nodeimage

##@ Use

.PHONY: run
run: ## Run the simulated cloud with its data plane on loopback (flags: ARGS="--help")
	@exec scripts/gorun.sh fakecloud/cmd/fakecloud --data-plane $(ARGS)

.PHONY: install
install: ## Put the program fakecloud into the folder of Go's programs, and say where that is
	@scripts/install.sh

.PHONY: up
up: ## A kind cluster that is a Hetzner cluster; repairs an existing one (ARGS="--help")
	@exec scripts/up.sh up $(ARGS)

.PHONY: env
env: ## Print the exports of `make up` again: eval "$$(make -s env)"
	@exec scripts/up.sh env

.PHONY: status
status: ## What of `make up` works, what does not, and how to restart that
	@exec scripts/up.sh status

.PHONY: dev
dev: ## Rebuild the CCM and have the cluster of `make up` run it
	@exec scripts/up.sh dev

.PHONY: load
load: ## Put IMAGE=name, which Docker has, into all nodes of `make up`, later ones too
	@exec scripts/up.sh load $(IMAGE)

.PHONY: down
down: ## Remove what `make up` made
	@exec scripts/up.sh down

.PHONY: image
image: ## Build the images FROM scratch, without a pull (OUT=folder, ARCH="amd64 arm64")
	scripts/image.sh

.PHONY: dev-env-up
dev-env-up: ## A cluster on the real cloud, without a CCM (scripts/dev-env/README.md)
	@scripts/dev-env.sh up $(ARGS)

.PHONY: dev-env-down
dev-env-down: ## Remove what `make dev-env-up` made
	@scripts/dev-env.sh down $(ARGS)

##@ Test

.PHONY: test
test: ## Unit and contract tests, with the race detector (minutes; more the first time)
	SHORT=1 scripts/test.sh $(filter-out scripts/%,$(MODULES))

.PHONY: test-all
test-all: ## The same with whole sweeps and simulations, and checks of this repository, as CI
	scripts/test.sh $(MODULES)

# PACKAGES="ccm/internal/apicall fakecloud/..." are folders; without, all. CHANGED=1 leaves out what does not differ from the last release.
# SHORT=1 COUNT=1 BUDGET=30m is one short round over all packages.
.PHONY: stress
stress: ## Repeat tests, and print those that do not end the same (PACKAGES=, BUDGET=10m)
	@scripts/test.sh --stress $(MODULES)

.PHONY: lint
lint: ## Plain English, scripts, workflows and code (minutes; more the first time)
	scripts/lint.sh

# ON=kubernetes has the cluster of the current context do the work of e2e, sim and mutate (e2e/SCALING.md).
ON_KUBERNETES = $(if $(ON),$(if $(filter-out kubernetes,$(ON)),$(error ON=$(ON): must be kubernetes, or not set),scripts/gorun.sh scripts/onkubernetes))

.PHONY: e2e
e2e: ## The end-to-end suite (E2E_CLUSTER=, LABELS=, FOCUS=, CCM=, …: scripts/e2e.sh)
	$(if $(ON),$(if $(CCM),$(if $(wildcard $(CCM)),,$(error CCM=$(CCM): must be a file that can be read)))$(ON_KUBERNETES) e2e,scripts/e2e.sh)

.PHONY: e2e-probe
e2e-probe: ## Find out what a cloud-controller-manager lacks, and write it into its file (CCM=)
	scripts/e2e-probe.sh

.PHONY: e2e-example
e2e-example: ## The conformance specs with the example CCM on the example cloud (minutes)
	E2E_CLUSTER=embedded E2E_OUT=$(CURDIR)/out/e2e-example CCM=e2e/ccms/example-ccm.yaml LABELS=conformance scripts/e2e.sh

.PHONY: broken-examples
broken-examples: ## Break the example CCM in ten ways; a spec must fail each time (minutes)
	scripts/broken-examples.sh

.PHONY: e2e-clean
e2e-clean: ## Remove what runs on an existing cluster left there and in its cloud (RUN=name)
	@scripts/need.sh go
	go run ./e2e/hetzner/cmd/clean

.PHONY: conformance
conformance: ## Kubernetes' own specs, on kind; writes e2e/CONFORMANCE.md (half an hour; FOCUS=)
	scripts/conformance.sh

.PHONY: bench
bench: ## Benchmarks, each with its baseline
	@scripts/need.sh go
	cd fakecloud && go test -run '^$$' -bench . -benchmem ./...

.PHONY: bench-ccm
bench-ccm: ## Measure what the CCM costs: the tables of ccm/README.md (half an hour)
	@cd ccm/internal/proof/budget && go test -run TestTable -count=1 -timeout=60m -args -table
	@cd e2e/hetzner/scale && go test -run TestColdStart -count=1 -timeout=60m -args -table

SEEDS ?= 1000
ONE_SEED = $(if $(SEED),-test.v -seed $(SEED) $(if $(KEEP),-keep $(KEEP)),-seeds $(SEEDS) $(if $(FIRST),-first $(FIRST)))
.PHONY: sim sim-ccm sim-machine sim-on
sim: $(if $(ON),sim-on,sim-ccm sim-machine) ## Simulate random histories of CCM and machine controller (SEEDS=10000 FIRST=1)

sim-on:
	@SEEDS=$(SEEDS) $(ON_KUBERNETES) sim

sim-ccm: ## That of the CCM (SEED=n KEEP=0,3 replays a history)
	@overlay=$$(scripts/sim-runtime.sh) && scripts/progress.sh "compiling the simulation, with Go's own packages (minutes the first time)" \
		go test -v -overlay "$$overlay" -tags sim -c -o "$${TMPDIR:-/tmp}/ccm-sim.test" ./ccm/internal/proof/sim
	@cd ccm/internal/proof/sim && "$${TMPDIR:-/tmp}/ccm-sim.test" -test.run '^(TestSim|TestRegressions)$$' -test.timeout 0 \
		$(ONE_SEED)

sim-machine: ## That of the machine controller (SEED=n KEEP=0,3 replays a history)
	@scripts/progress.sh "compiling the simulation of the machine controller" \
		go test -v -c -o "$${TMPDIR:-/tmp}/machine-sim.test" ./ccm/machine/controller
	@cd ccm/machine/controller && "$${TMPDIR:-/tmp}/machine-sim.test" -test.run '^TestSim$$' -test.timeout 0 $(ONE_SEED)

##@ Maintain

.PHONY: fmt
fmt: ## Format the code
	gofmt -w $$(git ls-files '*.go')

.PHONY: sim-reverted
sim-reverted: ## Revert fixes of the CCM one by one; the simulation must notice each (ONLY=text)
	overlay=$$(scripts/sim-runtime.sh) && go run ./scripts/mutate -package ccm -named scripts/mutate/reverted.txt -simulate "$$overlay" -only "$(ONLY)"

SAMPLE ?= 0
LEAST ?= 0
.PHONY: mutate mutate-here mutate-on
mutate: $(if $(ON),mutate-on,mutate-here) ## Change the CCM's code in small ways; its tests must notice (hours; SAMPLE=200 SEED=1)

mutate-on:
	@SAMPLE=$(SAMPLE) SEED=$(SEED) LEAST=$(LEAST) $(ON_KUBERNETES) mutate

mutate-here:
	go run ./scripts/mutate -package ccm -named scripts/mutate/named.txt
	$(if $(NAMED),,overlay=$$(scripts/sim-runtime.sh) && go run ./scripts/mutate -package ccm -simulate "$$overlay" -sample $(SAMPLE) \
		$(if $(SEED),-seed $(SEED)) -least $(LEAST) -jobs $$(getconf _NPROCESSORS_ONLN))

.PHONY: tidy
tidy: ## go mod tidy in all modules, with the fakecloud of this checkout
	scripts/tidy.sh $(MODULES)

.PHONY: tidy-check
tidy-check: ## Fail if a go.mod is not tidy (minutes)
	scripts/tidy.sh --check $(MODULES)

.PHONY: vulnerabilities
vulnerabilities: ## Look for known vulnerabilities in what the code calls (needs the network)
	for m in . e2e e2e/hetzner fakecloud kind/nodeimage; do \
		(cd $$m && case $$m in fakecloud | kind/nodeimage) export GOWORK=off ;; esac && "$$($(CURDIR)/scripts/tool.sh govulncheck)" ./...) || failed=1; \
	done; exit $${failed:-0}

.PHONY: outside
outside: ## Install the programs and use the modules as from outside (minutes)
	KUBEBUILDER_ASSETS=$$(scripts/gorun.sh kind/nodeimage kubernetes) OUTSIDE_COMPILE=1 go test -count=1 -timeout=30m -v ./scripts/modproxy

.PHONY: e2e-hygiene
e2e-hygiene: ## Prove that the suite leaves nothing behind, however it ends (minutes)
	E2E_HYGIENE=1 go test -count=1 -timeout=30m -v ./e2e/hetzner/hygiene

.PHONY: fuzz
fuzz: ## Fuzz every decoder for FUZZTIME each (default 30s)
	scripts/fuzz.sh

.PHONY: api-document
api-document: ## Download Hetzner's API document into your cache, for the contract tests
	@cd fakecloud && GOWORK=off go run ./internal/contract/api-document $(ARGS)

.PHONY: coverage
coverage: ## Write fakecloud/COVERAGE.md: what the API models (needs the API document)
	cd fakecloud && REQUIRE_API_DOCUMENT=1 go test -run '^TestContractEveryAnswer' ./internal/contract -update

.PHONY: actions
actions: ## Write fakecloud/ACTIONS.md: what each action locks and does
	cd fakecloud && go test -run '^TestThePageOfActions' ./internal/cloud -update

.PHONY: behaviour
behaviour: ## Write out/BEHAVIOUR.md, which test guards which sentence, and FIDELITY.md
	cd fakecloud && go test -run '^TestThePageOfBehaviour' ./internal/contract -update

.PHONY: pictures
pictures: ## Take the pictures of the pages again, in a browser, and the recording of a terminal
	REQUIRE_BROWSER=1 go test -count=1 -run 'TestACluster|TestTheReportShows' ./e2e/hetzner/browser
	mkdir -p .github/pictures && cd out/browser && cp cluster-light.png cluster-dark.png report-light.png report-dark.png $(CURDIR)/.github/pictures
	go test -count=1 -run 'TestTheTranscript|TestTheRecording' ./scripts/readme -update

.PHONY: manifests
manifests: ## Render the Helm chart into ccm/deploy again, after a change of ccm/chart
	scripts/manifests.sh

.PHONY: generate
generate: ## Write the CRDs and DeepCopy again, after a change of ccm/machine/v1alpha1
	scripts/generate.sh

.PHONY: release
release: ## Make a release's files from its tag, in out/release (VERSION=v1.2.3)
	scripts/release.sh $(ARGS) $(VERSION)

.PHONY: publish
publish: ## Publish a release, as CI does for a tag (VERSION=v1.2.3, ARGS=--dry-run)
	scripts/publish.sh $(ARGS) $(VERSION)

.PHONY: kubernetes
kubernetes: ## Build the control plane's programs that e2e needs (once; minutes)
	@echo "the control plane's programs: downloaded or built once, in minutes, then found at once"
	scripts/gorun.sh kind/nodeimage kubernetes

.PHONY: node-image
node-image: ## The node image for `make up`: kind's own, or built from source (once; minutes)
	@echo "the node image: pulled, or built once in minutes, then found at once" >&2
	scripts/gorun.sh kind/cmd/kindcloud image

.PHONY: ci
ci: ## What CI runs
	.ci/run

.PHONY: help
help: ## This help
	@awk 'BEGIN {FS = ":.*## "} /^##@/ {printf "\n%s\n", substr($$0, 5)} /^[a-z0-9-]+:.*## / {gsub(/\$$\$$/, "$$"); printf "  %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)
