# Everything runs from here, on a machine with Python 3.11 or later, pip and make.
#
#   make setup     an environment in .venv with the locked packages and the library itself
#   make demo      setup, then the guided tour of the library
#   make test      lint, types, doctests and the whole core test suite
#   make check     make test, then every suite that has an environment of its own (suites/NAME)
#   make test-NAME one of those: each installs suites/NAME/requirements.txt beside the locked packages
#   make site      the site, in build/site
#   make golden    write the golden certificates of tests/golden anew
#   make falsify   the long search for a run that leaks more than its certificate says
#   make verify-many   honest certificates of 10,000 random runs, every one of which has to verify
#   make forge     certificates altered field by field: only true claims may verify
#   make bench     timings of the accountant, of training and of sampling
#   make bench-utility   accuracy at equal privacy beside tuned peers (goes on where it stopped)
#   make bench-peers   environments for the libraries that we are measured beside
#   make scoreboard    measure us and the peers, and write docs/scoreboard.md (QUICK=1: only try it;
#                      ONLY=tightness,utility: those families alone)
#   make lock      resolve the dependencies again and rewrite locks/
#   make clean     delete the environments and everything that was built
#
# Choose another interpreter with, for instance, `make setup PYTHON=python3.13`.

PYTHON ?= python3
JOBS ?= auto

VENV := .venv
BIN := $(VENV)/bin
LOCKER := .venv-lock

RUN := $(VENV)/.installed-run
TEST := $(VENV)/.installed-test

