# One command each. `make test` needs Python 3.11 or newer and make, nothing else: the rest lives in .venv.

VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
WHOLE := $(VENV)/.whole
SITE := $(VENV)/.docs
TWIN := $(VENV)/.compiled
SUPPORTED := python3.14 python3.13 python3.12 python3.11 python3
NEW_ENOUGH := import sys; sys.exit(sys.version_info < (3, 11))

.DEFAULT_GOAL := help
.PHONY: help demo check test docs reference coverage demo-kills bench bench-store bench-broker bench-spark bench-client bench-console console-browser pipelines-scale spark-kills spark-cluster spark-places spark-apache soak-client client-minute crash assault conformance cli-apache fuzz sanitize clean
.SILENT:

help: ## list these commands
	sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1\t\2/p' Makefile | expand -t 24

demo: $(WHOLE) ## a shop's day on a broker and a Spark of its own, every message accounted for: two minutes
	$(BIN)/pocketmq demo

check: $(INSTALLED) $(TWIN) ## lint, format and types, without running anything
	echo "ruff check" && $(BIN)/ruff check --quiet .
	echo "ruff format" && $(BIN)/ruff format --check --quiet .
	echo "mypy --strict" && $(BIN)/mypy --no-error-summary

test: check ## check, every test with warnings as errors, and a short check of the memory accesses of the C code
	echo "AddressSanitizer" && $(BIN)/python -m tests.compiled.sanitize --short
	echo "pytest" && $(BIN)/python -m tests

docs: $(SITE) ## the documentation as a website in site/, with offline search; broken links are errors
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs --quiet build --strict
	echo "site/ is ready; to read it: python3 -m http.server --directory site 8000"

reference: $(INSTALLED) ## write the generated tables of docs/reference
	$(BIN)/python -m tests.reference_pages

coverage: $(INSTALLED) $(TWIN) ## every test with branch coverage, programs that they start included, and the lines that none reached
	$(BIN)/coverage erase
	$(BIN)/coverage run -m tests || echo "some tests failed; the report is about those that ran"
	$(BIN)/coverage combine --quiet
	$(BIN)/coverage report --skip-covered --show-missing

demo-kills: $(INSTALLED) ## demos killed at chance moments and gone on with: some minutes
	$(BIN)/python -m tests.demo.kills --kills 4

bench: $(INSTALLED) ## micro benchmarks beside json, orjson and a struct loop
	$(BIN)/python -m bench

bench-store: $(INSTALLED) ## the store beside SQLite and a plain file: two minutes, 3 GiB of disk
	$(BIN)/python -m bench.store

bench-spark: $(INSTALLED) ## the Spark connector beside Parquet and Kafka's; needs Java 17: half an hour
	$(BIN)/python -m bench.spark
	$(BIN)/python -m bench.spark.end_to_end

spark-kills: $(INSTALLED) ## drivers and workers of Spark killed at every moment, then at chance moments: ten minutes
	$(BIN)/python -m tests.spark.restarts
	$(BIN)/python -m tests.spark.driver_kills

spark-cluster: $(INSTALLED) ## the connector on a cluster of master, two workers and driver, an executor killed: two minutes
	$(BIN)/python -m tests.spark.cluster

spark-places: $(INSTALLED) ## the connector over Spark Connect, in a Declarative Pipeline and in a notebook, where installed
	$(BIN)/python -m tests.spark.places

spark-apache: $(INSTALLED) ## the tests of the connector with the real Apache RocketMQ; needs Java 17 and Maven
	$(BIN)/python -m conformance --part spark

bench-broker: $(INSTALLED) ## the broker beside the Apache broker where Java is: twelve minutes, 14 GiB of disk
	$(BIN)/python -m bench.broker

bench-client: $(INSTALLED) ## the client beside redis-py, nats-py and the Java client where they are: five minutes alone
	$(BIN)/python -m bench.client

bench-console: $(INSTALLED) ## the console beside 5,000 topics, 1,000 groups and 100,000 dead letters: four minutes, 4 GiB of disk
	$(BIN)/python -m bench.console

console-browser: $(INSTALLED) ## the console in a real Chromium, pictures of every page, axe on all of them: two minutes
	$(BIN)/python -m tests.console.browser

pipelines-scale: $(INSTALLED) ## every ready pipeline with a million messages; needs Java 17: some minutes
	$(BIN)/python -m bench.pipelines

soak-client: $(INSTALLED) ## whether the client's memory stays flat: half an hour
	$(BIN)/python -m bench.client.soak

client-minute: $(INSTALLED) ## a listener that computes for a minute keeps its place and its queue
	$(BIN)/python -m tests.client.spinning

N ?= 50000
crash: $(INSTALLED) ## N power losses of the store at random moments, 50,000 unless told otherwise
	$(BIN)/python -m tests.store.crash --states $(N)

assault: $(INSTALLED) ## faults of disk, clock, limits and clients at real servers, every message accounted for: ten minutes
	$(BIN)/python -m tests.assault

cli-apache: $(INSTALLED) ## every command of the command line with the real Apache RocketMQ; needs Java 17 and Maven, some minutes
	$(BIN)/python -m conformance --part cli

conformance: $(INSTALLED) ## all that is tried with the real Apache RocketMQ and its clients; needs Java 17 and Maven: 45 minutes
	$(BIN)/python -m conformance

fuzz: $(INSTALLED) ## malformed frames at servers and client for ten minutes
	$(BIN)/python -m conformance.fuzz

sanitize: $(INSTALLED) ## the compiled hot path beside its twin in Python, every access to memory checked: some minutes
	$(BIN)/python -m tests.compiled.sanitize

clean: ## remove the environment and all caches
	rm -rf $(VENV) site .mypy_cache .pytest_cache .ruff_cache .hypothesis .coverage .coverage.*

# The stamp is made last, so an install that broke off is done again. What builds comes first and is pinned like the rest:
# hatchling builds the project, setuptools builds PySpark, which comes as source.
$(INSTALLED): pyproject.toml constraints.txt
	found=; for python in $(SUPPORTED); do \
	  if $$python -c '$(NEW_ENOUGH)' 2>/dev/null; then found=$$python; break; fi; \
	done; \
	if [ -z "$$found" ]; then \
	  echo "PocketMQ needs Python 3.11 or newer; looked for: $(SUPPORTED)" >&2; exit 1; \
	fi; \
	echo "installing into $(VENV) with $$($$found --version)"; \
	$$found -m venv --clear $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt hatchling setuptools
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt \
	  --no-build-isolation --editable '.[test]'
	touch $@

# What `pocketmq pipeline run` needs besides, for who goes on from the demo.
$(WHOLE): $(INSTALLED)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt 'pyspark[pipelines]' 'pandas<3'
	touch $@

$(SITE): $(INSTALLED)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt \
	  --no-build-isolation --editable '.[docs]'
	touch $@

# The install has compiled it already; this is for changes since then. Without a compiler everything goes on in Python.
$(TWIN): $(INSTALLED) hatch_build.py $(wildcard src/pocketmq/compiled/*.[ch])
	$(BIN)/python hatch_build.py || true
	touch $@
