# braidlog: `make run` starts a broker, `make test` sets up and passes all tests.
PYTHON ?= python3
VENV := .venv
PY := $(VENV)/bin/python
PYTEST := $(PY) -m pytest -q
# The same, and few failures once more, alone: see tools/run_tests.py.
TESTS := $(PY) -m tools.run_tests -q

PIP := $(PY) -m pip install -q --disable-pip-version-check
PORT ?= 9092
DATA ?= ./data

# Bytecode is kept, also where the environment says otherwise: tests start Python more than a thousand times, and each
# process would compile its modules anew.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: run setup build collect test test-all test-brokers test-cluster test-packages test-simulation test-spark test-uncompiled test-unit tests-one-by-one tests-that-answer tests-that-calculate check bench bench-cli bench-client bench-spark demo docs soak wheel wheels clean generate

# The build's own requirements first: what is installed in place is compiled without isolation, and kept by its sources.
$(VENV)/.run: pyproject.toml
	test -x $(PY) || $(PYTHON) -m venv $(VENV)
	$(PY) -c "import tomllib; print(*tomllib.load(open('pyproject.toml', 'rb'))['build-system']['requires'], sep=chr(10))" | $(PIP) -r /dev/stdin
	BRAIDLOG_PURE=1 $(PIP) --no-build-isolation -e .
	touch $@

# Spark, and a Java if the machine has none. Nothing is compiled for it.
$(VENV)/.spark: $(VENV)/.run
	BRAIDLOG_PURE=1 $(PIP) --no-build-isolation -e ".[spark]"
	@$(PY) -c "from pyspark_braidlog.java import find_java; find_java()" 2>/dev/null || \
		BRAIDLOG_PURE=1 $(PIP) --no-build-isolation -e ".[spark,java]"
	touch $@

$(VENV)/.dev: $(VENV)/.spark
	BRAIDLOG_PURE=1 $(PIP) --no-build-isolation -e ".[dev,interop,spark,cluster]"
	touch $@

# The classes that Spark loads, which each of the many Javas of its tests would parse and verify anew. They do without, too.
$(VENV)/spark-classes.jsa: $(VENV)/.dev tools/spark_classes.py
	-BRAIDLOG_PURE=1 $(PY) -m tools.spark_classes

# What the site of the documents is built with; no test needs it.
$(VENV)/.docs: $(VENV)/.run
	BRAIDLOG_PURE=1 $(PIP) --no-build-isolation -e ".[docs]"
	touch $@

build: $(VENV)/.run
	$(PY) -m tools.build

run: $(VENV)/.run
	@$(PY) -m tools.run --data $(DATA) --listen 127.0.0.1:$(PORT)

setup: $(VENV)/.dev $(VENV)/spark-classes.jsa build

check: $(VENV)/.dev
	$(PY) -m ruff check .
	$(PY) -m ruff format --check --quiet .
	$(PY) -m mypy
	$(VENV)/bin/lint-imports
	$(PY) -m tools.links

QUICK := "not peer and not soak and not long"
UNCOMPILED_ONLY := tests/simulation/test_cluster_invariants_bite.py tests/simulation/test_replication_invariants_bite.py

# Three rows beside each other. Brokers and clients, and then Spark, mostly wait for each other and must answer in time; so
# must clusters, one after the other. What mostly calculates takes what they leave of the cores: at the lowest priority
# where no clock is looked at, a little below the others where one is.
test: setup
	@rm -f build/unsteady-tests.txt
	$(MAKE) --no-print-directory -j 2 check collect
	$(MAKE) --no-print-directory -j 3 tests-that-answer tests-one-by-one tests-that-calculate
	@! test -s build/unsteady-tests.txt || cat build/unsteady-tests.txt

tests-that-answer:
	$(MAKE) --no-print-directory test-brokers
	$(MAKE) --no-print-directory test-spark

tests-one-by-one:
	$(MAKE) --no-print-directory test-cluster
	$(MAKE) --no-print-directory test-packages

tests-that-calculate:
	nice -n 19 $(MAKE) --no-print-directory test-simulation
	nice -n 5 $(MAKE) --no-print-directory test-unit
	nice -n 5 $(MAKE) --no-print-directory test-uncompiled

# What cannot be collected is told at once. pytest keeps the modules as it has rewritten them, which every worker of every
# part would do anew; the checks leave a core for it.
collect:
	@mkdir -p build
	@BRAIDLOG_PURE=1 $(PYTEST) -n 0 --collect-only -m "not peer and not soak" tests >build/collected.txt || { tail -n 40 build/collected.txt; exit 1; }

# Whatever the others leave. More workers than cores, as it mostly waits for brokers and clients.
test-brokers:
	$(TESTS) -n 5 --dist worksteal -m $(QUICK) $(patsubst %,--ignore tests/%,cluster fuzz install simulation spark unit) tests

# Whole clusters in one process on a clock of their own, and parsers with inputs that nobody sends.
test-simulation:
	$(TESTS) -n 2 --dist worksteal -m $(QUICK) $(addprefix --ignore ,$(UNCOMPILED_ONLY)) tests/simulation tests/fuzz

test-unit:
	$(TESTS) -n 2 -m "not peer and not soak" tests/unit

# Environments of their own, one after the other.
test-packages:
	$(TESTS) -m $(QUICK) tests/install

# One ZooKeeper and three brokers, which each worker would start anew.
test-cluster:
	$(TESTS) -m $(QUICK) tests/cluster

# A second time, uncompiled: the unit tests whose outcome may differ (tools/hot_tests.py), and a broker and its clients.
# Also those that replace methods, which no compiled class allows.
test-uncompiled:
	BRAIDLOG_PURE=1 $(TESTS) -n 2 -m "not peer and not soak" $$($(PY) -m tools.hot_tests) tests/interop/test_smoke.py $(UNCOMPILED_ONLY)

# No more workers than cores: Spark's processes must answer each other within ten seconds.
test-spark:
	$(TESTS) -n 2 --dist loadfile --no-loadscope-reorder -m $(QUICK) tests/spark

test-all: test
	@command -v promtool >/dev/null || apt-get install -y -q --no-install-recommends prometheus >/dev/null || echo "prometheus is not installed: its tests are skipped"
	@command -v kcat >/dev/null || apt-get install -y -q kcat >/dev/null || echo "kcat is not installed: its tests are skipped"
	BRAIDLOG_PURE=1 $(PYTEST) -n 2 -m "not peer and not soak" tests/unit
	$(PYTEST) -m "(peer or long) and not soak" tests

soak: setup
	$(PYTEST) -s --timeout 0 -m "soak" tests

demo: $(VENV)/.spark
	@$(PY) -m pyspark_braidlog.examples.demo

bench: setup
	$(PY) -m bench

bench-cli: setup
	$(PY) -m bench.cli

bench-client: setup
	$(PY) -m bench.client

bench-spark: setup
	$(PY) -m bench.spark

# The documents as a site in build/site; a broken link or a page without a place fails.
docs: $(VENV)/.docs
	NO_MKDOCS_2_WARNING=1 $(PY) -m mkdocs build --strict --quiet

generate: $(VENV)/.dev
	$(PY) -m tools.protocol
	$(PY) -m tools.source_map

# The wheel of this Python alone, compiled or taken from the cache.
wheel: $(VENV)/.run
	$(PY) -m pip wheel -q --disable-pip-version-check --no-deps --no-build-isolation --wheel-dir dist .

# An sdist and the wheels of every supported Python on this machine, each installed and tried.
wheels: $(VENV)/.run
	$(PY) -m tools.wheels

clean:
	rm -rf build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find src -name '*.so' -delete
