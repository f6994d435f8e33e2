# Everything runs in a virtual environment that the first target to need it makes; Slurm comes from Debian's packages.
SHELL := /bin/bash
VENV := $(shell .ci/environment path)
PY := $(VENV)/bin/python
PARALLEL := -n auto --dist loadfile --no-loadscope-reorder --benchmark-disable

.PHONY: $(shell sed -nE 's/^([a-z0-9-]+):.*/\1/p' $(MAKEFILE_LIST))

help: ## this list
	@sed -nE 's/^([a-z0-9-]+):.*## (.*)/  make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 24

install: ## the virtual environment, and Slurm from Debian's packages where it is missing
	@.ci/environment make

demo: install ## a throwaway Slurm cluster, 34 training jobs, the daemon, and what it did: under 4 minutes
	@.ci/as-root $(VENV)/bin/slurmplug sandbox demo .demo

test: install ## every test: unit, property, live on a real Slurm; TESTS= some of them
	@.ci/as-root $(PY) -m pytest $(PARALLEL) $(TESTS)

test-debian-13: ## the unit and property tests on a Debian 13 that is made in /var/cache, where this may be done
	@.ci/as-root .ci/debian-13 make test TESTS="tests/unit tests/property"

test-failed: install ## what failed in the last test run, once more
	@.ci/as-root $(PY) -m pytest --last-failed --last-failed-no-failures=none

lint: install ## ruff, mypy --strict, import-linter
	$(VENV)/bin/ruff check . && $(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy
	$(VENV)/bin/lint-imports

bench: install ## how long things take, with pytest-benchmark
	@.ci/as-root $(PY) -m pytest tests/bench --benchmark-only --benchmark-columns=median,iqr,rounds -q

bench-live: install ## the same real jobs under Slurm alone and under each policy, three seeds: half an hour
	@.ci/as-root $(PY) -m tests.bench.live

fidelity: install ## 40 real jobs under the daemon and in the simulator, and the figures: 3 minutes
	@.ci/as-root $(PY) -m pytest -s tests/live/test_fidelity.py

chaos: install ## the daemon killed at every step of every operation, and all around it failing: half an hour; SEED=n
	@.ci/as-root $(PY) -m tests.live.chaos.run --seed $(or $(SEED),1)

cheat: install ## cheaters beside their honest twins, and the bounds of docs/security.md: 15 minutes; ROWS= some of them
	@.ci/as-root $(PY) -m tests.cheat.run $(ROWS)

results: install ## the tables of docs/results.md, made anew; DATA= the folder with workloads that are not ours
	$(PY) -m docs.make_results

bench-scale: install ## a cycle with 100,000 jobs that are made up, and beside a real slurmctld with 10,000: 10 minutes
	@$(PY) -m tests.bench.scale --made-up --jobs 100000
	@.ci/as-root $(PY) -m tests.bench.scale

figures: install ## the figures of docs/predictors.md, drawn anew: a minute or two
	$(PY) docs/make_figures.py

test-docker: install ## a cluster of containers: a node lost, the network cut, a takeover, the demo: 15 minutes
	@.ci/as-root $(PY) -m pytest tests/docker

test-matrix: ## the live tests on the Slurm of Debian 12, 13 and sid, each in a container
	@for release in bookworm trixie sid; do .ci/as-root docker/matrix $$release || exit; done

package: ## a wheel and a Debian package, beside this folder
	python3 -m pip wheel --no-deps --wheel-dir dist .
	dpkg-buildpackage --build=binary --unsigned-source --unsigned-changes

clean: ## the virtual environment and what the demo left
	rm -rf .venv .demo .sandbox build *.egg-info
