# Every target makes .venv when it is missing or when its requirements changed.
SHELL := /bin/bash
.DEFAULT_GOAL := help
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
PIP_INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile -c constraints.txt

# Files for other versions of Python fail. Nobody imports packages' tests, and of what is named here next to nothing: what
# is imported of it is compiled then.
COMPILE := $(BIN)/python -m compileall $(VENV)/lib >/dev/null 2>&1 -qq \
  -x '/(tests?|testing|_inductor|transformers|moto|mlflow|databricks|debugpy|fontTools|gevent|mypyc?|torchgen|pip|setuptools)/'

.PHONY: help
help: ## List the targets
	@grep -hE '^[a-z0-9-]+:.*##' $(MAKEFILE_LIST) | awk -F':.*## ' '{printf "  make %-17s %s\n", $$1, $$2}'

$(STAMP): pyproject.toml constraints.txt
	@echo "Installing Tiercel and its tools into $(VENV) (once; a few minutes)"
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@# an older pip, as Pythons bring it, takes twice the time for all that follows
	@$(PIP_INSTALL) --upgrade pip
	@# torch first and by exact version: a looser pin may pull gigabytes of CUDA libraries
	@$(PIP_INSTALL) "$$(grep '^torch==' constraints.txt)"
	@# what is there is compiled beside pip, which keeps one core busy
	@$(COMPILE) & $(PIP_INSTALL) -e '.[train,serve,envs,s3,hf,tokenizers,notebook,mlflow,tensorboard,sweep,otel,research,dev]'; \
	  status=$$?; wait; exit $$status
	@$(COMPILE) -j 0 || true
	@touch $(STAMP)

.PHONY: install
install: $(STAMP) ## Make .venv with everything in it

.PHONY: demo
demo: $(STAMP) ## Train, ship, hot-swap and serve real models on this machine, with a live view
	@$(BIN)/python -m benchmarks.demo $(DEMO_FLAGS)

.PHONY: cli-pictures
cli-pictures: $(STAMP) ## Keep what people see of commands on a small and a large terminal, in build/cli-pictures
	@$(BIN)/python -m pytest -q tests/integration/broker/cli/test_terminal_views.py

.PHONY: dashboard-pictures
dashboard-pictures: $(STAMP) ## Take pictures of every view of the dashboard, light, dark and on a phone, into build/dashboard
	@$(BIN)/python -m benchmarks.dashboard_pictures

WORKERS = $(shell echo $$((2 * $$(nproc))))

# Python keeps what it has compiled, also where images say that it shall not: every test that starts a process gains.
test test-fast: export PYTHONDONTWRITEBYTECODE =

.PHONY: test
test: $(STAMP) ## Run every test (TEST_FLAGS="tests/unit -k tradl" for some)
ifdef TEST_FLAGS
	@$(BIN)/python -m pytest $(TEST_FLAGS)
else
	@# once, where each worker would compile all of it by itself
	@$(BIN)/python -m compileall -qq -j 0 benchmarks broker core protos serving testing tiercel trainer_agent
	@$(BIN)/python -m testing.suite
endif

.PHONY: test-fast
test-fast: $(STAMP) ## Run the tests that need no product: unit, property and contract, without containers
	@$(BIN)/python -m pytest --numprocesses $(WORKERS) -m "not alone and not docker" tests/unit tests/property tests/contract

.PHONY: lint
lint: $(STAMP) protos-check ## Style, types, architecture and the contract
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports
	@$(BIN)/buf lint
	@$(BIN)/buf format --diff --exit-code

.PHONY: format
format: $(STAMP) ## Let the tools put the code in order
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .
	@$(BIN)/buf format --write

PROTO_FILES := $(shell find protos -name '*.proto')

define generate
	$(BIN)/python -m grpc_tools.protoc -I protos \
	  --plugin=protoc-gen-mypy=$(BIN)/protoc-gen-mypy --plugin=protoc-gen-mypy_grpc=$(BIN)/protoc-gen-mypy_grpc \
	  --python_out=$(1) --grpc_python_out=$(1) --mypy_out=quiet:$(1) --mypy_grpc_out=quiet:$(1) $(PROTO_FILES)
endef

.PHONY: protos
protos: $(STAMP) ## Generate code from protos/
	@$(call generate,protos)

