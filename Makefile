# Needs only make and Python >= 3.11; everything else goes into .venv.
#
#   make demo                    a fleet shares one quota; ARGS="--replicas 6" changes it
#   make test                    all tests, with full branch coverage of the deciding core
#   make check                   linters, type checkers and the tests
#   make PYTHON=python3.12 …     choose the Python that .venv is made with

NEW_ENOUGH := import sys; sys.exit(sys.version_info < (3, 11))
# Each is run, not only looked up: a version manager's stub may be on PATH with nothing behind it.
PYTHON ?= $(shell for p in python3.13 python3.12 python3.11 python3 python; do \
	$$p -c '$(NEW_ENOUGH)' >/dev/null 2>&1 && { echo $$p; break; }; done)
BIN := .venv/bin
INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check

.PHONY: demo test lint check clean
.NOTPARALLEL: # one pip at a time in one environment
.DELETE_ON_ERROR:

demo: .venv/demo.stamp
	$(BIN)/quotaclient demo $(ARGS)

test: .venv/test.stamp
	$(BIN)/python -m pytest --cov=quotaclient._core --cov-branch --cov-fail-under=100 $(ARGS)

lint: .venv/dev.stamp
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/pyright --pythonpath $(BIN)/python

check: lint test

.venv/%.stamp: .venv/pyvenv.cfg pyproject.toml
	$(INSTALL) --editable '.[$*]'
	@touch $@

.venv/pyvenv.cfg:
	@python="$(PYTHON)"; "$${python:-false}" -c '$(NEW_ENOUGH)' || { echo >&2 \
	"quotaclient needs Python 3.11 or newer (tried: $${python:-every python on PATH}). Install one," \
	"or name it: make PYTHON=/usr/local/bin/python3.12 $(MAKECMDGOALS)"; exit 1; }
	@echo "Making .venv (the first time this takes a minute)"
	@"$(PYTHON)" -m venv --clear .venv || { rm -rf .venv; exit 1; }

clean:
	rm -rf .venv build dist .coverage .hypothesis .mypy_cache .pytest_cache .ruff_cache
	find quotaclient tests examples -name __pycache__ -type d -prune -exec rm -rf {} +
