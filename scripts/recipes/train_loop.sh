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
corag world $out/train-world --seed 1 --passages 1000 --train 600 --dev 50 --test 50 >&2
corag world $out/test-world --seed 0 --passages 1000 --train 200 --dev 50 --test 200 >&2
for world in train test; do
    for kind in bm25 dense; do
        corag index $out/$world-world/corpus.jsonl --out $out/$world-$kind --kind $kind >&2
    done
done
corag rounds --config training/configs/world_rounds.yaml --questions $out/train-world/train.jsonl \
    --retriever.index $out/train-bm25,$out/train-dense --test.questions $out/test-world/test.jsonl \
    --test.retriever.index $out/test-bm25,$out/test-dense --test.limit $limit --out $out >&2
corag table $out/untuned/test/corag $out/warm-start/test/corag $out/round-1/test/corag
