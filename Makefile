# Everything runs in .venv, made on first use; nothing to activate.
PYTHON ?= python3
BIN := .venv/bin
TEST := python -m pytest -m 'not slow' --numprocesses auto --dist loadfile --no-loadscope-reorder
EXAMPLE := build/moe_step.sqlite
BULK := build/bulk_1m.sqlite
BULK_ONE := build/bulk_1m_one_rank.sqlite
BULK_STEP := build/bulk_long_steps.sqlite

# Compiled modules are kept even where the environment says otherwise: each command would compile all anew.
export PYTHONDONTWRITEBYTECODE =

.DEFAULT_GOAL := help
.PHONY: help demo test test-all test-real test-trackers contract check format golden digests bench bench-traces bench-jobs bench-large bench-diff drift faults floors newest guided huge screenshots figures docs bench-accuracy bench-causes bench-culprits constraints attack measure-house clean

help:  ## list the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 12

# Each level holds the one before it: what running needs, what the tests need, everything.
.venv/run .venv/test .venv/all: .venv/%: constraints/%.txt constraints/uv.txt constraints/install.sh pyproject.toml
	@PYTHON=$(PYTHON) constraints/install.sh $<
	@touch $@

.venv/compiled: .venv/run build_kernels.py $(wildcard wallscope/kernels/*.py)
	$(BIN)/python build_kernels.py
	@touch $@

# Compiled a second time for the tests, with bounds checks.
.venv/tested: .venv/test .venv/compiled
	$(BIN)/python build_kernels.py --check-bounds --into build/kernels/tested
	@touch $@

.venv/stamp: .venv/all .venv/tested
	@touch $@

$(EXAMPLE): .venv/compiled $(wildcard wallscope/demo/*)
	@mkdir -p build
	$(BIN)/python -m fixtures.example $@

demo: .venv/compiled  ## analyze a generated example, a step of a mixture-of-experts model, and write its page
	@mkdir -p build
	$(BIN)/wallscope demo --html build/demo.html

test: .venv/tested $(EXAMPLE)  ## the tests, side by side on all cores
	$(BIN)/$(TEST)

test-all: .venv/tested $(EXAMPLE)  ## the tests, the slow ones too, with more random examples
	$(BIN)/python -m pytest --hypothesis-profile=ci

test-real: .venv/tested  ## captures of others, where ../shared/traces has them: walls, steps, causes, changes
	$(BIN)/python -m pytest tests/real tests/test_traces.py

check: .venv/stamp  ## format, lint, types, import contracts, links of the documentation
	NO_MKDOCS_2_WARNING=1 WALLSCOPE_DOCS_PICTURES=kept $(BIN)/python -m mkdocs build
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

TORCH_PYTHON ?= python3
MLFLOW ?=
test-trackers: .venv/tested  ## the tests of history --to with the clients of W&B and MLflow, some 150 MB, and MLFLOW=PATH with a server; nothing leaves the machine
	constraints/install.sh constraints/trackers.txt
	WALLSCOPE_MLFLOW=$(MLFLOW) $(BIN)/python -m pytest tests/cli/test_trackers.py

contract: .venv/tested  ## captures of programs with the PyTorch of TORCH_PYTHON, and with the frameworks that it has
	WALLSCOPE_TORCH_PYTHON=$(TORCH_PYTHON) $(BIN)/python -m pytest tests/capture/run/test_real_torch.py

format: .venv/stamp  ## format, and fix what ruff can fix
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

golden: .venv/stamp  ## rewrite the golden files; review the difference
	$(BIN)/python -m pytest --golden -m 'not slow'

digests: .venv/stamp  ## compare what all commands write with stored digests: a refactoring changes none; takes minutes
	$(BIN)/python -m tests.digests $(OPTIONS)

$(BULK): .venv/stamp $(wildcard fixtures/bulk*.py fixtures/ddl/*.sql)
	@mkdir -p build
	$(BIN)/python -m fixtures.bulk $@ --kernels 1000000 --ranks 8 --steps 20

$(BULK_ONE): .venv/stamp $(wildcard fixtures/bulk*.py fixtures/ddl/*.sql)
	@mkdir -p build
	$(BIN)/python -m fixtures.bulk $@ --kernels 1000000 --ranks 1 --steps 20

$(BULK_STEP): .venv/stamp $(wildcard fixtures/bulk*.py fixtures/ddl/*.sql)
	@mkdir -p build
	$(BIN)/python -m fixtures.bulk $@ --kernels 800000 --ranks 1 --steps 4

ROUNDS ?= 5
bench: $(BULK) $(BULK_ONE) $(BULK_STEP)  ## measure reading, whole commands and replays of a million kernels, and write docs/performance.md; takes minutes
	$(BIN)/python -m benchmarks.read $(BULK) --rounds $(ROUNDS) --into docs/performance.md
	$(BIN)/python -m benchmarks.commands $(BULK) --rounds $(ROUNDS) --into docs/performance.md
	$(BIN)/python -m benchmarks.commands $(BULK_ONE) --rounds $(ROUNDS) --name one-rank --into docs/performance.md
	$(BIN)/python -m benchmarks.sizes build/sizes --into docs/performance.md
	$(BIN)/python -m benchmarks.stages $(BULK) --rounds $(ROUNDS) --into docs/performance.md
	$(BIN)/python -m benchmarks.replay $(BULK_STEP) --rounds $(ROUNDS) --into docs/performance.md

bench-traces: .venv/stamp  ## measure reading a PyTorch trace of a gigabyte (TRACE=FILE has whole microseconds), and write docs/performance.md
	nice $(BIN)/python -m benchmarks.traces $(TRACE) --rounds $(ROUNDS) --into docs/performance.md

bench-jobs: .venv/stamp  ## measure --jobs 2 on 64 exports, and write docs/performance.md; takes minutes
	$(BIN)/python -m benchmarks.jobs build/job --exports 64 --kernels 10000 --rounds 3 --into docs/performance.md

bench-large: .venv/stamp  ## measure jobs of 32 to 1,024 ranks, and write docs/performance.md; takes a quarter of an hour of CPU time
	nice $(BIN)/python -m benchmarks.large_jobs build/large_jobs --real --into docs/performance.md

bench-diff: .venv/stamp  ## measure how often comparisons are wrong, and write docs/diff.md; takes 22 minutes of CPU time
	$(BIN)/python -m benchmarks.diff_verdicts --pairs 120 --jobs 2 --parts build/diff_parts --cells build/diff_cells.csv --write docs/diff.md
	$(BIN)/python -m benchmarks.change_points --histories 1000 --write docs/diff.md
	$(BIN)/python -m benchmarks.further_runs --pairs 4000 --write docs/diff.md
	$(BIN)/python -m benchmarks.graded_claims --pairs 2000 --write docs/diff.md

bench-culprits: .venv/stamp  ## measure what is said to hold planted jobs up, and write docs/accuracy.md; takes hours, continues where it was stopped
	@mkdir -p build
	$(BIN)/python -m benchmarks.culprits --journal build/culprits.jsonl --into docs/accuracy.md
	$(BIN)/python -m benchmarks.culprits --large --first 1000 --journal build/culprits.jsonl --into docs/accuracy.md

drift: .venv/stamp  ## list what a checkout (MEGATRON=folder BRIDGE=folder) has that the knowledge base lacks, and the reverse; HISTORY=1 compares the assertions with the tags of clones
	$(BIN)/python -m benchmarks.drift $(if $(MEGATRON),--megatron $(MEGATRON)) $(if $(BRIDGE),--bridge $(BRIDGE)) $(if $(HISTORY),--history)

faults: .venv/stamp  ## try 20,000 broken inputs, and write docs/robustness.md; takes hours, continues where it was stopped
	nice $(BIN)/python -m benchmarks.faults --inputs 20000 --jobs $$(nproc) --journal build/faults.jsonl --write docs/robustness.md

ATTACKED = $(shell grep -o 'tests/[a-z_/]*[.]py' docs/threat-model.md | sort -u)
attack: .venv/stamp  ## all tests that docs/threat-model.md names, and 300 broken inputs; under 10 minutes
	$(BIN)/python -m pytest --numprocesses auto --dist loadfile $(ATTACKED)
	$(BIN)/python -m benchmarks.faults --inputs 300 --skip 20000 --jobs $$(nproc)

SECONDS ?= 60
guided: build/guided/stamp  ## feed parsers for SECONDS each with what atheris finds out; not for every Python
	for parser in configuration rules record profile; do \
		build/guided/venv/bin/python -m benchmarks.guided $$parser build/guided/$$parser -max_total_time=$(SECONDS) || exit 1; \
	done

build/guided/stamp: pyproject.toml
	$(PYTHON) -m venv build/guided/venv
	build/guided/venv/bin/python -m pip install --quiet --disable-pip-version-check --editable . atheris
	@touch $@

floors: build/floors/stamp  ## the tests with the oldest dependencies that pyproject.toml allows
	build/floors/bin/$(TEST)

newest: build/newest/stamp  ## the tests with the newest dependencies that pyproject.toml allows
	build/newest/bin/$(TEST)

RESOLUTION_floors := lowest-direct
RESOLUTION_newest := highest
build/floors/stamp build/newest/stamp: build/%/stamp: pyproject.toml .venv/tested
	$(PYTHON) -m venv --clear build/$*
	$(UV) pip install --quiet --python build/$*/bin/python --upgrade --resolution $(RESOLUTION_$*) --group build --group test --editable '.[dask,mcp,remote]'
	@touch $@

UV = $(shell command -v uv || echo build/uv/bin/uv)
EXTRAS := --extra dask --extra mcp --extra remote
UV_COMPILE = $(UV) pip compile --quiet --upgrade --universal --python-version 3.11 --generate-hashes --no-annotate \
	--no-emit-package wallscope --custom-compile-command 'make constraints'
constraints: .venv/run  ## pin the newest dependencies, with hashes: one resolution, of which each file holds a part
	$(UV_COMPILE) pyproject.toml $(EXTRAS) --group dev --output-file constraints/all.txt
	$(UV_COMPILE) pyproject.toml --constraint constraints/all.txt --group build --output-file constraints/run.txt
	$(UV_COMPILE) pyproject.toml --constraint constraints/all.txt --group build --extra remote --output-file constraints/action.txt
	$(UV_COMPILE) pyproject.toml --constraint constraints/all.txt --group build --group test $(EXTRAS) --output-file constraints/test.txt
	$(UV_COMPILE) pyproject.toml --constraint constraints/run.txt --group build --extra wandb --extra mlflow --output-file constraints/trackers.txt
	$(UV_COMPILE) constraints/release.in --output-file constraints/release.txt
	$(UV_COMPILE) constraints/uv.in --output-file constraints/uv.txt

HUGE := build/huge_10gb.sqlite
huge: $(BULK)  ## measure an export of 10 GB, and write docs/robustness.md; wants 11 GB of disk
	$(BIN)/python -m fixtures.huge $(BULK) $(HUGE) --gigabytes 10
	$(BIN)/python -m benchmarks.huge $(BULK) $(HUGE) --into docs/robustness.md
	rm $(HUGE)

docs: .venv/stamp  ## build the documentation site with its pictures and gallery, strictly, into build/site
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build

bench-accuracy: .venv/stamp  ## measure diagnoses and replays of simulated programs, and write docs/accuracy.md; takes minutes
	$(BIN)/python -m benchmarks.accuracy --into docs/accuracy.md
	$(BIN)/python -m benchmarks.predictions --into docs/accuracy.md

bench-causes: .venv/stamp  ## count causes named in noisy programs and near misses, and write docs/accuracy.md; takes minutes
	$(BIN)/python -m benchmarks.causes --into docs/accuracy.md

measure-house: .venv/stamp $(EXAMPLE)  ## count how often a fact is declared and who writes a sentence; takes a minute
	$(BIN)/python -m benchmarks.house --places

figures: .venv/stamp  ## draw the figures of the documentation again
	$(BIN)/python -m docs_build.figures docs/images

screenshots: .venv/stamp  ## take the pictures of the README again; wants Chromium
	$(BIN)/python -m docs_build.pictures docs/images

clean:  ## remove what the targets above made
	rm -f wallscope/kernels/*.so
	rm -rf .venv build dist .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis
