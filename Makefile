# Every target makes its own environment: a bare clone with Python 3.11+, make and git is enough.
# What is installed depends on the purpose: the demo needs PyTorch and little else, the tests need everything.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
PIP    := PIP_CONSTRAINT=constraints.txt $(BIN)/python -m pip install --quiet --disable-pip-version-check
JOBS   ?= 2
# The tests of a file in one process: what they share is made once. Whole commands, which take longest, come first.
# A process that dies ends the run with its name: handing its tests to another one can wait forever.
# The processes share the cores, so each computes on one thread unless a test says otherwise.
SIDE_BY_SIDE := -n $(JOBS) --dist loadfile --no-loadscope-reorder --max-worker-restart 0

.PHONY: install demo test check bench docs docs-pictures clean

install: $(VENV)/.dev

$(VENV)/.made:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "cdp needs Python 3.11 or newer; try: make $(MAKECMDGOALS) PYTHON=python3.11"; exit 2; }
	$(PYTHON) -m venv $(VENV)
	@touch $@

$(VENV)/.demo: $(VENV)/.made pyproject.toml constraints.txt
	$(PIP) --editable '.[demo]'
	@touch $@

$(VENV)/.dev: $(VENV)/.made pyproject.toml constraints.txt
	$(PIP) --editable '.[dev]'
	$(BIN)/cdp-lab compile --quiet
	@touch $@ $(VENV)/.demo

demo: $(VENV)/.demo
	$(BIN)/cdp demo --out demo

test: install
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest $(SIDE_BY_SIDE)

check: install
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest $(SIDE_BY_SIDE) -m "not slow"

bench: install
	$(BIN)/python -m benchmarks

docs: install
	$(PIP) --editable '.[docs]'
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	@echo "build/site/index.html"

docs-pictures: install
	$(BIN)/python docs/make_pictures.py
	PYTHONPATH=. $(BIN)/python docs/make_screenshots.py

clean:
	rm -rf $(VENV) demo build dist
