# One command for each intention. Everything runs in .venv, which the first call makes and later calls reuse.
# Another Python: make test PYTHON=python3.13   (3.11 or newer; throw .venv away first: make clean)
# One test after another: make test WORKERS=0   (each worker starts servers of its own)

PYTHON  ?= python3
WORKERS ?= 2
BIN     := .venv/bin
PIP     := $(BIN)/python -m pip --quiet --disable-pip-version-check --no-input

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help run test check bench bench-redis bench-postgres docs soak format clean

help: ## say what can be made
	@sed -n 's/^\([a-z-]*\):[^#]*## \(.*\)/  make \1\t\2/p' $(MAKEFILE_LIST)

run: .venv/.server ## start the decision server with the example policy; Ctrl-C stops it
	@$(BIN)/tidegate serve examples/policy.yaml

test: .venv/.dev ## run the whole suite
	@$(BIN)/python -m pytest --numprocesses=$(WORKERS) --dist=loadfile

check: .venv/.dev ## format, lint, types and the structure of the project
	@$(BIN)/python -m ruff format --check .
	@$(BIN)/python -m ruff check .
	@$(BIN)/python -m mypy
	@$(BIN)/python -m pytest --quiet tests/structure tests/typing

docs: .venv/.dev ## run every example in README.md and docs/, follow every link
	@$(BIN)/python -m pytest --quiet tests/structure/test_docs.py

bench: .venv/.bench ## measure, beside pinned competitors
	@$(BIN)/python -m benchmarks

bench-redis: .venv/.bench ## measure decisions over Valkey, which is started for it
	@$(BIN)/python -m benchmarks redis cluster redis-memory

bench-postgres: .venv/.bench ## measure decisions over PostgreSQL, which is started for it
	@$(BIN)/python -m benchmarks postgres postgres-memory

soak: .venv/.dev ## the suite with long property runs: minutes to hours
	@HYPOTHESIS_PROFILE=soak $(BIN)/python -m pytest --timeout=3600

format: .venv/.dev ## rewrite the code the way `make check` wants it
	@$(BIN)/python -m ruff format .
	@$(BIN)/python -m ruff check --fix .

clean: ## throw away .venv and the caches
	@rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis build

# Each stamp says that .venv holds what pyproject.toml asks for; a change of that file installs again.
# The extras include one another, so the larger install also makes the smaller one true.
.venv/.made:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
	  echo 'tidegate needs Python 3.11 or newer, and "$(PYTHON)" is not. Name one: make $(MAKECMDGOALS) PYTHON=python3.12' >&2; exit 1; }
	@echo 'Making .venv (once) ...'
	@$(PYTHON) -m venv --clear .venv
	@touch $@

.venv/.server: .venv/.made pyproject.toml
	@echo 'Installing tidegate and its server into .venv ...'
	@$(PIP) install --editable '.[server]'
	@touch $@

.venv/.dev: .venv/.made pyproject.toml
	@echo 'Installing tidegate, its tests and its checks into .venv ...'
	@$(PIP) install --editable '.[dev]'
	@touch .venv/.server $@

.venv/.bench: .venv/.made pyproject.toml
	@echo 'Installing tidegate and the libraries it is measured against into .venv ...'
	@$(PIP) install --editable '.[dev,bench]'
	@touch .venv/.server .venv/.dev $@
