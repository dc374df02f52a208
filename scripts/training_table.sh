#!/usr/bin/env bash
# What fine-tuning for chains buys: after scripts/train_loop.sh, the same questions of the test world by the un-tuned model, by the model
# fine-tuned without chains (question and passages to answer; the paper's baseline) and by the one fine-tuned for chains.
#   bash scripts/training_table.sh 100       so many test questions; run it again to go on
set -euo pipefail
limit=${1:-100}
cd "$(dirname "${BASH_SOURCE[0]}")/.."
export PATH="$PWD/.venv/bin:$PATH"
export MALLOC_MMAP_MAX_=0 MALLOC_TRIM_THRESHOLD_=17179869184 MALLOC_TOP_PAD_=268435456 MALLOC_ARENA_MAX=1
out=results/train_loop
# The same questions, and the same ones set aside; rows without chains.
corag rows $out/warm-start/chains $out/round-1/chains --rows.tasks no_chain --rows.validation 0.04 --rows.max_length 1024 \
    --retriever.index $out/train-bm25,$out/train-dense --out $out/control/rows >&2
accelerate launch --cpu --num_processes 1 --num_machines 1 --mixed_precision no --dynamo_backend no training/sft.py \
    --config training/configs/cpu.yaml --rows $out/control/rows --out $out/control/adapter >&2
sweep=(--config scripts/configs/decoding.yaml --questions "$out/test-world/test.jsonl" --limit "$limit"
    --retriever.index "$out/test-bm25,$out/test-dense")
corag sweep "${sweep[@]}" --cells scripts/configs/training_cells_untuned.yaml --out $out/table >&2
corag sweep "${sweep[@]}" --cells scripts/configs/training_cells_control.yaml --model.adapter $out/control/adapter --out $out/table >&2
corag sweep "${sweep[@]}" --cells scripts/configs/training_cells_tuned.yaml --model.adapter $out/round-1/adapter --out $out/table >&2
corag table $out/table/*/
