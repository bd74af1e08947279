# What people and CI type. Everything runs in .venv, made from the machine's python3 by `make install`.

PYTHON ?= python3
BIN := .venv/bin
LOCK := tests/requirements.txt
STAMP := .venv/installed
FILE ?= examples/quickstart.yml
MINUTES ?= 45
SUDO := $(shell [ "$$(id -u)" = 0 ] || echo sudo)
# a new member of a group is one from the next login on; sg takes it up at once
AS_MEMBER := $(if $(SUDO),sg incus-admin -c,sh -c)

export PATH := $(CURDIR)/$(BIN):$(PATH)
export PROVISION_TEST_STARTED ?= $(shell date +%s)

.DEFAULT_GOAL := help
.PHONY: help install up test test-changed test-all bench cuda-build lint snapshots generate lock collection collection-pages dist execution-environment clean

help: ## these lines
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 12

install: $(STAMP) ## make .venv with the pinned, hash-checked set and the project in editable mode

$(STAMP): $(LOCK) pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "$(PYTHON) is older than Python 3.11: name another one, make PYTHON=python3.12 install" >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip' || { echo "$(PYTHON) cannot make a venv: apt install python3-venv" >&2; exit 1; }
	@[ -x $(BIN)/python ] || $(PYTHON) -m venv .venv
	@echo "installing $(LOCK) into .venv"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes --requirement $(LOCK)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@touch $@

up: install ## bare machine to answering model: prepare the host, generate missing secrets, make FILE true
	$(SUDO) $(BIN)/provision host prepare
	$(BIN)/provision init --secrets $(FILE)
	$(AS_MEMBER) "$(BIN)/provision up $(FILE) --yes"

test: install ## what shows that the product works here: linters, unit tests, contract, a whole lab, every promise
	$(BIN)/pytest --numprocesses 2 --core

test-changed: install ## the integration tests and scenarios that try what changed, begun before MINUTES are over
	$(BIN)/pytest --numprocesses 2 --changed --until-minutes $(MINUTES) tests/integration tests/molecule

test-all: install ## everything, on every distribution, slow legs included; goes on after an interruption; SHARD=2/6 for a part
	$(BIN)/pytest --all --go-on $(if $(SHARD),--shard $(SHARD))

bench: install ## figures, side by side with what others need
	$(BIN)/python -m benchmarks

cuda-build: install ## how long llama.cpp for CUDA takes to build (half an hour or more); ARGUMENTS="--by-hand" compares with CMake alone
	$(BIN)/python -m benchmarks.cuda_build $(ARGUMENTS)

lint: install ## ruff, mypy, ansible-lint, yamllint, import contract, shellcheck, generated files
	$(BIN)/pytest tests/lint

snapshots: install ## write the texts that tests compare anew; read the diff before you commit it
	$(BIN)/pytest --numprocesses 2 --snapshot-update tests/unit

generate: install ## write what follows from the roles' pages: defaults, README tables, site and verify playbooks; the manual page
	$(BIN)/python -m provisioner.generate

lock: install ## choose the newest versions of the development set anew
	$(BIN)/uv pip compile --no-config --quiet --upgrade --universal --python-version 3.11 --generate-hashes \
		--no-emit-index-url --no-annotate --no-header --extra dev pyproject.toml --output-file $(LOCK)
	echo twine | $(BIN)/uv pip compile --no-config --quiet --upgrade --universal --python-version 3.11 --generate-hashes \
		--no-emit-index-url --no-annotate --no-header - --output-file .ci/twine.txt
	printf '%s\n' antsibull-docs sphinx sphinx-ansible-theme | $(BIN)/uv pip compile --no-config --quiet --upgrade --universal --python-version 3.11 \
		--generate-hashes --no-emit-index-url --no-annotate --no-header - --output-file .ci/antsibull.txt

collection: install ## dist/provisioner-inference-VERSION.tar.gz, the roles and modules for everybody's playbooks (docs/own-playbooks.md)
	$(BIN)/python .ci/collection.py dist

collection-pages: install ## dist/collection-pages, a page of each module, plugin and role of the collection (docs/own-playbooks.md)
	$(BIN)/python .ci/collection_pages.py dist/collection-pages

dist: install ## dist/provisioner-VERSION: wheel and sdist of what git knows, looked through by twine (docs/releases.md)
	$(BIN)/python .ci/dist.py dist

execution-environment: dist collection ## dist/execution-environment, of which ansible-builder makes an image for AWX (docs/own-playbooks.md)
	$(BIN)/python .ci/execution_environment.py dist

clean: ## remove what can be made again here (not the caches in the home folder)
	rm -rf .venv dist build .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .ansible .cache
	find . -name __pycache__ -prune -exec rm -rf {} +
