# Every job a person does with this tree. `make help` lists them.
SHELL := /bin/bash
.DEFAULT_GOAL := help
# Bytecode is what keeps start-up fast; a machine may have switched it off.
unexport PYTHONDONTWRITEBYTECODE
PY := .venv/bin/python
SYSTEM_RUN := git iproute2 python3 python3-pytest slirp4netns sqlite3
SYSTEM_TEST := $(SYSTEM_RUN) aardvark-dns chromium docker-registry gcc hyperfine iptables libc6-dev mmdebstrap netavark podman podman-compose postgresql rabbitmq-server redis-server runc tmux uidmap valgrind
SYSTEM_BENCH := $(SYSTEM_TEST) bubblewrap
SYSTEM_CLUSTER := $(SYSTEM_RUN) postgresql rabbitmq-server redis-server
JOBS ?= 3
BROKER ?= redis
WORKERS ?= 2
CONTAINERS ?= podman

.PHONY: help setup ui demo test coverage check bench bench-stats perf-baseline soak docs clean doctor lock keeper keeper-check wheel image sbom check-deploy cluster cluster-demo

help: ## list what can be made
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## (.*)/  make \1\t\2/' | expand -t 20

setup: ## install what running needs, in .venv
	@scripts/setup.sh run $(SYSTEM_RUN)
	@$(PY) scripts/ui.py || true

ui: ## build the web page; `make setup` does so too when ui/ has changed
	@scripts/setup.sh run
	@$(PY) scripts/ui.py

demo: setup ## a sweep, a comparison, rollouts and their reports, in under a minute
	@scripts/demo.sh

cluster: ## a cluster on this machine: PostgreSQL, BROKER=redis, an S3 endpoint, a server, WORKERS=2; Ctrl-C ends it
	@scripts/setup.sh dev $(SYSTEM_CLUSTER)
	@$(PY) scripts/ui.py || true
	@$(PY) scripts/cluster.py --broker $(BROKER) --workers $(WORKERS)

cluster-demo: ## the same, with a spec that runs on it and its page
	@scripts/setup.sh dev $(SYSTEM_CLUSTER)
	@$(PY) scripts/ui.py || true
	@$(PY) scripts/cluster.py --broker $(BROKER) --workers $(WORKERS) --demo

test: ## install what the tests need, and run them; COVERAGE=1 holds the coverage bars too
	@scripts/setup.sh dev $(SYSTEM_TEST)
	@$(PY) scripts/ui.py packages && $(PY) scripts/ui.py
	@$(PY) -m compileall -q src
	@JOBS=$(JOBS) scripts/tests.sh $(if $(COVERAGE),--cov --cov-report=) $(PYTEST_ARGS)
	@$(if $(COVERAGE),scripts/coverage.sh)

coverage: ## the tests with the coverage bars held: 90 % of src, 98 % of model, spec, plan, analysis
	@$(MAKE) --no-print-directory test COVERAGE=1

check: ## lint, types and import layers
	@scripts/setup.sh dev
	@.venv/bin/ruff check
	@.venv/bin/ruff format --check
	@.venv/bin/mypy
	@.venv/bin/lint-imports --no-cache
	@$(PY) scripts/ui.py check

check-deploy: ## Terraform, policies of what is deployed, workflows, compose; needs terraform
	@scripts/setup.sh dev
	@scripts/check_deploy.sh

wheel: ## the wheel with the web page, in dist/
	@scripts/setup.sh dev
	@$(PY) scripts/ui.py
	@rm -f dist/*.whl
	@.venv/bin/uv build -q --wheel --no-build-isolation

image: wheel ## images of server and worker, by CONTAINERS=podman, on BASE=docker.io/library/debian@sha256:…
	@case '$(BASE)' in *@sha256:*|localhost/*) ;; *) echo "make image: BASE is the base image by its digest; see deploy/images/Containerfile" >&2; exit 2;; esac
	@for target in server worker; do \
	  $(CONTAINERS) build --format docker -f deploy/images/Containerfile --target $$target -t localhost/proctor-$$target:latest --build-arg BASE=$(BASE) $(BUILD_ARGS) . || exit 1; done

sbom: ## what is in the images' Python, as CycloneDX, in dist/
	@scripts/check_deploy.sh sbom

bench: ## Proctor's own benchmarks, side by side with peers
	@scripts/setup.sh bench $(SYSTEM_BENCH)
	@for each in harness_cost store_cost start_up precision sandbox_cycle first_rollout task_trials podman_overhead image_pull many_agents terminal_commands \
	  perf_harness large_run comparison_quality command_timing page_speed; do \
	  echo "== benchmarks/$$each.py"; $(PY) benchmarks/$$each.py || exit 1; done

bench-stats: ## what the statistics and the gate promise: simulated suites, and repeated runs on this machine
	@scripts/setup.sh dev
	@$(PY) benchmarks/simulated_studies.py
	@$(PY) benchmarks/race_quality.py
	@$(PY) benchmarks/gate_quality.py
	@$(PY) benchmarks/gate_quality.py real

perf-baseline: ## run the 1,000-episode baseline of the harness again, with its charts and its page
	@scripts/setup.sh run $(SYSTEM_RUN)
	@$(PY) scripts/perf_baseline.py

soak: ## long runs: many kill -9 rounds, many trials
	@scripts/setup.sh dev $(SYSTEM_TEST)
	@PROCTOR_SOAK=1 $(PY) -m pytest -n $(JOBS) -m fault tests

docs: ## write the generated reference, then check that every command and file in the docs works
	@scripts/setup.sh dev
	@$(PY) scripts/reference.py
	@$(PY) -m pytest tests/test_docs.py

doctor: setup ## what works on this machine, and why not
	@.venv/bin/proctor doctor

keeper: ## build the sandboxes' keeper for every processor it ships for; commit what it makes
	@scripts/keeper.sh

keeper-check: ## build it anew for PROCESSORS (all) and compare with what is committed
	@scripts/keeper.sh --check $(PROCESSORS)

lock: ## pin dependencies anew
	@scripts/setup.sh dev
	@scripts/lock.sh

clean: ## remove everything that can be made again
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache .coverage* build dist demo ui/node_modules src/proctor/server/static
	find src tests -name __pycache__ -type d -prune -exec rm -rf {} +
