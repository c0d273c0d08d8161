# Everything runs in virtual environments that are created on first use. Needs Python 3.11 or newer, and make.
ifeq ($(OS),Windows_NT)
PYTHON ?= python
BINDIR := Scripts
else
PYTHON ?= python3
BINDIR := bin
endif

VENV := .venv
BIN := $(VENV)/$(BINDIR)
ALL := .venv-all
ALLBIN := $(ALL)/$(BINDIR)
PIP_OPTIONS := --quiet --disable-pip-version-check

# PyMC, nutpie and ArviZ need Python 3.12: their tests have an environment of their own, if the machine has that Python.
PPL := .venv-ppl
ifneq ($(filter test-all check,$(MAKECMDGOALS)),)
ifeq ($(origin NEWER),undefined)
NEWER := $(shell for python in $(PYTHON) python3.13 python3.12 $(HOME)/.pyenv/versions/3.1[23].*/bin/python; do \
	$$python -c "import sys; sys.exit(not (3, 12) <= sys.version_info < (3, 14))" 2>/dev/null && echo $$python && break; done)
endif
endif

# The wheel is tried with the first Python found of each version.
ifneq ($(filter wheel check,$(MAKECMDGOALS)),)
ifeq ($(origin PYTHONS),undefined)
PYTHONS := $(shell for minor in 11 12 13; do \
	for python in $(PYTHON) python3.$$minor $(HOME)/.pyenv/versions/3.$$minor.*/bin/python; do \
	$$python -c "import sys; sys.exit(sys.version_info[:2] != (3, $$minor))" 2>/dev/null && echo $$python && break; done; done)
endif
endif

# The functions for R are tested if the machine has R with rstan.
R_PACKAGES := r-base-core r-cran-rstan r-cran-brms r-cran-rstanarm r-cran-posterior g++ make
ifneq ($(filter test-r test-all check,$(MAKECMDGOALS)),)
HAS_R := $(shell Rscript -e 'library(posterior); suppressMessages(library(rstan))' >/dev/null 2>&1 && echo yes)
endif

PARALLEL := --numprocesses auto --maxprocesses 4 --dist worksteal
unexport PYTHONDONTWRITEBYTECODE # without bytecode, each test process compiles every test module: ten seconds

.PHONY: demo test test-busy coverage test-all test-r lint types doctest docs links pictures wheel dist check bench quality quality-quick readme fuzz fuzz-guided soak reproduce reproduce-check experiments beyond compare clean

demo: $(VENV)/demo ## sample a posterior, thin it while it runs, write a report
	$(BIN)/steinstream demo

COVERAGE := # options of pytest-cov
test: $(VENV)/test ## tests of the core and of the file formats; prints what was left out
	$(BIN)/python -m pytest $(PARALLEL) $(COVERAGE) --junitxml=$(VENV)/ran.xml
	@$(BIN)/python tests/ran.py "$$($(BIN)/python --version) in $(VENV)=$(VENV)/ran.xml"

test-busy: ## make test next to eight busy processes
	@pids=; trap 'kill $$pids 2>/dev/null' EXIT; trap 'exit 130' INT TERM; \
	for _ in 1 2 3 4 5 6 7 8; do $(PYTHON) -c "while True: pass" & pids="$$pids $$!"; done; $(MAKE) test

coverage: ## make test, with the coverage of the source: takes half as long again
	$(MAKE) test COVERAGE="--cov --cov-report=term:skip-covered"

test-all: $(VENV)/test $(ALL)/all-tools $(if $(NEWER),$(PPL)/ppl) ## what `make test` left out: PyTorch, JAX, PyMC, Dask, plots, browsers
	test -f $(VENV)/ran.xml || $(MAKE) test
	$(BIN)/python tests/ran.py --left-out $(VENV)/ran.xml > $(ALL)/left-out.txt
	$(ALLBIN)/python -m pytest $(PARALLEL) @$(ALL)/left-out.txt --junitxml=$(ALL)/ran.xml
ifneq ($(NEWER),)
	$(BIN)/python tests/ran.py --left-out $(ALL)/ran.xml > $(PPL)/left-out.txt
	$(PPL)/$(BINDIR)/python -m pytest $(PARALLEL) @$(PPL)/left-out.txt --junitxml=$(PPL)/ran.xml
