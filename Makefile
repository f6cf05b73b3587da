# Every target sets up what it needs; .venv is made with $(PYTHON).
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
TESTS :=
READY := $(VENV)/.ready

.PHONY: setup demo test test-fast retest check fmt lint types bench docs clean

setup: $(READY)

$(READY): pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(None if sys.version_info >= (3, 11) else "Python 3.11 or newer is needed: make PYTHON=/path/to/python3")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt "pip>=25.1"
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable . --group dev
	touch $(READY)

demo: setup
	$(BIN)/agentcompass run humaneval oracle

test: setup
	$(BIN)/python -m pytest -q -n 2 --dist loadgroup -m "$(TESTS)"

test-fast: setup
	$(BIN)/python -m pytest -q -m "not slow"

retest: setup
	$(BIN)/python -m pytest -q --last-failed --last-failed-no-failures none

check: setup
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/python -m pytest -q -n 2 --dist loadgroup

fmt: setup
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: setup
	$(BIN)/python benchmarks/all.py

docs: setup
	$(BIN)/python -m tests.docs.update

clean:
	rm -rf $(VENV) build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -prune -exec rm -rf {} +
