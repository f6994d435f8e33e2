# Everything runs in a virtual environment that the first target to need it makes; Slurm comes from Debian's packages.
SHELL := /bin/bash
VENV := $(shell .ci/environment path)
PY := $(VENV)/bin/python
# JOBS: of the benchmarks that read it, which among the tests only have to run.
PARALLEL := -n auto --dist loadfile --no-loadscope-reorder --benchmark-disable

.PHONY: $(shell sed -nE 's/^([a-z0-9-]+):.*/\1/p' $(MAKEFILE_LIST))

help: ## this list
	@sed -nE 's/^([a-z0-9-]+):.*## (.*)/  make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 24

install: ## the virtual environment, and Slurm from Debian's packages where it is missing
	@.ci/environment make

demo: install ## a throwaway Slurm cluster, 34 training jobs, the daemon, and what it did: under 4 minutes
	@.ci/as-root $(VENV)/bin/slurmplug sandbox demo .demo

test: install ## every test: unit, property, live on a real Slurm; TESTS= some of them; SLURM=PREFIX CLIENT=pyslurm
	@.ci/as-root env JOBS=1000 SLURM=$(SLURM) CLIENT=$(CLIENT) $(PY) -m pytest $(PARALLEL) $(TESTS)

test-rl: install ## the tests of training, with the libraries of the extra rl, which are installed for it: torch is large
	@.ci/environment make-rl
	@.ci/as-root $(PY) -m pytest $(PARALLEL) -m rl $(TESTS)

train: install ## the models that slurmplug comes with, trained anew: under an hour
	@.ci/environment make-rl
	$(VENV)/bin/slurmplug train dl2 --out policies/models/dl2.safetensors
	$(VENV)/bin/slurmplug train dl2 --workload 'gen:dl2?servers=on' --set clusters='["8x4x16x131072","16x4x16x131072"]' \
		--set jobs=150 --set workloads=32 --set samples=16 --set passes=20 --out policies/models/dl2-servers.safetensors
	$(VENV)/bin/slurmplug train mlf-rl --out policies/models/mlf-rl.safetensors
	rm -rf policies/models/*.run

test-debian-13: ## the unit and property tests on a Debian 13 that is made in /var/cache, where this may be done
	@.ci/as-root .ci/debian-13 make test TESTS="tests/unit tests/property"

test-web: docs ## the web pages and the documentation in Chromium, with axe-core: what it loads, contrast, keyboard, search; installs Chromium, which is large
	@.ci/environment make-web
	@.ci/as-root $(PY) -m pytest tests/browser

test-failed: install ## what failed in the last test run, once more
	@.ci/as-root $(PY) -m pytest --last-failed --last-failed-no-failures=none

lint: install ## ruff, mypy --strict, import-linter
	$(VENV)/bin/ruff check . && $(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy
	$(VENV)/bin/lint-imports

bench: install ## how long things take, with pytest-benchmark
	@.ci/as-root $(PY) -m pytest tests/bench --benchmark-only --benchmark-columns=median,iqr,rounds -q

bench-live: install ## real jobs under Slurm alone and under policies, rigid ones and elastic ones: an hour and a half
	@.ci/as-root $(PY) -m tests.bench.live rigid --seeds 6 --policy mlfs
	@.ci/as-root $(PY) -m tests.bench.live elastic --seeds 3 --policy fair --policy mlfs

bench-starts: install ## when squeue --start and slurmplug say that real jobs start, and when they do: 40 minutes
	@.ci/as-root $(PY) -m tests.bench.live_starts --seeds 4 --first-seed 1

fidelity: install ## 40 real jobs under the daemon and in the simulator, and the figures: 3 minutes
	@.ci/as-root $(PY) -m pytest -s tests/live/test_fidelity.py

chaos: install ## the daemon killed at every step of every operation, and all around it failing: half an hour; SEED=n
	@.ci/as-root $(PY) -m tests.live.chaos.run --seed $(or $(SEED),1)

soak: install ## two hours beside a busy cluster: memory, descriptors, ledger and log stay level; build/soak has the plot
	@.ci/as-root $(PY) -m tests.live.soak

nightly: install ## what takes too long for every commit: a million inputs that are nearly right, over every parser
	@$(PY) -m tests.bench.fuzz.run

cheat: install ## cheaters beside their honest twins, and the bounds of docs/security.md: 15 minutes; ROWS= some of them
	@.ci/as-root $(PY) -m tests.cheat.run $(ROWS)

results: install ## the tables of docs/results.md, made anew: half an hour on two cores; DATA= the folder with workloads that are not ours
	$(PY) -m docs.make_results

bench-scale: install ## a cycle with 100,000 jobs that are made up, and beside a real slurmctld with 10,000: 10 minutes
	@$(PY) -m tests.bench.scale --made-up --jobs 100000
	@.ci/as-root $(PY) -m tests.bench.scale

docs: install ## the documentation as a site, in build/docs: open build/docs/index.html
	@.ci/environment make-docs
	@rm -rf build/docs
	$(PY) -m docs.make_site build/docs-source
	$(PY) -m sphinx -q -n -W --keep-going -c docs -d build/docs-source/.doctrees build/docs-source build/docs

man: install ## the manual pages, in build/man: man -M build/man slurmplug; packages have them
	$(PY) -m docs.make_manual_pages build/man

figures: install ## the figures of docs/predictors.md, drawn anew: a minute or two
	$(PY) docs/make_figures.py

test-docker: install ## a cluster of containers (a node lost, the network cut, a takeover, the demo), the Ansible role, the package: 20 minutes
	@.ci/as-root $(PY) -m pytest tests/docker

test-upgrade: install ## from the package of 0.1.0 to this commit's, beside a real Slurm; builds both: 5 minutes
	@.ci/as-root $(PY) -m pytest tests/docker/test_upgrade.py

test-matrix: ## the live tests on the Slurm of Debian 12, 13 and sid, each in a container
	@for release in bookworm trixie sid; do .ci/as-root docker/matrix $$release || exit; done

package: ## wheels of slurmplug and slurmplug-report in dist, and a Debian package beside this folder
	@command -v dpkg-checkbuilddeps >/dev/null || { echo "a Debian package needs: apt-get install dpkg-dev debhelper python3-venv python3-pip" >&2; exit 1; }
	@dpkg-checkbuilddeps || { echo "install them: apt-get build-dep ." >&2; exit 1; }
	@python3 -m pip --version >/dev/null || { echo "a wheel needs: apt-get install python3-pip" >&2; exit 1; }
	python3 -m pip wheel --no-deps --wheel-dir dist ./slurmplug_report .
	dpkg-buildpackage --build=binary --unsigned-source --unsigned-changes

rpm: ## an RPM, in dist: on a machine of the release that it is for; PYTHON= its Python, else /usr/bin/python3.12
	@command -v rpmbuild >/dev/null || { echo "an RPM needs: dnf install rpm-build (Debian: apt-get install rpm)" >&2; exit 1; }
	@command -v $(or $(PYTHON),/usr/bin/python3.12) >/dev/null || { echo "the RPM's Python is missing: install it, or name another, as in make rpm PYTHON=/usr/bin/python3.11" >&2; exit 1; }
	rpmbuild -bb --build-in-place --define "_rpmdir $(CURDIR)/dist" $(if $(PYTHON),--define "python $(PYTHON)") packaging/slurmplug.spec

clean: ## the virtual environment and what the demo left
	rm -rf .venv .demo .sandbox build *.egg-info
