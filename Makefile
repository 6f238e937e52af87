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

.PHONY: demo docs test pytest test-slow test-all test-oldest test-newest lint bench gpu tables figures gallery surface clean

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
	$(BIN)/python lab/bench/documents.py versions

test-oldest test-newest: test-%: $(VENV)/.ready-versions
	$(BIN)/nox -s 'quick($*)'

test-slow: $(VENV)/.ready-test
	$(BIN)/python -m pytest -m slow

lint: $(VENV)/.ready-test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: $(VENV)/.ready-bench
	$(BIN)/python lab/bench accuracy
	$(BIN)/python lab/bench lattice
	$(BIN)/python lab/bench crossing
	$(BIN)/python lab/bench/documents.py

# With a Python that has a CUDA build of torch, here or elsewhere: nothing is installed.
gpu:
	PYTHONPATH=src:lab/src $(PYTHON) lab/bench/gpu_run.py $(GPU_OPTIONS)

tables: $(VENV)/.ready-test
	$(BIN)/python lab/bench/documents.py

figures: $(VENV)/.ready-test
	$(BIN)/python docs/figures/draw_lattice.py
	$(BIN)/python docs/figures/draw_layer.py
	$(BIN)/python docs/figures/draw_on_off.py
	$(BIN)/python docs/figures/draw_kernel.py
	$(BIN)/python docs/figures/draw_choice.py
	$(BIN)/python docs/figures/draw_spread.py
	$(BIN)/python docs/figures/draw_cover.py
	$(BIN)/python docs/figures/draw_flats.py
	$(BIN)/python docs/figures/draw_architecture.py
	$(BIN)/python docs/figures/draw_explorer.py

gallery: $(VENV)/.ready-test
	$(BIN)/python docs/figures/draw_gallery.py

surface: $(VENV)/.ready-test
	$(BIN)/python docs/public_surface.py

# uv takes a fifth of pip's time; where it cannot be had, pip installs.
PIP := $(BIN)/python -m pip install --quiet
PACKAGES_demo := . ./lab
PACKAGES_test := .[test] ./lab[test]
PACKAGES_docs := .[docs] ./lab
PACKAGES_bench := . ./lab[bench]
PACKAGES_versions := .[versions] ./lab
PACKAGE = --constraint constraints.txt $(foreach package,$(PACKAGES_$*),--editable '$(package)')
$(VENV)/.ready-%: pyproject.toml lab/pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	{ $(PIP) uv && $(BIN)/uv pip install --quiet --python $(BIN)/python $(PACKAGE); } || $(PIP) $(PACKAGE)
	touch $@

clean:
	rm -rf $(VENV) .nox demo build dist .pytest_cache .mypy_cache .ruff_cache
