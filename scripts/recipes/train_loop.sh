#!/usr/bin/env bash
# CoRAG's whole training on the embedded world, on CPU: chains from one fictional universe, an adapter, and
# the table of it on another universe with its own names and facts, so that nothing can be known by heart. Run
# it again to go on.
#   bash scripts/recipes/train_loop.sh        into results/train_loop, tested on 40 questions
#   bash scripts/recipes/train_loop.sh 100    tested on 100
set -euo pipefail
limit=${1:-40}
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
bash scripts/install.sh
export PATH="$PWD/.venv/bin:$PATH"
out=results/train_loop
bash scripts/recipes/world_indexes.sh $out/train --seed 1 --train 600 --test 50
bash scripts/recipes/world_indexes.sh $out/test --seed 0 --train 200 --test 200
corag rounds --config training/configs/world_rounds.yaml --questions $out/train/train.jsonl \
    --retriever.index $out/train-bm25,$out/train-dense --test.questions $out/test/test.jsonl \
    --test.retriever.index $out/test-bm25,$out/test-dense --test.limit $limit --out $out >&2
corag table $out/untuned/test/corag $out/warm-start/test/corag $out/round-1/test/corag
