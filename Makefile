# Two commands set everything up on a fresh machine: `make repro` and `make test`.
PYTHON ?= python3
VENV := .venv
PROFILE ?=
BIN := $(VENV)/bin

export DVC_NO_ANALYTICS = 1
export DO_NOT_TRACK = true
export MLFLOW_DISABLE_TELEMETRY = true
export TOKENIZERS_PARALLELISM = false

.PHONY: repro test check clean

repro: $(VENV)/installed
ifeq ($(PROFILE),)
	$(BIN)/python -m stages.server -- $(BIN)/dvc repro
	$(BIN)/python -m stages register_models
	$(BIN)/python -m stages results_table
else
	$(BIN)/python -m flows.profile_run $(PROFILE)
endif

test: $(VENV)/installed-test
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/pyright --pythonpath $(BIN)/python
	$(BIN)/python -m pytest

$(VENV)/installed: pyproject.toml
	$(PYTHON) -c 'import sys; assert sys.version_info >= (3, 11), "efface needs Python 3.11 or newer: make PYTHON=python3.11"'
	test -d $(VENV) || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --editable .
	touch $@

$(VENV)/installed-test: $(VENV)/installed
	$(BIN)/python -m pip install --quiet --editable '.[test]'
	touch $@

clean:
	rm -rf .scratch .state .pytest_cache .ruff_cache
