# Two commands: `make demo` and `make test`. Both set up .venv first; only Python and make are needed.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
SHARED_DATA := $(abspath ../shared/data)

ifneq ($(wildcard $(SHARED_DATA)),)
export PHGCN_DATA ?= $(SHARED_DATA)
endif

# Threads that wait by spinning are slow beside other programs.
export OMP_WAIT_POLICY ?= passive

# uv leaves it to the first import to compile a module, which takes seconds if it is not kept.
unexport PYTHONDONTWRITEBYTECODE

ifdef PIP_FIND_LINKS
export UV_FIND_LINKS ?= $(PIP_FIND_LINKS)
endif

.PHONY: demo docs test pytest test-slow test-all test-oldest test-newest lint bench tables fit figures gallery surface clean

demo: $(VENV)/.ready-demo
	@echo "1. The lattice: attention of every point to every other"
	@$(BIN)/python examples/many_points.py
	@echo "2. The paper's first experiment: which of two motifs is frequent in a graph? Only the whole graph tells."
	@$(BIN)/phgcn reproduce motif --quick --out demo
	@echo "What you see: local networks guess (50 %), PH-GCN, which attends to all nodes, learns it; curves in demo/motif.png."
	@echo "3. Open demo/explore.html: pick a node, and see which nodes far away in its graph it attends to."

docs: $(VENV)/.ready-docs
	$(BIN)/python -m sphinx --fail-on-warning --keep-going --quiet docs docs/_build
	@echo open docs/_build/index.html

test: lint pytest

pytest: $(VENV)/.ready-test
	$(BIN)/python -m pytest --numprocesses 2 --dist worksteal

test-all: $(VENV)/.ready-versions
	$(BIN)/nox
	$(BIN)/python benchmarks/documents.py versions

test-oldest test-newest: test-%: $(VENV)/.ready-versions
	$(BIN)/nox -s 'quick($*)'

test-slow: $(VENV)/.ready-test
	$(BIN)/python -m pytest -m slow

lint: $(VENV)/.ready-test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: $(VENV)/.ready-bench
	$(BIN)/python benchmarks/accuracy.py
	$(BIN)/python benchmarks/lattice.py
	$(BIN)/python benchmarks/stages.py
	$(BIN)/python benchmarks/crossing.py
	$(BIN)/python benchmarks/documents.py

tables: $(VENV)/.ready-test
	$(BIN)/python benchmarks/documents.py

fit: $(VENV)/.ready-test
	$(BIN)/python -m phgcn.lattice.fit

figures: $(VENV)/.ready-test
	$(BIN)/python docs/figures/draw_lattice.py
	$(BIN)/python docs/figures/draw_layer.py
	$(BIN)/python docs/figures/draw_architecture.py

gallery: $(VENV)/.ready-test
	$(BIN)/python docs/figures/draw_gallery.py

surface: $(VENV)/.ready-test
	$(BIN)/python docs/public_surface.py

# uv takes a fifth of pip's time; where it cannot be had, pip installs.
PIP := $(BIN)/python -m pip install --quiet
PACKAGE = --constraint constraints.txt --editable '.[$*]'
$(VENV)/.ready-%: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	{ $(PIP) uv && $(BIN)/uv pip install --quiet --python $(BIN)/python $(PACKAGE); } || $(PIP) $(PACKAGE)
	touch $@

clean:
	rm -rf $(VENV) .nox demo build dist .pytest_cache .mypy_cache .ruff_cache
