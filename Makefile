# The two commands that do everything on a fresh machine: `make demo` and `make test`.
# JOBS: how many tests run at once. Those of ALONE kill workers and restart brokers under load, and have the machine to
# themselves; what failed of them is tried once more, by name.
PYTHON ?= python3
JOBS ?= 2
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.PHONY: demo test lint coverage coverage-check bench fuzz chaos clean

$(READY): pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --upgrade pip
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	touch $(READY)

demo: $(READY)  ## a calculator on every wire, called in both directions
	$(BIN)/dragoman demo

PYTEST = $(BIN)/python $(if $(COVER),-m coverage run) -m pytest
ALONE = tests/brokers/test_amqp.py tests/brokers/test_every_wire_faults.py tests/chaos

test: $(READY)  ## every test; COVER=1 counts what they reach
	$(if $(COVER),$(BIN)/python -m coverage erase)
	$(PYTEST) -n $(JOBS) $(if $(ARGS),$(ARGS),$(ALONE:%=--ignore=%))
	$(if $(ARGS),,$(PYTEST) $(ALONE) || $(PYTEST) $(ALONE) --last-failed)

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

coverage: $(READY)  ## what the tests reach
	$(MAKE) test COVER=1
	$(MAKE) coverage-check

coverage-check: $(READY)  ## of the last `make test COVER=1`: all branches of jsonrpc/, 93 % of all
	$(BIN)/python -m coverage combine --quiet
	$(BIN)/python -m coverage report --fail-under=93
	$(BIN)/python -m coverage report --include='src/dragoman/jsonrpc/*' --fail-under=100

bench: $(READY)  ## ratios against peers and against the machine's limit
	$(BIN)/python -m bench

fuzz: $(READY)
	$(BIN)/python -m tests.fuzz $(ARGS)

chaos: $(READY)  ## long: 1,000 workers killed under load, each broker restarted 50 times; ARGS="kills rabbitmq --times 100"
	$(BIN)/python -m tests.chaos $(ARGS)

clean:
	rm -rf $(VENV) .mypy_cache .pytest_cache .ruff_cache .hypothesis .coverage*
