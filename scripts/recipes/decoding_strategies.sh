#!/usr/bin/env bash
# One-step retrieval and CoRAG under every decoding strategy, in one table: on the embedded world, or on a
# question file that brings its own paragraphs (the corpus is their union: call those figures
# pooled-distractor, never open). Run it again to go on.
#   bash scripts/recipes/decoding_strategies.sh world LIMIT [more options of 'corag sweep']
#   bash scripts/recipes/decoding_strategies.sh hotpotqa LIMIT QUESTIONS [more options of 'corag sweep']
set -euo pipefail
dataset=$1 limit=$2
shift 2
[ "$dataset" = world ] || questions=$(realpath "$1")
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
bash scripts/install.sh
export PATH="$PWD/.venv/bin:$PATH"
if [ "$dataset" = world ]; then
    questions=results/world/test.jsonl indexes=results/world dataset=jsonl
    bash scripts/recipes/world_indexes.sh results/world --train 200 --test 200
else
    shift
    indexes=$(bash scripts/recipes/pooled_indexes.sh "$dataset" "$questions")
fi
corag sweep --config scripts/configs/decoding.yaml --cells scripts/configs/decoding_cells.yaml \
    --dataset "$dataset" --questions "$questions" --limit "$limit" \
    --retriever.index "$indexes-bm25,$indexes-dense" "$@"
