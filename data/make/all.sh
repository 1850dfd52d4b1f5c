#!/usr/bin/env bash
# Remake the demo's drafters and captures from nothing: about four hours on two cores. Each step goes on where it stopped.
set -euo pipefail
cd "$(dirname "$0")/../.."
python=${PYTHON:-build/env/bin/python}
$python data/make/target.py
$python data/make/answers.py --split train --limit 2400
$python data/make/answers.py --split heldout --limit 96
$python data/make/answers.py --split other --limit 96
$python data/make/train.py --name healthy --streams 2 15 27 --samples 9000 --early 0.166 0.4375
$python data/make/train.py --name embedding_fed --streams 0 2 15 --samples 7500 --config-streams 2 15 27
[ -d data/captures/heldout ] || $python data/make/captures.py  # committed; delete the folder to record it again
$python data/make/score.py
$python data/make/figure.py
