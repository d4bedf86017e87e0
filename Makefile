# `make` alone prints the targets. Two do everything on a fresh machine: `make demo` and `make test`.
# JOBS: how many tests run at once: one more than a small machine's cores, for many wait. Those of ALONE kill workers
# and restart brokers under load, and mostly wait: they run after the others, those of one broker one after the other,
# those of different brokers side by side, and with `make test-all` beside the other interpreters' tests. Nothing is
# tried twice: a loss that shows in one run of ten is a loss.
# Tests start hundreds of interpreters: each would compile dragoman anew where the environment forbids to keep bytecode.
unexport PYTHONDONTWRITEBYTECODE
PYTHON ?= python3
JOBS ?= 3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.PHONY: help demo test test-all test-random test-windows soak lint lint-style lint-types lint-symbols docs screens coverage \
	coverage-check bench fuzz chaos release clean

help:  ## these lines
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "make %-15s %s\n", $$1, $$2}' $(firstword $(MAKEFILE_LIST))

$(READY): pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --upgrade pip
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	touch $(READY)

demo: $(READY)  ## a calculator on every wire, called in both directions
	$(BIN)/dragoman demo

PYTEST = $(BIN)/python $(if $(COVER),-m coverage run) -m pytest
ALONE = tests/chaos tests/engines/amqp/test_wire.py tests/engines/test_every_broker_faults.py
RUN_ALONE = $(PYTEST) -n $(JOBS) --dist loadgroup --no-loadscope-reorder $(ALONE)
ON_OTHERS = env -u DRAGOMAN_SKIPPED $(BIN)/python -m tests.interpreters -n $(JOBS) --dist worksteal

test: export DRAGOMAN_SKIPPED = $(CURDIR)/$(VENV)/skipped
test: $(READY)  ## every test, and at the end what was skipped and why; COVER=1 counts what they reach
	$(if $(COVER),$(BIN)/python -m coverage erase)
	@rm -f $(DRAGOMAN_SKIPPED)
	@ended=0; alone=$(VENV)/alone; \
	$(PYTEST) -n $(JOBS) --dist worksteal $(if $(ARGS),$(ARGS),$(ALONE:%=--ignore=%)) || ended=1; \
	$(if $(BESIDE),$(RUN_ALONE) >$$alone 2>&1 & $(BESIDE) || ended=1; \
	wait $$! || ended=1; cat $$alone;,$(if $(ARGS),,$(RUN_ALONE) || ended=1;)) \
	$(BIN)/python -m tests.skips $(DRAGOMAN_SKIPPED); exit $$ended

test-all: BESIDE = $(ON_OTHERS)
test-all: test  ## the same, then jsonrpc, rpc, transports and mcp on each other interpreter that is found

test-random: $(READY)  ## every test but those of ALONE in one random order; SEED=N for that one again
	$(PYTEST) -n $(JOBS) --dist worksteal --random-order --random-order-seed=$(SEED) $(ALONE:%=--ignore=%)

SEED ?= $(shell date +%s)

WINDOWS ?= ../shared/windows.sh
test-windows: $(READY)  ## the tests on a CPython for Windows, where one can be had
	$(BIN)/python -m tests.on_windows $(WINDOWS) $(ARGS)

lint: lint-style lint-types lint-symbols  ## ruff, import-linter, mypy, and whether every checker reads the public types alike

lint-style: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports

lint-types: $(READY)
	$(BIN)/mypy
	$(BIN)/mypy --platform win32 --cache-dir .mypy_cache/win32 src

lint-symbols: $(READY)
	$(BIN)/python -m tests.typing.completeness

docs: $(READY)  ## the documentation site, into site/; a link that leads nowhere is an error
	$(BIN)/zensical build --strict --clean

screens: $(READY)  ## the screenshots of the documentation, of the running program; needs chromium and fonts for Chinese
	$(BIN)/python -m tests.screens $(ARGS)

coverage: $(READY)  ## what the tests reach
	$(MAKE) test COVER=1
	$(MAKE) coverage-check

coverage-check: $(READY)  ## of the last `make test COVER=1`: all branches of jsonrpc/, 93 % of all
	$(BIN)/python -m coverage combine --quiet
	$(BIN)/python -m coverage report --fail-under=93
	$(BIN)/python -m coverage report --include='src/dragoman/jsonrpc/*' --fail-under=100

bench: $(READY)  ## ratios against peers and against the machine's limit
	$(BIN)/python -m bench

fuzz: $(READY)  ## new inputs until it is stopped
	$(BIN)/python -m tests.fuzz $(ARGS)

soak: $(READY)  ## every kind of caller at once, every answer checked, nothing left behind; ARGS="--minutes 5"
	$(BIN)/python -m tests.soak $(ARGS)

chaos: $(READY)  ## long: workers, brokers, servers with tasks and of events killed under load; ARGS="tasks redis --times 100"
	$(BIN)/python -m tests.chaos $(ARGS)

release: $(READY)  ## sdist and wheel in dist/, built and checked without a network, and the changes of the version
	$(BIN)/python -m tests.release

clean:  ## removes what was made here, the environment too
	rm -rf $(VENV) dist site .cache .mypy_cache .pytest_cache .ruff_cache .hypothesis .coverage*
