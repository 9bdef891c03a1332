# Two commands matter on a fresh machine: `make demo` and `make test`. Both set up .venv first.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.PHONY: demo test check bench docs clean

$(READY): pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --editable '.[dev]'
	touch $@

demo: $(READY)  ## the whole pipeline on built-in data
	$(BIN)/ntmp run sample_configs/quickstart.yaml --out work/quickstart

test: $(READY)  ## all tests, in two processes
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist loadfile

check: $(READY)  ## style and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: $(READY)  ## ratios against the bare limit; run it on an idle machine
	$(BIN)/python -m benchmarks

docs: $(READY)  ## write the command reference from --help
	$(BIN)/python docs/write_commands.py

clean:
	rm -rf $(VENV) work build *.egg-info
