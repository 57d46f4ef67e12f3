# One command each: demo, test, check. All of them make their own environment first.
# PYTHON=/path/to/python picks the interpreter, VENV=folder the environment.

PYTHON ?= $(shell tools/find_python.sh 3.11 || tools/find_python.sh 3.12)
VENV ?= .venv
BIN := $(VENV)/bin
SMOKE_ROOMS := smoke native frame bytecode capture surface
VERSION = $(shell $(PYTHON) -c 'import sys; print("%d%d" % sys.version_info[:2])')
CONSTRAINTS = $(if $(filter 312,$(VERSION)),constraints-py312.txt,constraints.txt)
NATIVE := $(wildcard setup.py src/thruway/native/*.c src/thruway/native/*.h)
INSTALL = $(BIN)/python -m pip install --quiet --disable-pip-version-check -c $(CONSTRAINTS)
SAY_WHAT_IS_MISSING = @$(BIN)/thruway doctor | grep '!!' || true     # pip shows no word of a build that left the native core out

.PHONY: demo test check smoke settings clean

demo: $(VENV)/demo.stamp              ## the main job: eager beside compiled, in a table
	$(BIN)/thruway bench --rounds 7 --seconds 3

test: $(VENV)/test.stamp              ## every test
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest

check: $(VENV)/test.stamp             ## under a minute: style, types, layout, smoke
	$(BIN)/ruff check --output-format concise .
	$(BIN)/mypy
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q tests/layout tests/smoke

smoke: $(VENV)/smoke.stamp            ## the first thing to run on another Python or torch: smoke and capture
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q -m "not models and not gpu" $(wildcard $(SMOKE_ROOMS:%=tests/%))

settings: $(VENV)/test.stamp          ## writes docs/settings.md from core/settings.py
	$(BIN)/python tools/settings_page.py

$(BIN)/python:
	@test -n "$(PYTHON)" || { echo "thruway needs Python 3.11 or 3.12 and found neither; install one, or name it: make PYTHON=..."; exit 1; }
	$(PYTHON) -m venv $(VENV)

$(VENV)/demo.stamp: $(BIN)/python pyproject.toml $(CONSTRAINTS) $(NATIVE)
	$(INSTALL) -e '.[bench]'
	$(SAY_WHAT_IS_MISSING)
	@touch $@

$(VENV)/smoke.stamp: $(BIN)/python pyproject.toml $(CONSTRAINTS) $(NATIVE)
	$(INSTALL) -e '.[smoke]'
	$(SAY_WHAT_IS_MISSING)
	@touch $@

$(VENV)/test.stamp: $(VENV)/demo.stamp
	$(INSTALL) -e '.[test,check]'
	@touch $@

clean:
	rm -rf $(VENV) build *.egg-info src/*.egg-info .pytest_cache .ruff_cache .mypy_cache .hypothesis
