# Two commands on a fresh machine with Python, git and make: `make recommend` and `make test`.
PYTHON ?= python3
BIN := .venv/bin
JOB ?= examples/criteo.yaml
NAME ?= recommend
STAMP := $(shell date +%Y%m%d-%H%M%S)

.PHONY: gpu-check setup recommend check test servers test-first-half test-second-half test-long test-long-platforms test-long-tools test-long-training lint docs bench release-check lock clean

setup: .venv/.ready

.venv/.ready: pyproject.toml constraints.txt
	@echo "Setting up .venv (once; a few minutes)"
	@$(PYTHON) -m venv .venv
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[profile,gpu,kubernetes,metrics,plots,track,postgres,docs,dev]'
	@touch $@

recommend: .venv/.ready
	@mkdir -p out
	@$(BIN)/sizewright profile $(JOB) --store out/trials-$(STAMP).db --accept-drift
	@$(BIN)/sizewright recommend $(JOB) --store out/trials-$(STAMP).db --out out/plan-$(STAMP).yaml

# Two processes side by side, one for each half of the tests.
HALF := tests/cli tests/datasets tests/models tests/spec tests/docs tests/benchmarks $(wildcard tests/test_*.py)
# Three processes for the long tests, which wait half of the time.
LONG_PLATFORMS := tests/docs tests/executors
LONG_TOOLS := $(filter-out tests/docs,$(HALF))
LONG := test-long-training test-long-platforms test-long-tools

# Threads of linear algebra in one process would wait for the other process.
check test test-long: export OPENBLAS_NUM_THREADS := 1

test: .venv/.ready
	@$(MAKE) --no-print-directory --jobs=2 --keep-going test-first-half test-second-half

test-first-half: .venv/.ready
	@$(BIN)/pytest -m "not long" --durations=15 $(HALF)

test-second-half: .venv/.ready
	@$(BIN)/pytest -m "not long" --durations=15 $(addprefix --ignore=,$(HALF)) tests

# All tests on a clean clone, in three processes: one waits half of the time.
check: .venv/.ready servers
	@$(MAKE) --no-print-directory --jobs=3 --keep-going $(LONG) test-first-half test-second-half

test-long: .venv/.ready servers
	@$(MAKE) --no-print-directory --jobs=3 --keep-going $(LONG)

# Debian's servers, which some of the long tests start for themselves; those tests are skipped where they cannot be had.
servers:
	@command -v prometheus >/dev/null && ls /usr/lib/postgresql/*/bin/initdb >/dev/null 2>&1 \
		|| (apt-get update -qq && RUNLEVEL=1 DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends \
		prometheus postgresql) >/dev/null 2>&1 || echo "prometheus and postgresql cannot be installed here"
	@command -v slurmctld >/dev/null && command -v slurmd >/dev/null && command -v munged >/dev/null \
		|| (apt-get update -qq && RUNLEVEL=1 DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends \
		slurm-wlm munge) >/dev/null 2>&1 || echo "slurm-wlm cannot be installed here"
	@command -v chromium >/dev/null \
		|| (apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends \
		chromium) >/dev/null 2>&1 || echo "chromium cannot be installed here"

test-long-platforms: .venv/.ready
	@$(BIN)/pytest -m long --timeout=1200 --durations=25 $(LONG_PLATFORMS)

test-long-tools: .venv/.ready
	@$(BIN)/pytest -m long --timeout=1200 --durations=25 $(LONG_TOOLS)

test-long-training: .venv/.ready
	@$(BIN)/pytest -m long --timeout=1200 --durations=25 $(addprefix --ignore=,$(LONG_PLATFORMS) $(LONG_TOOLS)) tests

lint: .venv/.ready
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports

docs: .venv/.ready
	@$(BIN)/sphinx-build --fail-on-warning --keep-going --quiet -b html docs docs/_build/html
	@echo "docs/_build/html/index.html"

# The wheel in an empty environment, without extras.
release-check: .venv/.ready
	@$(BIN)/pytest tests/test_release.py -m long --timeout=1200

# QUICK=1 runs a shorter form: fewer repetitions, the same cases. SMOKE=1 only shows that it runs.
bench: .venv/.ready
	@$(BIN)/python -m benchmarks.$(NAME) $(TABLES)

# The GPUs of this machine in ten minutes, with the PyTorch of PYTHON: benchmarks/gpu.py and the few packages it needs.
GPU_VENV := .gpu-venv

gpu-check:
	@$(PYTHON) -c 'import sys, torch; sys.exit(not torch.cuda.is_available())' 2>/dev/null \
		|| { echo "gpu-check needs a GPU and a PyTorch that finds it; $(PYTHON) has none here." >&2; exit 1; }
	@$(PYTHON) -m venv --system-site-packages $(GPU_VENV)
	@$(PYTHON) -c 'import site; print(*site.getsitepackages(), sep="\n")' \
		> "$$($(GPU_VENV)/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/packages-of-python.pth"
	@$(GPU_VENV)/bin/python -m pip install --quiet --disable-pip-version-check -r benchmarks/gpu-requirements.txt
	@PYTHONPATH=$(CURDIR) $(GPU_VENV)/bin/python -m benchmarks.gpu
	@echo benchmarks/results/gpu.json

# CUDA packages stay out of the lock: with the exact pin of torch a CPU build is taken where one is at hand.
lock: .venv/.ready
	@$(BIN)/python -m pip install --quiet uv
	@printf 'torch==2.13.0\n' > .venv/pins.txt
	@(echo "# Made by: make lock"; $(BIN)/uv pip compile pyproject.toml --all-extras --universal --python-version 3.10 \
		-c .venv/pins.txt --no-header --no-annotate --quiet | grep -v -P '^(cuda-|nvidia-(?!ml-py)|triton)') > .venv/lock.txt
	@mv .venv/lock.txt constraints.txt

clean:
	@rm -rf .venv $(GPU_VENV) out build dist docs/_build docs/_made *.egg-info
