# make demo   install into .venv and run the lending story
# make test   install and run the tests
# make test-all  the same, and those that need the heavy extras
# make check  lint, types, doctests and the smoke benchmark

PYTHON ?= python3
BIN := .venv/bin
PIP := $(BIN)/python -m pip install --disable-pip-version-check -c constraints.txt

.PHONY: install demo test test-all check lint types doctest smoke bench-speed clean

install: .venv/.installed-dev

demo: .venv/.installed
	$(BIN)/forestall demo

test: .venv/.installed-dev
	$(BIN)/python -m pytest -n 2 --dist loadgroup -m "not slow and not heavy"

# What "make test" leaves out; here nothing may be skipped for want of a package, and
# with REQUIRE=flows,browser not for want of a Chromium either.
REQUIRE ?= flows
test-all: test .venv/.installed-all
	FORESTALL_REQUIRE=$(REQUIRE) $(BIN)/python -m pytest -n 2 -m "heavy and not slow"

check: lint types doctest smoke

lint: .venv/.installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: .venv/.installed-dev
	$(BIN)/mypy

doctest: .venv/.installed-dev
	$(BIN)/python -m pytest -q --doctest-modules src/forestall

smoke: .venv/.installed-dev
	$(BIN)/forestall bench benchmarks/plans/smoke.toml --out .venv/smoke.csv --fresh

# Ratios of two measurements in one run; on a quiet machine, an hour or so. At the end
# the tables of docs/scale.md are made of them.
bench-speed: .venv/.installed-dev
	$(PIP) -e '.[peers]'
	for each in exact lowrank batch peer stream decisions_stream growth; do \
	  OPENBLAS_NUM_THREADS=1 $(BIN)/python benchmarks/speed/$$each.py || exit 1; done
	$(BIN)/python benchmarks/readme.py scale.md

clean:
	rm -rf .venv build dist forestall-demo .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

.venv/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "forestall needs Python 3.11 or newer; $(PYTHON) is $$($(PYTHON) --version 2>&1)."; \
	  echo "Name another one: make PYTHON=python3.12 $(MAKECMDGOALS)"; exit 1; }
	@echo "Making a virtual environment in .venv"
	$(PYTHON) -m venv .venv

.venv/.installed: .venv/bin/python pyproject.toml constraints.txt
	@echo "Installing forestall and what it needs (about a minute, once)"
	$(PIP) -e '.[plots]'
	@touch $@

.venv/.installed-dev: .venv/bin/python pyproject.toml constraints.txt
	@echo "Installing forestall with its extras and development tools (a minute or two, once)"
	$(PIP) -e '.[plots,convex,scale,serve,dev]'
	@touch .venv/.installed $@

.venv/.installed-all: .venv/.installed-dev
	@echo "Installing the heavy extras (a few minutes, once)"
	$(PIP) -e '.[plots,convex,scale,serve,flows,dev]'
	@touch .venv/.installed-dev $@