.PHONY: protos-check
protos-check: $(STAMP)
	@rm -rf build/protos && mkdir -p build/protos
	@$(call generate,build/protos)
	@diff -r --exclude='*.proto' --exclude=__init__.py --exclude=__pycache__ build/protos protos \
	  || { echo "The generated code is not current: run 'make protos' and commit the result."; exit 1; }

.PHONY: vendor
vendor: $(STAMP) ## Fetch what is vendored for the dashboard and its tests from npm, and write the hashes of what came
	@$(BIN)/python tools/vendor.py broker/dashboard/static/vendor tests/data/axe-core

.PHONY: image
image: $(STAMP) ## Build the image for training containers (BASE=any Python base image, IMAGE=its name)
	@BASE="$(BASE)" PYTHON=$(BIN)/python tools/build_image.sh $(or $(IMAGE),tiercel-trainer:latest)

.PHONY: bench-scheduling
bench-scheduling: $(STAMP) ## Run the schedulers against each other with real training (BENCH_FLAGS=--quick for 3 minutes)
	@$(BIN)/python -m benchmarks.scheduling run $(or $(BENCH_FLAGS),--minutes 25)

.PHONY: bench-simulated
bench-simulated: $(STAMP) ## Simulate every policy: many seeds, the papers' own experiments, all tuned alike, endpoints, accelerators, the live trial, large clusters
	@$(BIN)/python -m benchmarks.simulated_trial
	@$(BIN)/python -m benchmarks.simulated_policies
	@$(BIN)/python -m benchmarks.simulated_papers
	@$(BIN)/python -m benchmarks.simulated_endpoints
	@$(BIN)/python -m benchmarks.simulated_served
	@$(BIN)/python -m benchmarks.simulated_contest
	@$(BIN)/python -m benchmarks.simulated_accelerators
	@$(BIN)/python -m benchmarks.simulated_tuning
	@$(BIN)/python -m benchmarks.simulated_scale
	@$(BIN)/python -m benchmarks.simulated_report

.PHONY: bench-principle
bench-principle: $(STAMP) ## Compare policies on programs drawn anew and on published records of training, and utility without each of its rules (1 CPU hour; goes on where it was)
	@$(BIN)/python -m benchmarks.principle --ablation 4 $(BENCH_FLAGS)

.PHONY: gpu-check
gpu-check: ## Measure training and serving on this machine's GPU, with its own python and torch (under 8 minutes)
	@$(PYTHON) -m benchmarks.gpu_check $(GPU_FLAGS)

.PHONY: bench-what-if
bench-what-if: $(STAMP) ## Hold what-ifs against what then came, simulated (ten minutes; live: bench-scheduling)
	@$(BIN)/python -m benchmarks.what_if $(BENCH_FLAGS)

.PHONY: bench-retraining
bench-retraining: $(STAMP) ## Compare training again by itself with never and on a schedule, over made-up days that change (a minute)
	@$(BIN)/python -m benchmarks.retraining $(BENCH_FLAGS)

.PHONY: bench-decisions
bench-decisions: $(STAMP) ## Measure what one decision of each policy costs
	@$(BIN)/python -m benchmarks.decision_cost $(BENCH_FLAGS)

.PHONY: bench-serving
bench-serving: $(STAMP) ## Measure the inference server beside its peers (about 12 minutes; BENCH_FLAGS=--quick for one)
	@$(BIN)/python -m benchmarks.serving run $(BENCH_FLAGS)

.PHONY: bench-cluster
bench-cluster: $(STAMP) ## Three machines: an endpoint asked at each while its job moves and machines are cut off (6 minutes; as root)
	@$(BIN)/python -m benchmarks.cluster $(BENCH_FLAGS)

.PHONY: bench-tls
bench-tls: $(STAMP) ## Measure what TLS costs the inference server, beside the event loop's own (two minutes)
	@$(BIN)/python -m benchmarks.tls $(BENCH_FLAGS)

.PHONY: bench-hop
bench-hop: $(STAMP) ## Measure what it costs a request to be handed on to another server (half a minute)
	@$(BIN)/python -m benchmarks.serving_hop $(BENCH_FLAGS)

.PHONY: bench-int8
bench-int8: $(STAMP) ## Ask more of a model than it can answer, with an int8 model beside it and without (a few minutes)
	@$(BIN)/python -m benchmarks.int8 $(BENCH_FLAGS)

