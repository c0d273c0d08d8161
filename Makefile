# Everything runs in .venv, which is made on first use. Needs Python 3.11 or newer, and make.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --quiet --disable-pip-version-check

.PHONY: demo test lint types doctest wheel check bench experiments beyond compare clean

demo: $(VENV)/demo ## sample a posterior, thin it live, look at what was kept
	$(BIN)/steinstream demo

test: $(VENV)/test ## the tests
	$(BIN)/python -m pytest

lint: $(VENV)/lint ## style
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/lint ## strict types
	$(BIN)/mypy

doctest: $(VENV)/test ## the examples in the source, the README and the docs
	$(BIN)/python -m pytest --doctest-modules src README.md docs --doctest-glob="*.md"

wheel: $(VENV)/lint ## build the wheel and try it in an empty environment, outside this folder
	rm -rf dist .venv-wheel
	$(BIN)/python -m build --quiet --wheel --outdir dist .
	$(PYTHON) -m venv .venv-wheel
	.venv-wheel/bin/python -m pip --quiet --disable-pip-version-check install dist/*.whl
	cd / && $(CURDIR)/.venv-wheel/bin/python $(CURDIR)/tests/smoke.py

check: test lint types wheel doctest ## all of the above

bench: $(VENV)/bench ## speed and memory against C and against peers, as ratios from one run
	$(BIN)/python benchmarks/run.py

DATA ?= # a folder with the published chains and observations, if there is one
experiments: $(VENV)/test ## every experiment of the paper at full scale: two hours
	$(BIN)/python experiments/run.py $(if $(strip $(DATA)),--data $(DATA))

beyond: $(VENV)/test ## what goes beyond the paper, measured: an hour; make beyond DATA=FOLDER for the real posteriors
	for name in coordinates hard-cap honest-ksd linear; do $(BIN)/python experiments/$$name/run.py || exit 1; done
	for name in anchor passes weights; do \
		$(BIN)/python experiments/$$name/run.py $(if $(strip $(DATA)),--data $(DATA)) || exit 1; done
	$(BIN)/python experiments/diagnosis/run.py

compare: $(VENV)/test ## every method on real posteriors: make compare DATA=FOLDER
	$(BIN)/python experiments/compare/run.py $(if $(strip $(DATA)),--data $(DATA))

$(VENV)/pip:
	$(PYTHON) -m venv $(VENV)
	$(PIP) install --upgrade "pip>=25.1"
	touch $@

$(VENV)/demo: pyproject.toml $(VENV)/pip
	$(PIP) install --editable ".[plot]"
	touch $@

$(VENV)/%: pyproject.toml $(VENV)/pip
	$(PIP) install --editable ".[all]" --group $*
	touch $@

clean: ## start anew
	rm -rf $(VENV) .venv-wheel dist
