# One command each. `make test` needs Python 3.11 or newer and make, nothing else: the rest lives in .venv.

VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
SUPPORTED := python3.14 python3.13 python3.12 python3.11 python3
NEW_ENOUGH := import sys; sys.exit(sys.version_info < (3, 11))

.DEFAULT_GOAL := help
.PHONY: help check test bench bench-store bench-broker bench-spark bench-client soak-client crash conformance clean
.SILENT:

help: ## list these commands
	sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1\t\2/p' Makefile | expand -t 20

check: $(INSTALLED) ## lint, format and types, without running anything
	echo "ruff check" && $(BIN)/ruff check --quiet .
	echo "ruff format" && $(BIN)/ruff format --check --quiet .
	echo "mypy --strict" && $(BIN)/mypy --no-error-summary

test: check ## check, then every test, with warnings as errors
	echo "pytest" && $(BIN)/python -m pytest --quiet

bench: $(INSTALLED) ## micro benchmarks beside json, orjson and a struct loop
	$(BIN)/python -m bench

bench-store: $(INSTALLED) ## the store beside SQLite and a plain file: two minutes, 3 GiB of disk
	$(BIN)/python -m bench.store

bench-spark: $(INSTALLED) ## the Spark connector beside Parquet; needs Java 17: some minutes
	$(BIN)/python -m bench.spark
	$(BIN)/python -m bench.spark.end_to_end

bench-broker: $(INSTALLED) ## the broker beside the Apache broker where Java is: ten minutes, 14 GiB of disk
	$(BIN)/python -m bench.broker

bench-client: $(INSTALLED) ## the client beside redis-py, nats-py and the Java client where they are: five minutes alone
	$(BIN)/python -m bench.client

soak-client: $(INSTALLED) ## whether the client's memory stays flat: half an hour
	$(BIN)/python -m bench.client.soak

N ?= 50000
crash: $(INSTALLED) ## N power losses of the store at random moments, 50,000 unless told otherwise
	$(BIN)/python -m tests.store.crash --states $(N)

conformance: $(INSTALLED) ## store, clients, mqadmin and clusters with the real Apache RocketMQ; needs Java 17 and Maven, an hour
	$(BIN)/python -m conformance

clean: ## remove the environment and all caches
	rm -rf $(VENV) .mypy_cache .pytest_cache .ruff_cache .hypothesis .coverage

# The stamp is made last, so an install that broke off is done again.
$(INSTALLED): pyproject.toml constraints.txt
	found=; for python in $(SUPPORTED); do \
	  if $$python -c '$(NEW_ENOUGH)' 2>/dev/null; then found=$$python; break; fi; \
	done; \
	if [ -z "$$found" ]; then \
	  echo "PocketMQ needs Python 3.11 or newer; looked for: $(SUPPORTED)" >&2; exit 1; \
	fi; \
	echo "installing into $(VENV) with $$($$found --version)"; \
	$$found -m venv --clear $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt hatchling
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt \
	  --no-build-isolation --editable '.[test]'
	touch $@
