#!/usr/bin/env bash
# A verifier for the shipped adapter, on CPU: its own right and wrong answers in one fictional universe teach it
# to judge, and dev questions of another show whether it chooses better than the refusal score and the vote.
# Run it again to go on. Not yet run to its end here.
#   bash scripts/recipes/verifier.sh          into results/verifier, 100 dev questions
#   bash scripts/recipes/verifier.sh 300      with 300 questions to learn from (120 without)
set -euo pipefail
learn=${1:-120}
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
bash scripts/install.sh
export PATH="$PWD/.venv/bin:$PATH"
out=results/verifier
# The shipped adapter was trained on seed 1 and is tested on seed 0: neither is used here.
corag world $out/learn-world --seed 11 --passages 1000 --train 400 --dev 50 --test 50 >&2
corag world $out/dev-world --seed 12 --passages 1000 --train 100 --dev 100 --test 200 >&2
for world in learn dev; do
    for kind in bm25 dense; do
        corag index $out/$world-world/corpus.jsonl --out $out/$world-$kind --kind $kind >&2
    done
done
shipped=generation/shipped/corag-world
small="--corag.preset small_model --corag.max_hops 4"
corag sample --questions $out/learn-world/train.jsonl --limit "$learn" --retriever.index $out/learn-bm25,$out/learn-dense \
    --model.adapter default $small --sample.chains 6 --sample.max_hops 4 --sample.answers final --out $out/chains >&2
# What the adapter can do already is rehearsed a little, so that judging does not undo it.
corag rows $out/chains --retriever.index $out/learn-bm25,$out/learn-dense --rows.tasks verify,sub_query,stop \
    --rows.ratio 0.3 --rows.max_length 1024 --out $out/rows >&2
corag train --config training/configs/cpu.yaml --rows $out/rows --adapter $shipped --epochs 1 \
    --learning_rate 1e-4 --out $out/adapter >&2
for rank_by in refusal vote verifier vote+verifier; do
    corag run --questions $out/dev-world/dev.jsonl --retriever.index $out/dev-bm25,$out/dev-dense --method corag \
        --model.adapter $out/adapter $small --corag.stop learned --corag.strategy best_of_n --corag.chains 8 \
        --corag.rank_by "$rank_by" --corag.noted_signals refusal,likelihood,verifier --out $out/dev/"$rank_by" >&2
done
corag table $out/dev/*/corag
