# Two commands do everything: `make search` finds a network, `make test` checks the project.
# Both first set up what is missing: Debian/Ubuntu packages by apt, Python packages into .venv.
#
#   make search ARGS="--searcher random --set budget.trained=8"
#   make search PIP_ARGS="--extra-index-url https://download.pytorch.org/whl/cpu"    (torch without CUDA)

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
ARGS ?=
PIP_ARGS ?=
APT_PACKAGES := gcc-arm-none-eabi libnewlib-arm-none-eabi qemu-system-arm bubblewrap

.PHONY: search test test-slow lint bench check-vllm doctor setup tools clean help

search: setup  ## run the main job: digits on an STM32F405 (ARGS="..." for scripts/search.py)
	$(BIN)/python scripts/search.py $(ARGS)

test: setup lint  ## lint, types, all fast tests
	$(BIN)/python -m pytest

test-slow: setup  ## whole default searches against what the README promises: minutes
	$(BIN)/python -m pytest -m slow

lint: setup  ## ruff and mypy
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

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

clean:  ## remove the virtual environment and caches; runs/ stays
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache build *.egg-info

help:  ## this list
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14
