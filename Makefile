# `make up`: install into .venv and bring Letta Code's directory in (or a demo).
# `make test`: everything that has to hold, the real Letta Code included. One process a core, or
# one in all, to look closely: make test PYTEST_ARGUMENTS='-n 0 tests/space -k …'

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check -q

.PHONY: help up test lint bench clean

help:
	@echo "make up     install into $(VENV), then: lettaspace up"
	@echo "make test   linters, types and tests"
	@echo "make lint   linters and types only"
	@echo "make bench  measure; ratios are what counts"
	@echo "make clean  remove $(VENV) and what tools left behind"

# Again only when what is to be installed has changed.
$(VENV)/installed: pyproject.toml
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(PIP) install -e .
	@touch $@

$(VENV)/installed-dev: pyproject.toml
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(PIP) install -e '.[dev]'
	@touch $@ $(VENV)/installed

up: $(VENV)/installed
	@$(BIN)/lettaspace up

lint: $(VENV)/installed-dev
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy

test: lint
	$(BIN)/python -m pytest -n auto --dist loadgroup --no-loadscope-reorder $(PYTEST_ARGUMENTS)

bench: $(VENV)/installed-dev
	$(BIN)/python -m bench

clean:
	rm -rf $(VENV) .pytest_cache .ruff_cache .mypy_cache .hypothesis build dist
