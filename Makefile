# braidlog: `make run` starts a broker, `make test` sets up and passes all tests.
PYTHON ?= python3
VENV := .venv
PY := $(VENV)/bin/python
PYTEST := $(PY) -m pytest -q

.PHONY: run setup build test test-unit test-pure test-all check bench bench-cli bench-client bench-spark demo soak wheel clean generate

$(VENV)/.run: pyproject.toml
	test -x $(PY) || $(PYTHON) -m venv $(VENV)
	$(PY) -m pip install -q --disable-pip-version-check "setuptools>=75" "mypy[mypyc]>=2.4,<2.5" "librt>=0.16,<0.17"
	BRAIDLOG_PURE=1 $(PY) -m pip install -q --disable-pip-version-check --no-build-isolation -e .
	touch $@

# Spark, and a Java if the machine has none. Nothing is compiled for it.
$(VENV)/.spark: $(VENV)/.run
	BRAIDLOG_PURE=1 $(PY) -m pip install -q --disable-pip-version-check --no-build-isolation -e ".[spark]"
	@$(PY) -c "from pyspark_braidlog.java import find_java; find_java()" 2>/dev/null || \
		BRAIDLOG_PURE=1 $(PY) -m pip install -q --disable-pip-version-check --no-build-isolation -e ".[spark,java]"
	touch $@

$(VENV)/.dev: $(VENV)/.spark
	BRAIDLOG_PURE=1 $(PY) -m pip install -q --disable-pip-version-check --no-build-isolation -e ".[dev,interop,spark]"
	touch $@

build: $(VENV)/.run
	$(PY) -m tools.build

run: build
	$(VENV)/bin/braidlog serve --data ./data --listen 127.0.0.1:9092

setup: $(VENV)/.dev build

check: $(VENV)/.dev
	$(PY) -m ruff check .
	$(PY) -m mypy
	$(VENV)/bin/lint-imports

# More workers than cores: interop and fault tests mostly wait for brokers and clients. Not so Spark's, whose
# processes must answer each other within ten seconds.
test: setup check
	$(PYTEST) -n 4 --dist worksteal -m "not peer and not soak and not spark" tests
	$(PYTEST) -n 2 --dist loadfile -m "spark and not peer and not soak and not long" tests/spark
	BRAIDLOG_PURE=1 $(PYTEST) -n 2 -m "not peer and not soak" tests/unit tests/interop/test_smoke.py

test-all: test
	@command -v kcat >/dev/null || apt-get install -y -q kcat >/dev/null || echo "kcat is not installed: its tests are skipped"
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

generate: $(VENV)/.dev
	$(PY) -m tools.protocol

wheel: $(VENV)/.dev
	$(PY) -m build --wheel --no-isolation --outdir dist .

clean:
	rm -rf build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find src -name '*.so' -delete
