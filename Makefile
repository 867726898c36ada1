# Every target makes its own virtual environment from nothing, with the versions that
# requirements/lock.txt pins, and leaves a stamp so that it is made once.
# `make lock` is the only target that moves a version.

VENV ?= .venv
# The first interpreter that starts and is new enough: a shim can exist and still refuse to run.
PYTHON ?= $(shell for python in python3.11 python3.12 python3.13 python3.14 python3; do \
	$$python -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1 && echo $$python && break; done)

BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
INSTALLED_BENCH := $(VENV)/.installed-bench
INSTALLED_RELEASE := $(VENV)/.installed-release
LOCK := requirements/lock.txt
# Programs that fmdp is compared with, too heavy for every test run: an environment of their own.
PEERS := .venv-peers
PEERS_EXTRAS := storm,umb,dbn,agents,bench
PEERS_LOCK := requirements/peers.txt
INSTALLED_PEERS := $(PEERS)/.installed
PIP := $(BIN)/python -m pip --disable-pip-version-check -qq
# The build backend is installed first, pinned like everything else: pip's build isolation would
# fetch whatever backend is newest on the day.
INSTALL := $(PIP) install -c $(LOCK) --no-build-isolation

.PHONY: help install reproduce test test-all test-tenth mpi-check peers referee torture fingerprints docs docs-numbers gallery lint format bench release-check lock lock-peers clean
.DEFAULT_GOAL := help

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-13s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

install: $(INSTALLED) ## .venv with fmdp in it, editable

$(INSTALLED): pyproject.toml $(LOCK)
	@test -n "$(PYTHON)" || { echo "fmdp needs Python 3.11 or later; none found on PATH (set PYTHON=...)" >&2; exit 1; }
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(PIP) install -c $(LOCK) setuptools
	$(INSTALL) -e '.[dev,docs,plots,dask,mpi,mpich,gym,rddl,umb]'
	# pip compiles what it installs, but not what is used from where it lies.
	$(BIN)/python -m compileall -q src
	touch $@

$(INSTALLED_BENCH): $(INSTALLED)
	$(INSTALL) -e '.[dev,docs,plots,dask,mpi,mpich,gym,rddl,umb,bench]'
	touch $@

$(INSTALLED_RELEASE): $(INSTALLED)
	$(INSTALL) -e '.[dev,docs,plots,dask,mpi,mpich,gym,rddl,umb,release]'
	touch $@

reproduce: $(INSTALLED) ## the main job: the paper's figure and table, and ours beside them
	$(BIN)/fmdp reproduce

test: $(INSTALLED) ## the tests that take seconds
	$(BIN)/pytest -n auto -m "not slow" $(ARGS)

test-all: $(INSTALLED) ## all tests, the slow ones too, with fresh and many more generated models
	HYPOTHESIS_PROFILE=thorough $(BIN)/pytest -n auto $(ARGS)

test-tenth: $(INSTALLED) ## a tenth of the slow tests, another tenth after every commit
	$(BIN)/pytest -n auto -m slow --tenth $$(git rev-list --count HEAD) $(ARGS)

mpi-check: $(INSTALLED) ## plans over MPI ranks: all tests, a killed rank, scaling on one and two ranks
	$(BIN)/pytest -m "slow or not slow" tests/planning/test_distributed.py $(ARGS)
	$(BIN)/python -m benchmarks.bench_mpi

peers: $(INSTALLED_PEERS) ## the tests that need Storm, umbi, pyAgrum, Stable-Baselines3 or markovianbandit, in an environment of their own
	$(PEERS)/bin/pytest -m peers tests/interop tests/planning/coupled $(ARGS)

$(INSTALLED_PEERS): pyproject.toml $(PEERS_LOCK)
	test -x $(PEERS)/bin/python || $(PYTHON) -m venv $(PEERS)
	$(PEERS)/bin/python -m pip --disable-pip-version-check -qq install -c $(PEERS_LOCK) setuptools
	$(PEERS)/bin/python -m pip --disable-pip-version-check -qq install -c $(PEERS_LOCK) --no-build-isolation -e '.[dev,gym,rddl,$(PEERS_EXTRAS)]'
	touch $@

referee: $(INSTALLED) ## everything that fmdp prints about a thousand small models, against exact arithmetic
	PYTHONPATH=tests $(BIN)/python -m referee $(ARGS)

torture: $(INSTALLED) ## kills, signals, damaged files, full disks and hostile names, again and again: minutes
	PYTHONPATH=tests $(BIN)/python -m torture $(ARGS)

fingerprints: $(INSTALLED) ## note what short runs come to; refuses if results moved and their version did not
	OPENBLAS_CORETYPE=Haswell $(BIN)/python tests/experiments/fingerprints.py

docs: $(INSTALLED) ## the pages and the API reference as a site in build/docs; any warning is an error
	$(BIN)/python -m sphinx -q -E -W --keep-going -d build/doctrees docs build/docs

docs-numbers: $(INSTALLED) ## run what the pages print numbers of, store the numbers, write them into the pages
	$(BIN)/python -m benchmarks.docs_numbers $(ARGS)

gallery: $(INSTALLED) ## draw the pictures of the gallery, each by its example, and run its notebooks
	for example in $$(grep -l 'def main(picture' examples/*.py); do \
		$(BIN)/python $$example docs/figures/gallery-$$(basename $$example .py | tr _ -).png || exit 1; done
	$(BIN)/python docs/notebooks.py

lint: $(INSTALLED) ## style, format and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy --strict src

format: $(INSTALLED) ## put the source into the one format
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: $(INSTALLED_BENCH) ## time and memory against peers, all in one run
	$(BIN)/python -m benchmarks.bench_exact $(ARGS)

release-check: $(INSTALLED_RELEASE) ## wheel and sdist, installed and used under every Python that is here: minutes
	$(BIN)/repo-review .
	PYTHONPATH=tests $(BIN)/python -m release $(ARGS)

lock: ## resolve all dependencies afresh and pin them in requirements/lock.txt
	rm -rf build/lock
	$(PYTHON) -m venv build/lock
	build/lock/bin/python -m pip --disable-pip-version-check -qq install '.[gym,rddl,umb,dask,mpi,mpich,plots,frames,testing,bench,docs,dev,release]'
	build/lock/bin/python -m pip freeze --all --exclude pip --exclude fmdp > $(LOCK)
	rm -rf build/lock

lock-peers: ## pin what `make peers` installs; what lock.txt has too, and PyTorch, stay at their versions
	rm -rf build/lock-peers
	$(PYTHON) -m venv build/lock-peers
	# PyTorch moves by hand alone: a version without a build for the processor brings gigabytes for GPUs.
	# That build calls itself +cpu, which the pin leaves out, so that it holds for either.
	grep '^torch==' $(PEERS_LOCK) > build/lock-peers/torch.txt
	build/lock-peers/bin/python -m pip --disable-pip-version-check -qq install -c $(LOCK) -c build/lock-peers/torch.txt '.[dev,gym,rddl,$(PEERS_EXTRAS)]'
	build/lock-peers/bin/python -m pip freeze --all --exclude pip --exclude fmdp | sed 's/+cpu$$//' > $(PEERS_LOCK)
	rm -rf build/lock-peers

clean: ## remove the virtual environments and every cache
	rm -rf $(VENV) $(PEERS) build .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find src tests -name __pycache__ -type d -prune -exec rm -rf {} +
