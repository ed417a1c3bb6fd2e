# make demo    a small corpus, measured on a local Dask cluster
# make test    every test that needs no server
# make test-storage  those on a real S3 (Ceph) and sftp (OpenSSH), on loopback
# make test-cluster  those on a real Slurm of four nodes, on loopback
# make check   lint, types, layers: what CI runs first
# make bench   ratios against a plain loop
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
export PIP_DISABLE_PIP_VERSION_CHECK := 1

.PHONY: env demo test test-storage test-cluster check format bench clean

env: $(VENV)/ready

$(VENV)/ready: pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "statsprep needs Python 3.11 or newer: make PYTHON=python3.11 ...")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet -c constraints.txt -e '.[dev]'
	touch $@

demo: env
	$(BIN)/statsprep demo demo

# The readers of ESPnet2, which what we write is read back with; not what else they would install.
$(VENV)/peers: $(VENV)/ready
	$(BIN)/pip install --quiet --no-deps -c constraints.txt espnet h5py humanfriendly typeguard
	touch $@

test: $(VENV)/peers
	$(BIN)/python -m pytest -n 2 --dist loadfile

test-storage: env
	$(BIN)/python -m pytest tests/storage -m storage -n 2 --dist loadgroup

test-cluster: env
	$(BIN)/python -m pytest tests/cluster -m cluster

check: env
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: env
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: env
	$(BIN)/python -m pytest tests/benchmarks -m benchmark -s

clean:
	rm -rf $(VENV) demo build *.egg-info .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
