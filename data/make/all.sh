#!/usr/bin/env bash
# Remake the demo's drafters and captures from nothing: about three hours on two cores. Each step goes on where it stopped.
set -euo pipefail
cd "$(dirname "$0")/../.."
python=${PYTHON:-build/env/bin/python}
$python data/make/target.py
for split in train heldout other; do $python data/make/answers.py --split $split; done
$python data/make/train.py --name healthy --streams 2 15 27 --samples 20000 --early 0.1 0.4
$python data/make/train.py --name embedding_fed --streams 0 2 15 --samples 12000 --config-streams 2 15 27
$python data/make/captures.py
