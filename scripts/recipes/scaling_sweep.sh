#!/usr/bin/env bash
# The curve of accuracy against tokens on the embedded world, on CPU: world, indexes, a sweep of 18 cells on
# 40 test and 40 dev questions with the adapter that comes with the package, its table and its plot in
# results/sweep-world. Run it again: it goes on where it was.
#   bash scripts/recipes/scaling_sweep.sh                 options go to 'corag sweep'
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
bash scripts/install.sh
export PATH="$PWD/.venv/bin:$PATH"
bash scripts/recipes/world_indexes.sh results/world --train 200 --test 200
corag sweep --config eval/configs/world.yaml "$@"
