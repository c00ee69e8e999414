# Everything here needs Python 3.11+, a JDK 21+ and Maven; the rest is fetched. `make help` lists the targets.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
JOBS ?= 3
ROUNDS ?= 20
EXAMPLES ?= 200
ONLY ?= *
SEED ?=
REPLAY ?=
BASE ?=
BASE_TAG := python:3.11-slim-bookworm
IMAGE ?= pulsar-migrate
BUILD_FLAGS ?=
TESTS ?= tests/integration/devstack tests/integration/hardened/test_metadata_store.py tests/integration/metadata_store/test_live.py
PROMTOOL := v0.316.0
HELM := v3.22.0
PULSAR_CHART := 4.7.0
SOURCES := pyproject.toml scalable_client/pyproject.toml devstack/pyproject.toml deploy/compile_protos.py $(shell find clients scalable_client -name '*.proto')
# Not the lowest lock: its versions are old on purpose.
AUDITED := requirements.lock requirements-build.lock requirements-demo.lock requirements-dev.lock requirements-audit.lock
LOCK := uv pip compile --no-emit-package pulsar-scalable --universal --generate-hashes --no-emit-index-url --python-version 3.11 --quiet

# Before anything is installed: these modules need the standard library only.
DEVSTACK := PYTHONPATH=.:devstack $(BIN)/python -m
# Expanded when a recipe needs it: before, there is no environment.
CACHE = $(shell $(BIN)/python -c "from pulsar_devstack.servers.cache import cache_folder; print(cache_folder())")
PIP := $(BIN)/pip install --quiet --disable-pip-version-check

# The build's tools come first, so that pip gets none by itself, which it would do without a look at their sums.
# Without compiling: Python does that for what it imports, which is little of what is installed.
define INSTALL
	$(PIP) --no-compile --require-hashes -r requirements-build.lock
	DIST_EXTRA_CONFIG=$(CURDIR)/deploy/stored-wheels.cfg $(PIP) --no-compile --require-hashes --no-build-isolation $(LOCKS:%=-r %)
	$(PIP) --no-deps --no-build-isolation --editable . --editable scalable_client --editable devstack
	@touch $@
endef

.PHONY: help machine setup provision demo demo-bookie-switch ready-for-demo demo-down test lint test-unit test-workflows test-integration test-exhaustive test-faults test-walks test-releases test-mutants test-lowest test-pythons test-image test-containers test-chart histories promtool helm kubernetes pulsar-chart manifests lock sbom audit image release clean

help: ## List the targets
	@grep -hE '^[a-z%-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 20

setup: $(VENV)/.ready ## Make the virtual environment for development

# What the runtime needs, and what a demo adds; the rest of the environment is for development.
$(VENV)/.demo: LOCKS := requirements.lock requirements-demo.lock
$(VENV)/.ready: LOCKS := requirements-dev.lock
$(VENV)/.demo: requirements-build.lock requirements.lock requirements-demo.lock $(SOURCES) | $(BIN)/python
	$(INSTALL)
$(VENV)/.ready: requirements-build.lock requirements-dev.lock $(SOURCES) | $(BIN)/python
	$(INSTALL)
	@touch $(VENV)/.demo

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "error: $(PYTHON) is older than 3.11. cure: make PYTHON=/path/to/python3.11" >&2; exit 1; }
	@$(PYTHON) -m venv $(VENV)

machine: | $(BIN)/python # What must be on it is named before anything is fetched.
	@$(DEVSTACK) pulsar_devstack.machine

provision: machine setup ## Fetch and build the servers (once; then it takes no time)
	@$(BIN)/pulsar-migrate dev provision

demo: ready-for-demo ## Move a live cluster from ZooKeeper to Oxia, under traffic, and verify it
	@$(BIN)/python -m demos metadata-store

demo-%: ready-for-demo ## Another migration: make demo-bookie-cluster
	@$(BIN)/python -m demos $*

# The empty recipe keeps make from looking for a demo of this name.
demo-bookie-switch: demo-bookie-cluster ;

# What a demo needs and no more: without the tools of development and what only tests start.
ready-for-demo: | $(BIN)/python
	@$(DEVSTACK) pulsar_devstack.prepare $(VENV)/.demo

demo-down: $(VENV)/.demo ## Stop what a demo left running
	@$(BIN)/python -m demos down

test: machine setup ## All checks and all tests, four or five jobs side by side (JOBS=1: one), each with its time
	@$(BIN)/python -m tests.tiers --jobs $(JOBS)

lint: setup ## ruff, prose, pyright, and which package may import which
	@$(BIN)/python -m tests.tiers checks

test-unit test-workflows test-integration: test-%: provision ## One tier
	@$(BIN)/python -m tests.tiers --jobs $(JOBS) $*

test-exhaustive: provision ## Integration, workflows and faults with what `make test` leaves out for time
	@$(BIN)/python -m tests.tiers --jobs $(JOBS) --exhaustive --keep-going integration workflows faults