endif
	$(if $(HAS_R),$(MAKE) test-r)
	@$(BIN)/python tests/ran.py "$$($(BIN)/python --version) in $(VENV)=$(VENV)/ran.xml" \
		$(if $(HAS_R),"R=$(VENV)/ran-r.xml") "$$($(ALLBIN)/python --version) in $(ALL)=$(ALL)/ran.xml" \
		$(if $(NEWER),"$$($(PPL)/$(BINDIR)/python --version) in $(PPL)=$(PPL)/ran.xml")
	@$(if $(NEWER),,echo "No Python 3.12 or 3.13 was found for $(PPL); name one: make test-all NEWER=/path/to/python3.12")

test-r: $(VENV)/test ## the functions for R, with rstan, brms and rstanarm: a few minutes
ifeq ($(HAS_R),yes)
	STEINSTREAM_TEST_R=1 $(BIN)/python -m pytest tests/integrations/test_r.py --junitxml=$(VENV)/ran-r.xml
else
	@echo "R with rstan and posterior was not found. Debian and Ubuntu: apt-get install --no-install-recommends $(R_PACKAGES)"
endif

lint: $(VENV)/lint ## style, import layers and cycles, docstrings, spelling and language
	$(BIN)/ruff check --output-format concise .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports
	$(BIN)/codespell
	$(BIN)/python -m pytest tests/test_language.py tests/test_structure.py tests/test_docstrings.py \
		tests/unit/thinner/test_config.py::test_no_other_module_lists_the_settings

types: $(VENV)/lint $(VENV)/docs ## strict types; the docs group contains Matplotlib
	$(BIN)/mypy

doctest: $(ALL)/all-tools ## the examples in the source, the README and the docs
	$(ALLBIN)/python -m pytest --doctest-modules src README.md docs --doctest-glob="*.md" \
		--ignore=docs/integrations --ignore=src/steinstream/integrations/pymc.py # tests/integrations has these

docs: $(VENV)/docs ## the site, in docs/_build/html; warnings are errors
	$(BIN)/python -m sphinx --fail-on-warning --keep-going --quiet -b html -c docs -d docs/_build/doctrees . docs/_build/html

links: $(VENV)/docs ## the external links of the site; needs the internet
	$(BIN)/python -m sphinx --keep-going --quiet -b linkcheck -c docs -d docs/_build/doctrees . docs/_build/links

pictures: $(VENV)/docs ## the pictures of the explanations, the animation, and the numbers in their captions
	$(BIN)/python docs/pictures.py
	$(BIN)/python -m experiments.animation -o docs/thinning.gif

