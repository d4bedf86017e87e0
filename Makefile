# The two commands that do everything on a fresh machine: `make demo` and `make test`.
# JOBS: how many tests run at once.
PYTHON ?= python3
JOBS ?= 2
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.PHONY: demo test lint coverage coverage-check bench fuzz clean

$(READY): pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --upgrade pip
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	touch $(READY)

demo: $(READY)  ## a calculator on every wire, called in both directions
	$(BIN)/dragoman demo

test: $(READY)  ## every test; COVER=1 counts what they reach
	$(if $(COVER),$(BIN)/python -m coverage erase)
	$(BIN)/python $(if $(COVER),-m coverage run) -m pytest -n $(JOBS) $(ARGS)

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

coverage: $(READY)  ## what the tests reach
	$(MAKE) test COVER=1
	$(MAKE) coverage-check

coverage-check: $(READY)  ## of the last `make test COVER=1`: all branches of jsonrpc/, 90 % of the rest
	$(BIN)/python -m coverage combine --quiet
	$(BIN)/python -m coverage report --fail-under=90
	$(BIN)/python -m coverage report --include='src/dragoman/jsonrpc/*' --fail-under=100

bench: $(READY)  ## ratios against peers and against the machine's limit
	$(BIN)/python -m bench

fuzz: $(READY)
	$(BIN)/python -m tests.fuzz $(ARGS)

clean:
	rm -rf $(VENV) .mypy_cache .pytest_cache .ruff_cache .hypothesis .coverage*