# Locked packages first, each checked against its hash; then the library, which resolves nothing.
INSTALL_LOCK = $(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r
INSTALL_SELF = $(BIN)/python -m pip install --quiet --disable-pip-version-check \
	--no-deps --no-build-isolation --editable .

# What needs heavy packages, a browser or a cluster is tested apart from the core.
SUITES := $(patsubst suites/%/requirements.txt,%,$(wildcard suites/*/requirements.txt))

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help setup demo test check $(SUITES:%=test-%) site lint types suite golden falsify verify-many forge bench bench-utility bench-peers scoreboard lock clean

help:
	@sed -n 's/^# \{0,1\}//p' Makefile | sed '/^Choose/q'

setup: $(RUN)

demo: $(RUN)
	$(BIN)/python -m dplateau demo

test: lint types suite

check: test $(SUITES:%=test-%)

$(SUITES:%=test-%): test-%: .venv-%/.installed
	.venv-$*/bin/python -m pytest suites/$*

# The browser suite drives Debian's Chromium: it is installed where it is absent, else there is no test.
test-browser: | chromium
.PHONY: chromium
chromium:
	command -v chromium || { apt-get update -q && apt-get install -q -y --no-install-recommends chromium; }

.venv-%/.installed: suites/%/requirements.txt locks/run.txt pyproject.toml
	$(PYTHON) -m venv .venv-$*
	.venv-$*/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r locks/run.txt
	.venv-$*/bin/python -m pip install --quiet --disable-pip-version-check -r suites/$*/requirements.txt
	.venv-$*/bin/python -m pip install --quiet --disable-pip-version-check \
		--no-deps --no-build-isolation --editable .
	@touch $@

site: .venv-site/.installed
	NO_MKDOCS_2_WARNING=1 .venv-site/bin/python -m mkdocs build --strict

lint: $(TEST)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(TEST)
	$(BIN)/mypy

suite: $(TEST)
	$(BIN)/python -m pytest -n $(JOBS) --dist worksteal

golden: $(TEST)
	$(BIN)/python tools/golden.py

falsify: $(RUN)
	$(BIN)/python tools/falsify.py --settings 2400 --seed 1 --state .falsify/seed-1.jsonl

verify-many: $(RUN)
	$(BIN)/python tools/verify_many.py --runs 10000 --seed 1 --state .falsify/verify-1.jsonl

forge: $(TEST)
	$(BIN)/python tools/forge.py --each 3 --seed 1 --state .falsify/forge-1.jsonl

bench: $(RUN)
	$(BIN)/python benchmarks/accounting.py
	$(BIN)/python benchmarks/training.py
	$(BIN)/python benchmarks/sampling.py

bench-utility: $(RUN)
	$(BIN)/python benchmarks/utility.py

# The peers of the benchmarks, each in an environment of its own and none of them locked.
# One that cannot be installed is left out, and the benchmark says so.
PEERS := torch jax diffprivlib blackjax jax-privacy prv-accountant autodp riskcal
PEER_torch := torch==2.13.0 opacus==1.6.0
PEER_jax := jax
PEER_blackjax := blackjax
PEER_diffprivlib := diffprivlib==0.6.6 scikit-learn==1.6.1
PEER_jax-privacy := jax-privacy==2.0.0
PEER_prv-accountant := prv-accountant==0.2.0
PEER_autodp := autodp==0.2.3.1
PEER_riskcal := riskcal==1.5.1

bench-peers: $(PEERS:%=.venv-peers-%/bin/python)

.venv-peers-%/bin/python:
	$(PYTHON) -m venv .venv-peers-$*
	.venv-peers-$*/bin/python -m pip install --quiet --disable-pip-version-check $(PEER_$*) \
		|| rm -rf .venv-peers-$*

scoreboard: $(RUN) bench-peers
ifdef QUICK
	$(BIN)/python benchmarks/scoreboard.py --quick --results build/scoreboard $(if $(ONLY),--only $(ONLY))
else
	$(BIN)/python benchmarks/scoreboard.py $(if $(ONLY),--only $(ONLY))
	$(BIN)/python benchmarks/scoreboard_page.py
endif

# Some systems ship venv without its copy of pip; their own pip then fills the environment.
$(BIN)/python:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or later is needed")'
	$(PYTHON) -m venv $(VENV) || { \
		$(PYTHON) -m venv --clear --without-pip $(VENV) && \
		$(PYTHON) -m pip --python $(BIN)/python install --quiet pip; }

# Stamps: a changed lock or a changed pyproject.toml installs again, anything else does not.
$(RUN): locks/run.txt pyproject.toml | $(BIN)/python
	$(INSTALL_LOCK) locks/run.txt
	$(INSTALL_SELF)
	@touch $@

# The test lock contains the run lock, so one installation counts for both.
$(TEST): locks/test.txt pyproject.toml | $(BIN)/python
	$(INSTALL_LOCK) locks/test.txt
	$(INSTALL_SELF)
	@touch $(RUN) $@

# Local mirrors and wheel folders are left out on purpose, so that the hashes are those of the
# public registry; the oldest supported Python resolves, because newer ones take its pins too.
LOCK_ENV := env -u PIP_INDEX_URL -u PIP_EXTRA_INDEX_URL -u PIP_FIND_LINKS -u PIP_NO_INDEX \
	PIP_CONFIG_FILE=/dev/null
PIP_COMPILE = $(LOCK_ENV) $(LOCKER)/bin/python -m piptools compile --quiet --no-config --upgrade \
	--generate-hashes --allow-unsafe --strip-extras --no-header --no-emit-options --all-build-deps

lock:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info[:2] != (3, 11) and "lock with PYTHON=python3.11")'
	rm -rf $(LOCKER)
	$(PYTHON) -m venv $(LOCKER)
	$(LOCK_ENV) $(LOCKER)/bin/python -m pip install --quiet --disable-pip-version-check pip-tools
	$(PIP_COMPILE) --extra all --output-file locks/run.txt pyproject.toml
	$(PIP_COMPILE) --extra test --constraint locks/run.txt --output-file locks/test.txt pyproject.toml
	rm -rf $(LOCKER)

clean:
	rm -rf $(VENV) $(LOCKER) $(SUITES:%=.venv-%) $(PEERS:%=.venv-peers-%) build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis .falsify
	find src tests tools benchmarks -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true
