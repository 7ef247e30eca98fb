# Every target sets up what it needs by itself, in .venv, with exact versions. `make help` lists them.

SHELL := bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
export NO_MKDOCS_2_WARNING := 1  # a banner about other software

VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.PHONY: help demo demo-metaworld test tests test-all lint bench docs docs-serve dist clean

help: ## show this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /  make \1\t/' | expand -t 18

demo: $(READY) ## learn toy/reach from preferences, then draw the curve and film the agent
	@scripts/gl
	@$(BIN)/python scripts/demo.py

demo-metaworld: $(READY) ## a robot arm learns to close a door from preferences, on two cores
	@scripts/gl
	@$(BIN)/python scripts/demo.py metaworld

tests: test

test: $(READY) ## the tests that take minutes
	@scripts/gl
	@scripts/browser
	$(BIN)/python -m pytest -n 2 --dist worksteal -m "not slow"

test-all: $(READY) ## all tests, also those that learn, and the campaigns of faults
	@scripts/gl
	@scripts/browser
	$(BIN)/python -m pytest -n 2 --dist worksteal
	$(BIN)/python benchmarks/faults.py
	$(BIN)/python benchmarks/label_faults.py --trainer real

lint: $(READY) ## style and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright

bench: $(READY) ## how fast this machine plans, learns, trains and starts; a few minutes
	$(BIN)/ubp2 bench all

docs: $(READY) ## the documentation site, in site/; a broken link is an error
	$(BIN)/mkdocs build --strict  # not --quiet, with which warnings are not counted either
	@echo "open site/index.html, or look at it with: make docs-serve"

docs-serve: $(READY) ## the documentation site on port 8000, made again at every change
	$(BIN)/mkdocs serve

dist: $(READY) ## wheel and source archive, in dist/ (docs/releasing.md)
	rm -rf dist
	$(BIN)/python -m build --no-isolation --outdir dist .

clean: ## remove the virtual environment and caches; runs and demos stay
	rm -rf $(VENV) .pytest_cache .ruff_cache build dist site
	find src tests -name __pycache__ -type d -prune -exec rm -rf {} +

# Made once, and again when the dependencies change, the checkout has moved or been copied, or the Python is another one.
ifneq ($(shell scripts/settled $(VENV) && echo yes || true),yes)
$(READY): again
endif

.PHONY: again
again:

$(READY): pyproject.toml constraints.txt
	@python=$$(scripts/python); \
	if ! scripts/settled $(VENV) || ! $(BIN)/python -m pip --version >/dev/null 2>&1; then \
	  echo "setting up $(VENV) with $$("$$python" -V)"; \
	  "$$python" -m venv --clear $(VENV); \
	fi
	@echo "installing ubp2 and what it needs (two gigabytes on disk, once)"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev,dmc,gym,ray]'
	@touch $@
