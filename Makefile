# `make` lists what there is. ARGS goes on: make test-jobs ARGS="-k resume", make demo ARGS="--epochs 5".

PYTHON ?= python3
AIRFLOW := .venv/airflow/bin
JOBS := .venv/jobs/bin
TOOLS := .venv/tools/bin
# The Airflow side sees the plugins and the contract; the jobs' side never sees the plugins.
AIRFLOW_ENV := PYTHONPATH=$(CURDIR)/jobs:$(CURDIR)/plugins AIRFLOW_HOME=$(CURDIR)/var/test/airflow
JOBS_ENV := PYTHONPATH=$(CURDIR)/jobs
TIERS := lint types test-dags test-plugins test-jobs test-e2e

.DEFAULT_GOAL := help
.PHONY: help setup setup-tools setup-airflow demo up down gc doctor archive test test-dags test-plugins \
	test-jobs test-e2e test-cluster test-faults test-stores test-ui compose-up compose-test compose-down lint \
	types format lock golden bench bench-peer clean clean-venv

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: ## Make the environments, or finish or renew them; TORCH_BACKEND=cuda for a GPU
	@$(PYTHON) scripts/setup.py

setup-airflow:
	@$(PYTHON) scripts/setup.py airflow

setup-tools:
	@$(PYTHON) scripts/setup.py tools

demo: setup ## See a model trained, judged, promoted and used, from nothing
	@$(AIRFLOW)/python scripts/demo.py $(ARGS)

up: setup ## Start Airflow and what it needs on this machine
	@$(PYTHON) scripts/local.py up

down: ## Stop what `make up` started
	@$(PYTHON) scripts/local.py down

gc: setup-airflow ## List what retention would remove; ARGS=--apply removes it
	@$(AIRFLOW)/python scripts/collect_garbage.py $(ARGS)

doctor: setup ## Look at all that a run needs; ARGS="--dag mnist_horovod", ARGS="--conn-id NAME"
	@$(AIRFLOW)/python scripts/doctor.py $(ARGS)

archive: setup ## Pack the jobs' environment for Spark's executors; ARGS="--add PACKAGE" adds to it
	@$(JOBS)/python scripts/archive.py $(ARGS)

test: setup ## Lint, types and every tier of tests; fails if any of them does
	@failed=0; summary=; \
	for tier in $(TIERS); do \
		echo "== $$tier"; began=$$(date +%s); \
		if $(MAKE) --no-print-directory $$tier; then result=ok; else result=FAILED; failed=1; fi; \
		summary="$$summary$$(printf '  %-14s %-8s %5d s' $$tier $$result $$(($$(date +%s) - began)))\n"; \
	done; \
	printf "\n$$summary"; exit $$failed

test-dags: setup-airflow ## Test the DAGs; needs the Airflow environment alone
	$(AIRFLOW_ENV) $(AIRFLOW)/python -m pytest tests/dags $(ARGS)

test-plugins: setup ## Test the operators, triggers and pages
	$(AIRFLOW_ENV) $(AIRFLOW)/python -m pytest tests/plugins $(ARGS)

test-jobs: setup ## Test the Spark jobs and their library
	$(JOBS_ENV) $(JOBS)/python -m pytest -n 2 --dist loadfile tests/jobs $(ARGS)

test-e2e: setup ## Test whole runs: Airflow, Spark and the registry together
	$(AIRFLOW_ENV) $(AIRFLOW)/python -m pytest tests/e2e $(ARGS)

test-cluster: setup ## Test on a Spark standalone cluster of real processes; not in `make test`
	$(AIRFLOW_ENV) $(AIRFLOW)/python -m pytest tests/cluster $(ARGS)

test-faults: setup ## Test with kill -9: drivers, executors, workers, masters, Airflow; not in `make test`
	$(JOBS_ENV) $(JOBS)/python -m pytest tests/faults $(ARGS)

compose-up: ## Build and start the small cluster of docker-compose.yaml
	@$(PYTHON) scripts/compose.py up

compose-test: setup-airflow ## Run the pipelines on it, through Airflow's REST API
	$(AIRFLOW_ENV) $(AIRFLOW)/python -m pytest tests/compose $(ARGS)

compose-down: ## Stop it; the data stays, unless ARGS=--volumes
	@$(PYTHON) scripts/compose.py down $(ARGS)

test-stores: setup ## Test estimators' stores on servers of S3 and Azure; needs npm; not in `make test`
	$(JOBS)/python tests/stores/environment.py
	$(JOBS_ENV) .venv/stores/bin/python -m pytest tests/stores $(ARGS)

test-ui: setup ## Test the pages in Chromium on a real Airflow; not in `make test`
	@$(PYTHON) scripts/setup.py ui
	PYTHONPATH=$(CURDIR):$(CURDIR)/jobs:$(CURDIR)/plugins:$(CURDIR)/scripts .venv/ui/bin/python -m pytest tests/ui $(ARGS)

lint: setup-tools ## Check style
	$(TOOLS)/ruff check .
	$(TOOLS)/ruff format --check .

types: setup ## Check types, each side against its own environment
	MYPYPATH=jobs:scripts:tests/jobs:bench $(TOOLS)/mypy --python-executable=$(JOBS)/python \
		--cache-dir=.cache/mypy/jobs --exclude '(bench|faults)/dags' jobs tests/jobs tests/faults tests/stores bench
	MYPYPATH=jobs:plugins:scripts $(TOOLS)/mypy --python-executable=$(AIRFLOW)/python \
		--cache-dir=.cache/mypy/airflow dags plugins scripts tests/dags tests/plugins tests/e2e \
		tests/cluster tests/compose tests/ui tests/faults/dags bench/dags docker

format: setup-tools ## Put code and imports in order
	$(TOOLS)/ruff check --fix .
	$(TOOLS)/ruff format .

lock: setup-tools ## Renew the locks from the .in files; UPGRADE=1 takes newer versions
	@$(PYTHON) scripts/lock.py $(if $(UPGRADE),--upgrade)

golden: setup-airflow ## Renew tests/golden from what the DAGs submit now
	$(AIRFLOW_ENV) RENEW_GOLDEN=1 $(AIRFLOW)/python -m pytest tests/dags/test_golden.py $(ARGS)

bench-peer: setup ## Make the environment of the TorchEstimator that bench/launch.py measures too
	$(PYTHON) bench/support/estimator_env.py

bench: setup ## Run the benchmarks, or one: BENCH=name ARGS=...
	@set -e; for bench in bench/$(or $(BENCH),*).py; do \
		echo "== $$bench"; $(JOBS_ENV) $(JOBS)/python $$bench $(ARGS); \
	done

clean: down ## Remove what runs and tests left behind; environments stay
	rm -rf var .cache/mypy .cache/pytest .cache/ruff .hypothesis
	find . -name __pycache__ -not -path './.venv/*' -prune -exec rm -rf {} +

clean-venv: ## Remove the environments; the built Horovod wheel stays
	rm -rf .venv