test-faults: provision ## Fault rounds: make test-faults ROUNDS=50 SEED=7, or REPLAY=worker/verify.before/7
	@$(BIN)/python -m pytest tests/faults --rounds=$(ROUNDS) $(if $(SEED),--seed=$(SEED)) $(if $(REPLAY),--replay=$(REPLAY))

test-walks: provision ## Random walks of operators and failures through each migration: make test-walks EXAMPLES=500
	@EXAMPLES=$(EXAMPLES) $(BIN)/python -m pytest tests/workflows -k walk --hypothesis-profile=explore --timeout=0

test-releases: provision ## What Pulsar 4.2 and 4.0 support, on their servers, which are fetched once
	@$(BIN)/python -m tests.tiers --jobs $(JOBS) --exhaustive --keep-going releases

test-mutants: provision ## Lines that must not be missing: a test must notice each; make test-mutants ONLY='metadata-store/flag-*'
	@$(BIN)/python -m tests.mutants --jobs $(JOBS) --only '$(ONLY)'

test-lowest: setup ## Unit tests and replays with the oldest dependencies that the distributions accept
	@$(BIN)/python -m tests.environments lowest

test-pythons: setup ## Unit tests with each of Python 3.11, 3.12 and 3.13 that is installed
	@$(BIN)/python -m tests.environments pythons

test-image: provision ## Build the image in a sealed network, and run it as the manifest says (root on Debian; an engine is fetched)
	@$(BIN)/python -m tests.sealed $(BIN)/python -m pytest -q --capture=no tests/image

test-containers: provision ## Tests with servers in containers, on images that are made here: make test-containers TESTS=tests/integration/gateway
	@$(BIN)/python -m tests.sealed $(BIN)/python -m tests.sealed.server_images $(BIN)/python -m pytest -q --durations=12 $(TESTS)

test-chart: helm kubernetes pulsar-chart ## The Helm chart and the manifests on a real API server of Kubernetes, which checks each field (needs Go)
	@$(BIN)/python -m pytest -q tests/unit/deploy tests/kubernetes

histories: provision ## Record the saved histories again, after a deliberate change of a workflow
	@$(BIN)/python -m tests.histories.record

bench-%: provision ## A migration next to its peer: make bench-metadata, make bench-bookie
	@$(BIN)/python -m bench $*

promtool: $(VENV)/.ready ## Build promtool, which evaluates the alerts in unit tests (needs Go; once, some minutes)
	GOBIN=$(CACHE)/bin go install github.com/prometheus/prometheus/cmd/promtool@$(PROMTOOL)

helm: $(VENV)/.ready ## Build helm, which renders the chart in unit tests (needs Go; once, some minutes)
	GOBIN=$(CACHE)/bin go install helm.sh/helm/v3/cmd/helm@$(HELM)

# Their versions and sums are in go.mod and go.sum.
kubernetes: $(VENV)/.ready # The API server and its store, for tests; once, ten minutes.
	cd tests/kubernetes/servers && version=$$(go list -m -f '{{.Version}}' k8s.io/kubernetes) && \
		go build -ldflags "-s -w -X k8s.io/component-base/version.gitVersion=$$version" -o $(CACHE)/bin/kube-apiserver k8s.io/kubernetes/cmd/kube-apiserver
	cd tests/kubernetes/servers && go build -ldflags "-s -w" -o $(CACHE)/bin/etcd go.etcd.io/etcd/server/v3
	mkdir -p $(CACHE)/prometheus-operator
	cd tests/kubernetes/servers && folder=$$(go list -m -f '{{.Dir}}' github.com/prometheus-operator/prometheus-operator)/example/prometheus-operator-crd && \
		install -m 644 $$folder/monitoring.coreos.com_podmonitors.yaml $$folder/monitoring.coreos.com_prometheusrules.yaml $(CACHE)/prometheus-operator

# Its dependencies are for monitoring only. Without the repository the tests of its values are skipped.
pulsar-chart: helm # The Helm chart of Apache Pulsar, for tests of the values that docs/kubernetes.md names.
	@folder=$(CACHE)/apache-pulsar-chart-$(PULSAR_CHART); test -d $$folder || { \
		$(CACHE)/bin/helm pull pulsar --repo https://pulsar.apache.org/charts --version $(PULSAR_CHART) --untar --untardir $$folder || \
		{ rm -rf $$folder; echo "skipped: the chart cannot be fetched, so the values for it are not tested"; }; }

manifests: helm ## Write deploy/kubernetes from the Helm chart
	@$(BIN)/python -m deploy.manifests

