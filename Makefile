# Every verb sets up what it needs. `make help` lists the verbs.

SHELL := /bin/sh
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

ARGS ?=
TEST_WORKERS ?= 2
COVERAGE_MIN ?= 90

# Learning proofs, reference numerics and exported networks.
ROUNDING := tests/robot_rl/training/test_learning.py tests/robot_rl/learners tests/robot_rl/training/test_resume.py \
  tests/policies tests/contracts/test_learner.py

# Spinning OpenMP threads of torch make each other ten times slower where cores are shared.
export OMP_WAIT_POLICY ?= passive

# A sourced ROS 2 has Python packages and libraries of its own: its plug-ins of pytest, and another
# rclpy than that of .venv, would be loaded here.
unexport PYTHONPATH AMENT_PREFIX_PATH
ifdef LD_LIBRARY_PATH
space := $(subst ,, )
export LD_LIBRARY_PATH := $(subst $(space),:,$(filter-out /opt/ros/%,$(subst :, ,$(LD_LIBRARY_PATH))))
endif

# A set-up is ready while a stamp for these dependencies and this folder exists and Python is there.
PY := .venv/bin/python
SUM := $(shell { pwd -P; cat pyproject.toml constraints.txt; } | cksum | tr ' ' '-')
KEY := $(SUM)$(shell test -x $(PY) || echo -broken)
TRAIN_READY := .venv/.ready-train-$(KEY)
DEMO_READY := .venv/.ready-demo-$(KEY)
DEV_READY := .venv/.ready-dev-$(KEY)
BENCH_READY := .venv/.ready-bench-$(KEY)
ADAPTERS_PY := .venv-adapters/bin/python
ADAPTERS_READY := .venv-adapters/.ready-adapters-$(SUM)$(shell test -x $(ADAPTERS_PY) || echo -broken)

# A thousand steps in each of four worlds of mjlab's Go1.
GO1_RUN := env=mjlab env.id=Mjlab-Velocity-Flat-Unitree-Go1 device=cpu num_envs=4 \
  training.total_steps=4000 training.random_steps=400 training.replay_capacity=4000 \
  training.updates_per_step=1 training.evaluation_interval=4000 training.evaluation_episodes=4 \
  learner.batch_size=64 learner.actor.hidden=[64] learner.critic.hidden=[64] \
  env.settings.episode_length_s=2

# One robot that walks on until it falls, and is asked for what the sliders say.
DEMO := num_envs=1 task.episode_length=600 task.goal_time=600 open=true

# The first Python that runs and is new enough, unless PYTHON says which (used when .venv is made).
CANDIDATES := $(or $(PYTHON),python3.13 python3.12 python3.11 python3)
define set_up
@for python in $(CANDIDATES); do \
  if "$$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then \
    exec "$$python" .ci/setup.py $(subst -broken,,$@) $(1); \
  fi; \
done; \
echo "No Python >= 3.11 found; looked for: $(CANDIDATES)."; \
echo "Install one (Debian and Ubuntu: apt install python3 python3-venv) or name it: make PYTHON=/path/to/python ..."; \
exit 1
endef

.PHONY: help setup train demo test test-fast test-all test-isa check format proof race bench adapters docs clean distclean

help:  ## List the verbs
	@echo "robot_rl: each verb sets up what it needs (in .venv) when it is first used."
	@echo
	@sed -n 's/^\([a-z-]*\):[^#]*## /  make \1|/p' Makefile | awk -F'|' '{printf "%-17s %s\n", $$1, $$2}'
	@echo
	@echo '  ARGS="..."      is handed on by train, demo, test, test-fast, test-all, test-isa, proof, race and bench: make train ARGS="task=tracking seed=2"'
	@echo '  PYTHON=...      the Python that .venv is made with (>= 3.11)'

setup: $(DEV_READY)  ## Only install, for working on the code
	@echo "Ready: .venv holds what every verb but bench and adapters needs."

train: $(TRAIN_READY)  ## Train a policy: quadrotor hover, or what ARGS says
	@$(PY) -m robot_rl.cli train $(ARGS)

demo: $(DEMO_READY)  ## Watch a trained Go2 walk in the browser; push it and steer it
	@$(PY) -m robot_rl.cli view zoo:go2-velocity $(DEMO) $(ARGS)

test: $(DEV_READY)  ## Run all tests that this machine can run, with coverage
	@$(PY) -m pytest -n $(TEST_WORKERS) --dist worksteal --cov --cov-report=term --cov-fail-under=$(COVERAGE_MIN) $(ARGS)

test-fast: $(DEV_READY)  ## Run the quick tests, in about a minute
	@$(PY) -m pytest -n $(TEST_WORKERS) --dist worksteal -m "not slow" $(ARGS)

test-isa: $(DEV_READY)  ## Run what depends on rounding under each instruction set of this machine
	@for isa in avx2 avx512 native; do \
	  .venv/bin/python tests/instruction_set.py $$isa -m pytest -q -p no:cacheprovider $(or $(ARGS),$(ROUNDING)) || exit 1; \
	done

test-all: $(DEV_READY)  ## Run the tests with every matrix in full
	@$(PY) -m pytest -n $(TEST_WORKERS) --dist worksteal --full $(ARGS)

check: $(DEV_READY)  ## Format, lint, types, spelling and architecture
	@$(PY) -m ruff format --check .
	@$(PY) -m ruff check .
	@$(PY) -m pyright
	@.venv/bin/codespell
	@$(PY) -m pytest -q -p no:cacheprovider tests/test_architecture.py

format: $(DEV_READY)  ## Format the code and mend what the linter can mend
	@$(PY) -m ruff format .
	@$(PY) -m ruff check --fix .

proof: $(TRAIN_READY)  ## Run the long learning proofs and write their tables (one to two hours)
	@$(PY) -m scripts.proofs $(ARGS)

race: $(BENCH_READY)  ## Race our learners against others and each other (hours)
	@$(PY) -m scripts.races $(ARGS)

bench: $(BENCH_READY)  ## Measure the speed of this machine
	@$(PY) -m scripts.bench $(or $(ARGS),all)

adapters: $(ADAPTERS_READY)  ## Test the adapter to mjlab against mjlab itself, and train its Go1 (own environment, CPU)
	@$(ADAPTERS_PY) -m pytest -q -p no:cacheprovider tests/sim/adapters/torch_envs/test_mjlab.py $(ARGS)
	@$(ADAPTERS_PY) -m robot_rl.cli train $(GO1_RUN)

docs: $(DEV_READY)  ## Build the documentation as a site, and check that every link leads somewhere
	@$(PY) -m pytest -q -p no:cacheprovider tests/test_docs.py
	@$(PY) -m scripts.site $(ARGS)

clean:  ## Remove caches and builds; keeps runs and .venv
	@rm -rf build dist *.egg-info .coverage .coverage.* .pytest_cache .ruff_cache .hypothesis
	@find . -name __pycache__ -not -path './.venv/*' -prune -exec rm -rf {} +

distclean: clean  ## clean, and remove .venv and .venv-adapters; keeps runs
	@rm -rf .venv .venv-adapters

$(TRAIN_READY):
	$(call set_up,train sim)

$(DEMO_READY):
	$(call set_up,train sim ui)

$(DEV_READY):
	$(call set_up,train sim gpu ui ros2 record data sweep cluster link dev)

$(BENCH_READY):
	$(call set_up,train sim bench)

$(ADAPTERS_READY):
	$(call set_up,train mjlab side)
