# Two commands do everything on a fresh machine with Python 3.11 or newer: `make run` and `make test`.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.ready
TESTS ?= tests
HASHES ?= yes
AUDIT ?=
# What takes minutes shows that it goes on.
PIP_ALOUD := $(BIN)/python -m pip install --disable-pip-version-check
PIP := $(PIP_ALOUD) --quiet

.PHONY: run test setup check static lock audit nightly bench image clean

run: setup  ## a chaos run on the embedded default, judged and reported
	@$(BIN)/tribunal run produce-consume $(ARGS)

test: static  ## everything CI runs: static checks, then all tests, fast ones first
	@tools/with_engine.sh $(BIN)/python -m pytest $(TESTS) -m "not nightly" -n 2 --durations 25 --durations-min 20

setup: $(STAMP)  ## makes .venv; does nothing when nothing changed

$(STAMP): requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "tribunal needs Python 3.11 or newer; '$(PYTHON)' is $$($(PYTHON) -V). Try: make PYTHON=python3.12 ..." >&2; exit 3; }
	@echo "setting up $(VENV) (once; pyspark alone is a 456 MB download)"
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@if [ "$(HASHES)" = no ]; then \
	  sed -e '/^ *--hash=/d' -e 's/ *\\$$//' requirements.lock >$(VENV)/versions.txt && $(PIP_ALOUD) -r $(VENV)/versions.txt; \
	else \
	  $(PIP_ALOUD) --require-hashes -r requirements.lock || \
	  { echo "set-up failed. Where hashes differ, the index has other files than those of requirements.lock: 'make HASHES=no setup' takes them by version alone." >&2; exit 3; }; \
	fi
	@$(PIP) --no-deps --no-build-isolation --editable .
	@touch $(STAMP)

static: setup  ## what a commit can afford
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check --quiet .
	@$(BIN)/lint-imports --no-cache
	@$(BIN)/mypy

check: test

lock:  ## pins what requirements.in asks for by version and hashes, without naming an index
	@$(BIN)/pip-compile --quiet --strip-extras --generate-hashes --allow-unsafe --no-header --no-emit-index-url --no-emit-trusted-host \
	  --no-emit-find-links --no-emit-options --output-file requirements.lock requirements.in
	@sed -i '1i # Made by `make lock` from requirements.in. Names no index: set-up works with any that has the same files. Each package by version and by the hashes of its files.' requirements.lock

audit: setup  ## asks a database of known weaknesses about the lock file, where one can be reached
	@$(BIN)/python tools/audit_lock.py $(AUDIT) || [ $$? -eq 3 ]

nightly: setup  ## the long lane: everything of `make test`, and the full matrices
	@tools/with_engine.sh $(BIN)/python -m pytest tests

image: setup  ## a container image of replog by itself: make image TAG=replog:latest
	@tools/with_engine.sh $(BIN)/python tools/build_image.py $(TAG)

clean:  ## forget recordings and caches, keep the environment
	@rm -rf runs .pytest_cache .mypy_cache .ruff_cache .hypothesis spark-warehouse
