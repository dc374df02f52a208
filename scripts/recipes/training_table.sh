#!/usr/bin/env bash
# What fine-tuning for chains buys: after 'corag rounds' with a warm start and one round in FOLDER, the same
# held-out questions by the un-tuned model, by the model fine-tuned without chains on the same questions
# (passages to answer; the paper's baseline) and by the one fine-tuned for chains. Paths are relative to the
# repository. Run it again to go on.
#   bash scripts/recipes/training_table.sh FOLDER TRAINING_INDEXES LIMIT \
#       --questions FILE --retriever.index INDEXES [more options of 'corag sweep']
set -euo pipefail
folder=$1 indexes=$2 limit=$3
shift 3
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
export PATH="$PWD/.venv/bin:$PATH"
corag rows "$folder/warm-start/chains" "$folder/round-1/chains" --rows.tasks no_chain --rows.validation 0.03 \
    --rows.max_length 1536 --retriever.index "$indexes" --out "$folder/control/rows" >&2
# Two passes: no fewer tokens than the model of the chains has learned from.
control=$folder/control/adapter
corag train --config training/configs/cpu.yaml --epochs 2 --rows "$folder/control/rows" --out "$control" >&2
sweep=(--config scripts/configs/decoding.yaml --limit "$limit" --out "$folder/table" "$@")
corag sweep "${sweep[@]}" --cells scripts/configs/training_cells_untuned.yaml >&2
corag sweep "${sweep[@]}" --cells scripts/configs/training_cells_control.yaml --model.adapter "$control" >&2
corag sweep "${sweep[@]}" --cells scripts/configs/training_cells_tuned.yaml \
    --model.adapter "$folder/round-1/adapter" >&2
corag table "$folder"/table/*/
