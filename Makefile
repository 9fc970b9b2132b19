# The verbs of Takt. Every one works from a bare clone with Python 3.11 or later and make; CI calls
# the same ones. The environment lies in .venv; a stamp in it makes repeated calls instant.

VENV ?= .venv
BIN := $(VENV)/bin
CONSTRAINTS := constraints/ci.txt
DEMO_EXTRAS := server,plot
MANIFEST := pyproject.toml $(CONSTRAINTS)
ARGS ?=
# Processes that run tests; 0: pytest's own, for a debugger, and where ARGS ask for a part. A file's
# tests stay together, in order.
JOBS ?= $(if $(ARGS),0,2)
IN_PARALLEL := -n $(JOBS) --dist loadfile --no-loadscope-reorder

# Newest first. A name on the PATH may be a wrapper around nothing, so each is tried.
CANDIDATES := python3.13 python3.12 python3.11 python3
IS_FIT := import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))
PYTHON ?= $(shell for name in $(CANDIDATES); do \
	"$$name" -c '$(IS_FIT)' 2>/dev/null && { echo "$$name"; break; }; done)

# $(call install,EXTRAS): this checkout, editable, at the versions CI uses.
define install
	@if command -v uv >/dev/null 2>&1; then \
		uv pip install --quiet --python $(BIN)/python -c $(CONSTRAINTS) -e '.[$(1)]'; \
	else \
		$(BIN)/python -m pip install -qq --disable-pip-version-check \
			-c $(CONSTRAINTS) -e '.[$(1)]'; \
	fi
endef

.DEFAULT_GOAL := help
.PHONY: help setup torch format check check-lint check-types check-old-python check-layers \
	check-tests test fuzz interop install-test bench demo clean

help: ## list the verbs
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' Makefile

setup: $(VENV)/.dev-ready ## make .venv with everything `check` and `test` need

torch: $(VENV)/.torch-ready ## add torch, without which tests of checkpoint networks are skipped

format: $(VENV)/.dev-ready ## rewrite the code in our format
	$(BIN)/ruff check --fix-only --quiet .
	$(BIN)/ruff format .

# Two at once, the longest first; every one runs, and each prints as a whole.
check: $(VENV)/.dev-ready ## lint, format, types, layers
	@$(MAKE) --no-print-directory --jobs=2 --output-sync=target --keep-going \
		check-types check-old-python check-lint check-layers

check-lint: $(VENV)/.dev-ready
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

check-types: $(VENV)/.dev-ready
	$(BIN)/pyright --pythonpath $(BIN)/python src

# What a robot computer with Python 3.10 may import. It is less strict: the installed NumPy has left
# 3.10 behind, and some of its types are unknown there.
check-old-python: $(VENV)/.dev-ready
	$(BIN)/pyright --pythonpath $(BIN)/python -p constraints/pyright-3.10.json

check-tests: $(VENV)/.dev-ready ## types of tests and benchmarks, which take as long as all of `check`
	$(BIN)/pyright --pythonpath $(BIN)/python tests benchmarks

check-layers: $(VENV)/.dev-ready
	$(BIN)/lint-imports --no-logo --no-cache

test: $(VENV)/.dev-ready ## all tests that need no GPU, two files at once (JOBS); ARGS go to pytest
	$(BIN)/python -m pytest -m "not gpu" $(IN_PARALLEL) $(ARGS)

fuzz: $(VENV)/.dev-ready ## damaged messages for every decoder; ARGS: targets, --seconds, --seed, --out
	$(BIN)/python -m tests.fuzz $(ARGS)

interop: $(VENV)/.dev-ready .interop/.ready ## LeRobot's own client against `takt serve`; ARGS go to pytest
	TAKT_INTEROP_PYTHON="$(abspath .interop/bin/python)" \
		$(BIN)/python -m pytest tests/interop -o faulthandler_timeout=0 $(ARGS)

install-test: $(VENV)/.dev-ready ## the wheel in fresh environments, Python 3.10 to 3.13; needs an index
	$(BIN)/python -m tests.install.install_page

bench: $(VENV)/.dev-ready ## every benchmark in its short form
	PATH="$(abspath $(BIN)):$$PATH" sh benchmarks/run.sh --quick $(ARGS)

demo: $(VENV)/.demo-ready ## a small fleet served on this computer, no GPU; ARGS go to `takt demo`
	$(BIN)/takt demo $(ARGS)

clean: ## remove .venv and what builds and checks left behind
	rm -rf $(VENV) build dist .hypothesis .import_linter_cache .pytest_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# The pip that comes with Python 3.11 takes three times as long to read an index as later ones.
$(BIN)/python:
	@echo "making the environment $(VENV) ..."
	@if command -v uv >/dev/null 2>&1; then \
		uv venv --quiet --python '>=3.11' $(VENV); \
	elif [ -n "$(PYTHON)" ]; then \
		"$(PYTHON)" -m venv $(VENV) && \
		$(BIN)/python -m pip install -qq --disable-pip-version-check -c $(CONSTRAINTS) -U pip; \
	else \
		echo "takt: needs Python 3.11 or later with its venv module; tried $(CANDIDATES)." \
			"Install one (Debian and Ubuntu: python3 and python3-venv) or uv, or name it:" \
			"make PYTHON=/path/to/python" >&2; \
		exit 1; \
	fi

$(VENV)/.dev-ready: $(MANIFEST) | $(BIN)/python
	@echo "installing Takt with its development tools into $(VENV) ..."
	$(call install,dev)
	@touch $@

# Which build of torch comes (CPU, CUDA) is the host's affair: pip's own settings choose it.
$(VENV)/.torch-ready: $(VENV)/.dev-ready
	@echo "installing torch into $(VENV) ..."
	@if command -v uv >/dev/null 2>&1; then \
		uv pip install --quiet --python $(BIN)/python -c $(CONSTRAINTS) torch; \
	else \
		$(BIN)/python -m pip install -qq --disable-pip-version-check -c $(CONSTRAINTS) torch; \
	fi
	@touch $@

# What LeRobot's client imports, in an environment of its own, kept between runs. LeRobot comes without
# its dependencies: those of training and of other robots are large and not needed.
.interop/.ready: tests/interop/requirements.txt | $(BIN)/python
	@echo "installing LeRobot's client into .interop (with torch: several gigabytes) ..."
	@$(BIN)/python -m venv --clear .interop
	@.interop/bin/python -m pip install -qq --disable-pip-version-check \
		-r tests/interop/requirements.txt
	@.interop/bin/python -m pip install -qq --disable-pip-version-check --no-deps lerobot==0.4.4
	@touch $@

# The development environment holds everything the demo needs, so a fresh one is good enough.
$(VENV)/.demo-ready: $(MANIFEST) | $(BIN)/python
	@if [ -e $(VENV)/.dev-ready ]; then $(MAKE) --no-print-directory $(VENV)/.dev-ready; \
	else $(MAKE) --no-print-directory demo-install; fi
	@touch $@

.PHONY: demo-install
demo-install: | $(BIN)/python
	@echo "installing the server into $(VENV): NumPy, OpenVINO, OpenCV, gRPC; about 400 MB ..."
	$(call install,server)
	@echo "installing what draws its pictures: matplotlib ..."
	$(call install,$(DEMO_EXTRAS))
