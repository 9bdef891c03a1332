# Two commands matter on a fresh machine: `make demo` and `make test`. Both set up .venv first.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
# The package alone is enough to use it; what tests need is added when they are first asked for.
PACKAGE := $(VENV)/.package
DEV := $(VENV)/.dev
INSTALL := $(BIN)/pip install --quiet --constraint constraints.txt --editable
# `make test THREADS=8` computes with other threads, `make test-order SEED=1` repeats an order.
THREADS ?= 1
SEED := $(or $(SEED),$(shell date +%s))
# Many tests start processes of their own: with PYTHONDONTWRITEBYTECODE set, as in some containers, each of them would compile
# the package again.
PYTEST := PYTHONDONTWRITEBYTECODE= OMP_NUM_THREADS=$(THREADS) $(BIN)/python -m pytest

.PHONY: demo paper-smoke test test-slow test-random test-order check coverage torture mutants bench docs site release-check clean

$(PACKAGE): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(INSTALL) .
	touch $@

$(DEV): $(PACKAGE)
	$(INSTALL) '.[dev]'
	touch $@

demo: $(PACKAGE)  ## the whole pipeline on built-in data
	$(BIN)/ntmp run sample_configs/quickstart.yaml --out work/quickstart

paper-smoke: $(PACKAGE)  ## every table and figure of the paper, with one epoch on a few tuples
	OMP_NUM_THREADS=$(THREADS) $(BIN)/python -m benchmarks.paper_smoke

test: $(DEV)  ## all tests but the slow ones, in two processes
	$(PYTEST) -n 2 --dist loadfile -m "not slow"

test-slow: $(DEV)  ## a Ray cluster, trainings by torchrun, workers of sweeps, a browser, command blocks
	$(PYTEST) -m slow

test-random: $(DEV)  ## Hypothesis with new examples; `make test` repeats the same ones
	$(PYTEST) -n 2 -m "hypothesis and not slow" --hypothesis-profile=random

test-order: $(DEV)  ## the tests of `make test` in another order
	$(PYTEST) -n 2 --dist loadfile -m "not slow" --random-order-bucket=global --random-order-seed=$(SEED)

coverage: $(DEV)  ## share of the lines that `make test` runs, subprocesses included; it cannot write its file on a full disk
	$(PYTEST) -n 2 --dist loadfile -m "not slow" -k "not survives_a_full_disk" --cov --cov-report=term:skip-covered

check: $(DEV)  ## style and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

torture: $(DEV)  ## attacks on every reader and stage (TORTURE='--inputs 10000'), figures to docs/reliability.md
	$(BIN)/python tests/torture/torture.py $(TORTURE)
	$(BIN)/python docs/write_reliability.py

mutants: $(DEV)  ## changes to core modules that tests should notice (MUTANTS='--mutants 500'), figures to docs/reliability.md
	$(BIN)/python tests/torture/mutants.py $(MUTANTS)
	$(BIN)/python docs/write_reliability.py

bench: $(DEV)  ## ratios against the bare limit; run it on an idle machine
	$(BIN)/python -m benchmarks

docs: $(PACKAGE)  ## write the command reference from --help, tables from docs/results, the README's outputs from real runs
	$(BIN)/python docs/write_commands.py
	$(BIN)/python docs/write_api.py
	$(BIN)/python -m docs.write_reproduction
	$(BIN)/python -m docs.write_colour
	$(BIN)/python -m docs.write_promises
	$(BIN)/python -m docs.write_kinds_of_counts
	$(BIN)/python docs/write_readme.py

site: $(DEV)  ## the documentation as pages below site/, every link checked; open site/index.html
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet

release-check:  ## build the release, install its wheel in a fresh environment, run the quickstart there
	$(PYTHON) tests/release_check.py

clean:
	rm -rf $(VENV) work build site *.egg-info
