# Everything runs in .venv, which is made on first use. Needs Python 3.11 or newer, and make.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --quiet --disable-pip-version-check

# PyMC, nutpie and ArviZ need Python 3.12: their tests run in an environment of their own, if the machine has that Python.
APART := .venv-integrations
ifneq ($(filter test check,$(MAKECMDGOALS)),)
ifeq ($(origin NEWER),undefined)
NEWER := $(shell for python in $(PYTHON) python3.13 python3.12 $(HOME)/.pyenv/versions/3.1[23].*/bin/python; do \
	$$python -c "import sys; sys.exit(not (3, 12) <= sys.version_info < (3, 14))" 2>/dev/null && echo $$python && break; done)
endif
endif
APART_TESTS = tests/integrations $(wildcard tests/test_io_*tree*.py tests/test_io_*netcdf*.py tests/test_io_*zarr*.py)

SIDE_BY_SIDE := --numprocesses auto --maxprocesses 4 --dist worksteal

.PHONY: demo test lint types doctest docs pictures wheel check bench readme experiments beyond compare clean

demo: $(VENV)/demo ## sample a posterior, thin it live, look at what was kept
	$(BIN)/steinstream demo

test: $(VENV)/test $(if $(NEWER),$(APART)/integrations) ## the tests, and what was left out of them
	$(BIN)/python -m pytest $(SIDE_BY_SIDE) --junitxml=$(VENV)/ran.xml
ifneq ($(NEWER),)
	$(APART)/bin/python -m pytest $(SIDE_BY_SIDE) $(APART_TESTS) --junitxml=$(APART)/ran.xml
endif
	@$(BIN)/python tests/ran.py "$$($(BIN)/python --version) in $(VENV)=$(VENV)/ran.xml" \
		$(if $(NEWER),"$$($(APART)/bin/python --version) in $(APART)=$(APART)/ran.xml")
	@$(if $(NEWER),,echo "No Python 3.12 or 3.13 was found for $(APART); name one: make test NEWER=/path/to/python3.12")

lint: $(VENV)/lint ## style
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/lint ## strict types
	$(BIN)/mypy

doctest: $(VENV)/test ## the examples in the source, the README and the docs
	$(BIN)/python -m pytest --doctest-modules src README.md docs --doctest-glob="*.md" \
		--ignore=docs/integrations --ignore=src/steinstream/integrations/pymc.py # tests/integrations has these

docs: $(VENV)/docs ## the site, in docs/_build/html; warnings are errors
	$(BIN)/python -m sphinx --fail-on-warning --keep-going --quiet -b html -c docs -d docs/_build/doctrees . docs/_build/html

pictures: $(VENV)/docs ## the pictures of the explanations, and the numbers in their captions
	$(BIN)/python docs/pictures.py

wheel: $(VENV)/lint ## build the wheel and try it in an empty environment, outside this folder
	rm -rf dist .venv-wheel
	$(BIN)/python -m build --quiet --wheel --outdir dist .
	$(PYTHON) -m venv .venv-wheel
	.venv-wheel/bin/python -m pip --quiet --disable-pip-version-check install dist/*.whl
	cd / && $(CURDIR)/.venv-wheel/bin/python $(CURDIR)/tests/smoke.py

check: docs test lint types wheel doctest ## all of the above

bench: $(VENV)/bench ## speed and memory against C and against peers, as ratios from one run
	$(BIN)/python benchmarks/run.py

readme: $(VENV)/bench ## the README's pictures and numbers, made and put in: two minutes
	$(BIN)/python benchmarks/readme.py

DATA ?= # a folder with the published chains and observations, if there is one
experiments: $(VENV)/test ## every experiment of the paper at full scale: two hours
	$(BIN)/python experiments/run.py $(if $(strip $(DATA)),--data $(DATA))

beyond: $(VENV)/test ## what goes beyond the paper, measured: an hour; make beyond DATA=FOLDER for the real posteriors
	for name in coordinates hard-cap honest-ksd linear; do $(BIN)/python experiments/$$name/run.py || exit 1; done
	for name in anchor passes weights distributed; do \
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
	$(PIP) install --editable ".[all]" --group $* --constraint tests/constraints.txt
	touch $@

$(APART)/integrations: pyproject.toml
	$(NEWER) -m venv $(APART)
	$(APART)/bin/python -m pip --quiet --disable-pip-version-check install --upgrade "pip>=25.1"
	$(APART)/bin/python -m pip --quiet --disable-pip-version-check install --editable ".[all]" --group integrations
	touch $@

clean: ## start anew
	rm -rf $(VENV) $(APART) .venv-wheel dist docs/_build