wheel: $(VENV)/build ## build the wheel and try it in an empty environment of each Python found, outside this folder
	rm -rf dist .venv-wheel*
	$(BIN)/python -m build --quiet --wheel --outdir dist .
	set -e; for python in $(or $(strip $(PYTHONS)),$(PYTHON)); do \
		$$python --version; $$python -m venv --clear .venv-wheel; \
		.venv-wheel/$(BINDIR)/python -m pip $(PIP_OPTIONS) install dist/*.whl; \
		(cd / && $(CURDIR)/.venv-wheel/$(BINDIR)/python $(CURDIR)/tests/smoke.py); \
	done

dist: $(VENV)/build ## source distribution and wheel, for a release
	rm -rf dist
	$(BIN)/python -m build --outdir dist .

check: docs coverage test-all lint types wheel doctest ## all of the above

DATA ?= # a folder with the published chains and observations, if there is one
bench: $(VENV)/bench ## speed and memory against C and against peers, as ratios from one run
	$(BIN)/python benchmarks/run.py

MINUTES ?= # of make fuzz (10 by default) and make soak (60)
fuzz: $(ALL)/all-tools ## mutated files, options, signals, full disks, closed pipes: ten minutes; make fuzz MINUTES=60 ARGS="--seed 1"
	$(ALLBIN)/python -m fuzz $(if $(strip $(MINUTES)),--minutes $(MINUTES)) $(ARGS)

fuzz-guided: $(ALL)/fuzz ## the readers, guided by coverage (atheris): make fuzz-guided MINUTES=10
	$(ALLBIN)/python -m fuzz.guided $(if $(strip $(MINUTES)),--minutes $(MINUTES)) $(ARGS)

soak: $(ALL)/all-tools ## follow a growing file under random kills: one hour
	$(ALLBIN)/python -m fuzz.soak $(if $(strip $(MINUTES)),--minutes $(MINUTES)) $(ARGS)

quality: $(ALL)/quality ## errors of kept sets against stride and peers on 39 targets; continues an interrupted run
	$(ALLBIN)/python -m benchmarks.quality $(if $(strip $(DATA)),--data $(DATA))

quality-quick: $(ALL)/quality ## a small part of it, printed: two minutes
	$(ALLBIN)/python -m benchmarks.quality --quick

readme: $(VENV)/bench ## the README's pictures and numbers: two minutes
	$(BIN)/python benchmarks/readme.py

NAME ?= # of an experiment: python -m experiments --list
ARGS ?= # its options
reproduce: $(ALL)/all-tools ## one experiment of the paper: make reproduce NAME=adaptivity ARGS=--full
	$(ALLBIN)/python -m experiments $(if $(strip $(NAME)),$(NAME),--list) $(ARGS)

reproduce-check: $(ALL)/all-tools ## compare cheap experiments with the committed results, run the others quickly
	$(ALLBIN)/python -m experiments.check $(if $(strip $(DATA)),--data $(DATA))

experiments: $(ALL)/all-tools ## every experiment of the paper: two hours; with DATA also the networks, ten to thirty minutes of processor time each
	$(ALLBIN)/python -m experiments.run_all $(if $(strip $(DATA)),--data $(DATA))

BEYOND := $(addsuffix /run,coordinates hard-cap noisy-scores linear weights without-scores diagnosis) \
	weights/forward weights/surrogate networks/subspace
beyond: $(ALL)/all-tools ## measurements beyond the paper: two hours; make beyond DATA=FOLDER for the real posteriors
	for script in $(BEYOND); do $(ALLBIN)/python experiments/$$script.py || exit 1; done
	for name in passes distributed; do \
		$(ALLBIN)/python experiments/$$name/run.py $(if $(strip $(DATA)),--data $(DATA)) || exit 1; done
	$(ALLBIN)/python experiments/scales/run.py --measure
	$(ALLBIN)/python experiments/networks/predictions.py --measure

compare: $(ALL)/all-tools ## every method on real posteriors: make compare DATA=FOLDER
	$(ALLBIN)/python experiments/compare/run.py $(if $(strip $(DATA)),--data $(DATA))

$(VENV)/pip:
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip $(PIP_OPTIONS) install --upgrade "pip>=25.1"
	touch $@

$(VENV)/demo: pyproject.toml $(VENV)/pip
	$(BIN)/python -m pip $(PIP_OPTIONS) install --editable ".[plot]"
	touch $@

$(VENV)/%: pyproject.toml $(VENV)/pip
	$(BIN)/python -m pip $(PIP_OPTIONS) install --editable . --group $* --constraint tests/constraints.txt
	touch $@

$(ALL)/pip:
	$(PYTHON) -m venv $(ALL)
	$(ALLBIN)/python -m pip $(PIP_OPTIONS) install --upgrade "pip>=25.1"
	touch $@

$(ALL)/%: pyproject.toml $(ALL)/pip
	$(ALLBIN)/python -m pip $(PIP_OPTIONS) install --editable ".[all]" --group $* --constraint tests/constraints.txt
	touch $@

$(PPL)/ppl: pyproject.toml
	$(NEWER) -m venv $(PPL)
	$(PPL)/$(BINDIR)/python -m pip $(PIP_OPTIONS) install --upgrade "pip>=25.1"
	$(PPL)/$(BINDIR)/python -m pip $(PIP_OPTIONS) install --editable ".[all]" --group ppl
	touch $@

clean: ## remove everything that make created
	rm -rf $(VENV) $(ALL) $(PPL) $(VENV) .venv-wheel* dist docs/_build
