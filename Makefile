# make test: everything from a clean clone: virtual environment, pinned packages, all tests.
PYTHON ?= python3
JOBS ?= 2
VENV := .venv
BIN := $(VENV)/bin

.PHONY: test prove demo lint clean

test: $(VENV)/installed
	$(BIN)/python -m pytest -n $(JOBS)

prove: $(VENV)/installed
	$(BIN)/python -m pytest -n $(JOBS) tests/formal

demo: $(VENV)/installed
	$(BIN)/python -m scripts.demo

lint: $(VENV)/installed
	$(BIN)/ruff check .

clean:
	rm -rf build

$(VENV)/installed: requirements.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --requirement $<
	touch $@