.PHONY: bench-generation
bench-generation: $(STAMP) ## Generate with a small GPT at the inference server, beside plain PyTorch (a minute)
	@$(BIN)/python -m benchmarks.generation $(BENCH_FLAGS)

.PHONY: bench-models
bench-models: $(STAMP) ## Run scripts of every framework as jobs that are killed once (minutes; BENCH_FLAGS=--large for a model of 2.5 GB)
	@$(BIN)/python -m benchmarks.models $(BENCH_FLAGS)

.PHONY: bench-keys
bench-keys: $(STAMP) ## Measure what a key costs a request to the inference server (half a minute)
	@$(BIN)/python -m benchmarks.keys $(BENCH_FLAGS)

.PHONY: bench-dashboard
bench-dashboard: $(STAMP) ## Measure for how long the dashboard's pages hold up a browser, 50 jobs of 10,000 points (a minute)
	@$(BIN)/python -m benchmarks.dashboard_frames $(BENCH_FLAGS)

.PHONY: bench-variants
bench-variants: $(STAMP) ## Compare the schedulers of endpoints with variants, simulated over measured profiles (5 minutes)
	@$(BIN)/python -m benchmarks.qoe run

.PHONY: bench-heterogeneous
bench-heterogeneous: $(STAMP) ## Compare schedulers with the optimum on simulated workers of several kinds (two minutes)
	@$(BIN)/python -m benchmarks.heterogeneous $(BENCH_FLAGS)

.PHONY: fuzz
fuzz: $(STAMP) ## Send a million bent requests to the inference server
	@$(BIN)/python -m benchmarks.fuzz all $(FUZZ_FLAGS)

.PHONY: bench-faults
bench-faults: $(STAMP) ## Attack the product: a broker killed again and again, floods, a full disk (5 minutes; the last as root)
	@$(BIN)/python -m benchmarks.faults $(BENCH_FLAGS)

.PHONY: bench-starts
bench-starts: $(STAMP) ## Measure the time from the order of a run to its first training step, warm and cold (three minutes)
	@$(BIN)/python -m benchmarks.starts $(BENCH_FLAGS)

.PHONY: bench-starts-live
bench-starts-live: $(STAMP) ## Time to the first tier with and without warm starts, real training, in turn (8 minutes)
	@$(BIN)/python -m benchmarks.starts.live $(BENCH_FLAGS)

.PHONY: bench-glance
bench-glance: $(STAMP) ## Fuzz, overload and swaps for some seconds each: do they work, and does nothing fail
	@$(BIN)/python -m benchmarks.fuzz all --seconds 2
	@$(BIN)/python -m benchmarks.serving overload --load 2 --sane
	@$(BIN)/python -m benchmarks.serving.swaps --swaps 40 --connections 4 --seconds 6 --sane

.PHONY: bars
bars: $(STAMP) ## Derive every bar of every kept result from its figures, and print whether it holds
	@$(BIN)/python -m benchmarks.bars

.PHONY: lock
lock: $(STAMP) ## Write the versions in .venv to constraints.txt
	@{ head -2 constraints.txt; $(BIN)/python -m pip freeze --all --exclude setuptools --exclude-editable | sed 's/+cpu$$//' | sort -f; } > build/constraints.txt
	@mv build/constraints.txt constraints.txt

.PHONY: packages
packages: $(STAMP) ## Build source package and wheel into dist/, and look whether all is in them
	@$(BIN)/python tools/packages.py dist

.PHONY: test-packages
test-packages: $(STAMP) ## Install the wheel into fresh environments and try each (minutes; PACKAGES_FLAGS="--python 3.12 --only serve")
	@$(BIN)/python tools/try_packages.py $(PACKAGES_FLAGS)

.PHONY: release
release: $(STAMP) ## Look whether all is ready, build both packages and tag the version (RELEASE_FLAGS=--dry-run)
	@$(BIN)/python tools/release.py $(RELEASE_FLAGS)

.PHONY: docs
docs: $(STAMP) ## Make the documentation as a site, in build/site
	@$(BIN)/python -m tools.site

.PHONY: clean
clean: ## Remove everything that was made here
	rm -rf $(VENV) build dist demo-output .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
