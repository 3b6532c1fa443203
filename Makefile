# Two commands set everything up on a fresh machine: `make repro` and `make test`.
PYTHON ?= python3
VENV := .venv
PROFILE ?=
BIN := $(VENV)/bin

export DVC_NO_ANALYTICS = 1
export DO_NOT_TRACK = true
export MLFLOW_DISABLE_TELEMETRY = true
export TOKENIZERS_PARALLELISM = false

.PHONY: repro test audit clean

repro: $(VENV)/installed
ifeq ($(PROFILE),)
	$(BIN)/python -m stages.server -- $(BIN)/python -m stages.dvc repro
	$(BIN)/python -m stages register_models
	$(BIN)/python -m stages results_table
else
	$(BIN)/python -m flows.profile_run $(PROFILE)
endif

# Three processes: Prefect keeps log handlers and settings for as long as a process lives.
test: $(VENV)/installed-test
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/pyright --pythonpath $(BIN)/python
	$(BIN)/python -m pytest tests/efface tests/test_layout.py
	$(BIN)/python -m pytest tests/stages tests/test_end_to_end.py
	$(BIN)/python -m pytest tests/flows

$(VENV)/installed: pyproject.toml
	$(PYTHON) -c 'import sys; assert sys.version_info >= (3, 11), "efface needs Python 3.11 or newer: make PYTHON=python3.11"'
	test -d $(VENV) || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --editable .
	touch $@

$(VENV)/installed-test: $(VENV)/installed
	$(BIN)/python -m pip install --quiet --editable '.[test]'
	touch $@

# Known vulnerabilities of what is installed here; needs the network.
audit: $(VENV)/installed
	$(BIN)/python -m pip install --quiet 'pip-audit>=2.9,<3'
	$(BIN)/pip-audit --skip-editable

clean:
	rm -rf .scratch .state .pytest_cache .ruff_cache