lock: ## Resolve the dependencies again (needs uv)
	$(LOCK) --upgrade pyproject.toml --all-extras --group dev --output-file requirements-dev.lock
	$(LOCK) --upgrade pyproject.toml --all-extras --constraint requirements-dev.lock --output-file requirements.lock
	$(LOCK) --upgrade --group build --constraint requirements-dev.lock --output-file requirements-build.lock
	$(LOCK) --upgrade --group demo --constraint requirements-dev.lock --output-file requirements-demo.lock
	$(LOCK) --upgrade --group audit --output-file requirements-audit.lock
	$(LOCK) --upgrade --resolution lowest-direct pyproject.toml scalable_client/pyproject.toml --all-extras --group test --output-file requirements-lowest.lock

# The runtime by itself, since it is described as it is installed, with the licences that its packages name. Another
# environment's pip fills it: its own would be described too.
$(VENV)-runtime/.ready: requirements-build.lock requirements.lock | $(VENV)-audit/.ready
	rm -rf $(@D) && $(PYTHON) -m venv --without-pip $(@D)
	PIP_PYTHON=$(@D)/bin/python $(VENV)-audit/bin/pip install --quiet --disable-pip-version-check --no-compile --require-hashes -r requirements-build.lock
	PIP_PYTHON=$(@D)/bin/python DIST_EXTRA_CONFIG=$(CURDIR)/deploy/stored-wheels.cfg $(VENV)-audit/bin/pip install --quiet --disable-pip-version-check --no-compile --require-hashes --no-build-isolation -r requirements.lock
	PIP_PYTHON=$(@D)/bin/python $(VENV)-audit/bin/pip uninstall --quiet --yes grpcio-tools hatchling packaging pathspec pluggy setuptools trove-classifiers
	@touch $@

$(VENV)-audit/.ready: requirements-audit.lock
	rm -rf $(@D) && $(PYTHON) -m venv $(@D)
	$(@D)/bin/pip install --quiet --disable-pip-version-check --no-compile --require-hashes --no-build-isolation -r requirements-audit.lock
	@touch $@

sbom: $(VENV)-audit/.ready $(VENV)-runtime/.ready ## Write dist/sbom.cdx.json (CycloneDX) and dist/licenses.md of the packages that the product runs on
	@mkdir -p dist
	@$(VENV)-audit/bin/cyclonedx-py environment --output-reproducible --pyproject pyproject.toml --output-file dist/sbom.cdx.json $(VENV)-runtime
	@$(VENV)-audit/bin/pip-licenses --python $(VENV)-runtime/bin/python --format markdown --with-urls --output-file dist/licenses.md

audit: $(VENV)-audit/.ready ## Look up known vulnerabilities of all locked packages at osv.dev (needs the network)
	@$(VENV)-audit/bin/python -c 'import requests; requests.get("https://api.osv.dev", timeout=10)' 2>/dev/null || \
		{ echo "error: https://api.osv.dev cannot be reached, so nothing was checked. cure: run this where it can be" >&2; exit 1; }
	@code=0; for lock in $(AUDITED); do echo "$$lock:"; \
		$(VENV)-audit/bin/pip-audit --vulnerability-service osv --disable-pip --require-hashes -r $$lock || code=1; done; exit $$code

image: ## Build the container image, and list what is in it in dist/image.cdx.json; BASE=python@sha256:… takes that base
	@base='$(BASE)'; : $${base:=$(BASE_TAG)@$$(docker buildx imagetools inspect $(BASE_TAG) --format '{{.Manifest.Digest}}')}; \
	case $$base in *@sha256:?*) ;; *) echo "error: $$base has no digest. cure: make image BASE=$(BASE_TAG)@sha256:…" >&2; exit 1;; esac; \
	echo "base: $$base"; \
	docker build --file deploy/container/Dockerfile --build-arg BASE=$$base --build-arg PIP_INDEX_URL $(BUILD_FLAGS) --label org.opencontainers.image.base.name=$$base --tag $(IMAGE) .
	@mkdir -p dist
	@docker run --rm --interactive --network none --entrypoint python $(IMAGE) - < deploy/container/bill_of_materials.py > dist/image.cdx.json

release: setup sbom ## Build the release of the newest commit twice, try it in a fresh environment, and write dist/SHA256SUMS
	@rm -rf dist/*.whl dist/*.tar.gz $(VENV)-release
	@$(BIN)/python -m deploy.release dist
	@$(PYTHON) -m venv --without-pip $(VENV)-release
	@export PIP_PYTHON=$(VENV)-release/bin/python DIST_EXTRA_CONFIG=$(CURDIR)/deploy/stored-wheels.cfg; \
		$(PIP) --no-compile --require-hashes -r requirements-build.lock && \
		$(PIP) --no-compile --require-hashes --no-build-isolation -r requirements.lock && \
		$(PIP) --no-deps --no-index dist/*.whl && $(BIN)/pip check
	@$(VENV)-release/bin/pulsar-migrate --version
	@$(VENV)-release/bin/pulsar-migrate schema metadata-store > /dev/null

clean: ## Remove what was built here; the cache of servers stays
	rm -rf $(VENV) $(VENV)-* build dist bench/out .pytest_cache .ruff_cache .hypothesis
