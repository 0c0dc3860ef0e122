# make measure   the main job: every architecture by every counter, on screen and as CSV in the run's folder;
#                then every counter on the cases that some counter was reported to get wrong, the scoreboard;
#                then five architectures timed on this CPU, and their utilization
# make test      all tests, on the newest torch
# make test-p100 all tests, on the last torch that has kernels for the P100
# make gpu       the timed experiments on this machine's GPU, on the last torch that has kernels for the P100
# make bench     the cost of counting and of timing, as ratios
# make lint      ruff and mypy
# make clean     removes what make and the tests made, but no saved run
#
# Each sets up the virtual environment that it needs, again only when a list of requirements changes.
# Needs python3 (3.11 or later) with venv, make, and the network the first time. PYTHON=python3.12 picks another.

PYTHON ?= python3
READY := .venv/ready
READY_P100 := .venv-p100/ready
TIMED := resnet18,resnet50,alexnet,mobilenet_v2,efficientnet_b0
LISTS := requirements.txt requirements-counters.txt

.DELETE_ON_ERROR:
.PHONY: measure test test-p100 gpu bench lint clean

measure: $(READY)
	.venv/bin/python -m measurements measure
	.venv/bin/python -m pytest -q --experiment A14
	.venv/bin/python -m pytest -q -m cpu --experiment A11 --arch $(TIMED)

test: $(READY)
	.venv/bin/python -m pytest

test-p100: $(READY_P100)
	.venv-p100/bin/python -m pytest

gpu: $(READY_P100)
	.venv-p100/bin/python -m pytest -m gpu

bench: $(READY)
	.venv/bin/python -m pytest -m bench

lint: $(READY)
	.venv/bin/ruff check .
	.venv/bin/ruff format --check .
	.venv/bin/mypy --strict measurements models

clean:
	rm -rf .venv .venv-p100 .pytest_cache .mypy_cache .ruff_cache .hypothesis .benchmarks
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(READY): $(LISTS)
$(READY_P100): $(LISTS) requirements-p100.txt
$(READY_P100): LISTS := requirements-p100.txt requirements-counters.txt

# The file `ready` is the stamp: it is written when everything is installed.
%/ready:
	@$(PYTHON) -c 'import sys; sys.version_info >= (3, 11) or sys.exit("needs Python 3.11 or later; $(PYTHON) is " + sys.version.split()[0] + ": make PYTHON=python3.12 …")'
	@$(PYTHON) -c 'import ensurepip, venv' || { echo 'needs the venv module of $(PYTHON); has none: on Debian or Ubuntu, apt install python3-venv' >&2; exit 1; }
	$(PYTHON) -m venv --clear $*
	$*/bin/python -m pip install --quiet $(addprefix -r ,$(LISTS))
	sed -n 's/^# apart: \([a-z-]*\)\([^ ]*\).*/\1 \2/p' requirements-counters.txt | while read -r name range; do \
	  $*/bin/python -m pip install --quiet --no-deps --target $*/apart/$$name "$$name$$range" || exit; \
	done
	@touch $@
