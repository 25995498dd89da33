# Every target makes what it needs; `make demo` and `make test` are all the set-up a fresh machine wants.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# What `compare` and `bench-peers` need is large, and nothing else wants it.
PEERS := .venv-compare
# How many tests run at once, and the least share of lines that those without children must reach.
LANES ?= 2
# Tests with real processes mostly wait: more of them than there are processors keep both busy.
TEST_LANES ?= 4
COVERED ?= 60
WITHOUT_CHILDREN := 'not contract and not chaos'
export PYTHONDONTWRITEBYTECODE :=
unexport PYTHONUNBUFFERED

.PHONY: demo test rest check coverage bench bench-peers compare behaviours cases trust mutants clean

$(VENV)/.ready: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	@# A new pip writes an entry script without `import re`: a quarter of what a cold `deadlined exec` takes.
	$(BIN)/pip install --quiet --disable-pip-version-check --upgrade pip
	$(BIN)/pip install --quiet --editable '.[dev]'
	@touch $@

$(PEERS)/.ready-%: pyproject.toml
	@test -x $(PEERS)/bin/pip || $(PYTHON) -m venv $(PEERS)
	$(PEERS)/bin/pip install --quiet --disable-pip-version-check --editable '.[$*]'
	@touch $@

demo: $(VENV)/.ready
	$(BIN)/deadlined demo

check: $(VENV)/.ready
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m pytest -q -n $(LANES) -m $(WITHOUT_CHILDREN) tests
	$(BIN)/python -m pytest -q tests/contract/test_smoke.py

# Which lines the tests of `check` reach: they take twice as long then. That a line is reached proves little: see `mutants`.
coverage: $(VENV)/.ready
	$(BIN)/coverage erase
	$(BIN)/coverage run -m pytest -q -n $(LANES) -m $(WITHOUT_CHILDREN) tests
	$(BIN)/coverage combine -q
	$(BIN)/coverage report --fail-under=$(COVERED) | tail -n 3

test: $(VENV)/.ready
	$(BIN)/python -m pytest -q -n $(TEST_LANES) --dist loadfile tests

# Every test that `check` has not run: those with real processes. Both together are `test`.
rest: $(VENV)/.ready
	$(BIN)/python -m pytest -q -n $(TEST_LANES) --dist loadfile -m 'contract or chaos' tests/contract tests/supervisor/containment

bench: $(VENV)/.ready
	$(BIN)/python -m bench

cases: $(VENV)/.ready
	$(BIN)/python -m tests.proven cases --lanes $(TEST_LANES) $(if $(COLLECT),--collect)

behaviours: $(VENV)/.ready
	$(BIN)/python -m tests.proven behaviours --lanes $(TEST_LANES) $(if $(COLLECT),--collect)

mutants: $(VENV)/.ready
	$(BIN)/python -m tests.mutants --lanes $(LANES) $(if $(ONLY),--only $(ONLY)) $(if $(SAMPLE),--sample $(SAMPLE)) $(if $(SEED),--seed $(SEED))

# The same hung payment on this product and on agent frameworks (docs/compare.md): a few minutes, offline once installed.
compare: $(PEERS)/.ready-compare
	$(PEERS)/bin/python -m bench.compare $(if $(JSON),--json) $(foreach one,$(PEER),--only $(one)) $(foreach one,$(KIND),--kind $(one))

bench-peers: $(PEERS)/.ready-peers
	$(PEERS)/bin/python -m bench.peers $(if $(QUICK),--quick) $(foreach one,$(ONLY),--only $(one))

trust: $(VENV)/.ready
	$(BIN)/python -m tests.trust --lanes $(if $(SUITE),1,$(LANES)) $(if $(LANE),--lane $(LANE)) $(if $(SUITE),--suite $(SUITE)) $(if $(N),--count $(N)) $(if $(SEED),--seed $(SEED))

clean:
	rm -rf $(VENV) $(PEERS) .coverage* .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
