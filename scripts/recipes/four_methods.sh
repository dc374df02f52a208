#!/usr/bin/env bash
# A fair table: one adapter that learned the prompts of closed_book, one_step, ircot and corag on the same 360
# questions of a fictional world, and another that learned one_step's alone; then all four methods on the test
# questions of a world that shares no name with it. Run it again to go on.
#   bash scripts/recipes/four_methods.sh        into results/four_methods, tested on 100 questions
#   bash scripts/recipes/four_methods.sh 200    tested on all 200
# On a GPU minutes; on two CPU cores about two hours, nearly all of it training (EPOCHS=1 halves that).
set -euo pipefail
limit=${1:-100}
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
bash scripts/install.sh
export PATH="$PWD/.venv/bin:$PATH"
out=results/four_methods
bash scripts/recipes/world_indexes.sh $out/train --seed 1 --train 600 --test 50
bash scripts/recipes/world_indexes.sh $out/test --seed 0 --train 200 --test 200
index="--retriever.index $out/train-bm25,$out/train-dense"
corag="--corag.preset small_model --corag.max_hops 4 --corag.stop learned"
ircot="--ircot.k_per_step 2 --ircot.max_steps 5 --ircot.paragraph_budget 6 --ircot.max_thought_tokens 40"
ircot="$ircot --ircot.max_answer_tokens 16"

# sample NAME OPTIONS
sample() {
    corag sample --questions $out/train/train.jsonl --limit 360 $index --out "$out/chains-$1" "${@:2}" >&2
}
# rows NAME CHAINS OPTIONS
rows() {
    corag rows "$out/chains-$2" $index --rows.max_length 1024 --rows.validation 0.03 --out "$out/rows-$1" "${@:3}" >&2
}
sample corag --sample.source decomposition $corag
sample ircot --sample.source thoughts $ircot
sample first --sample.source thoughts --ircot.k_per_step 6 --ircot.max_steps 1
rows corag corag --rows.tasks sub_query,sub_answer,stop,final_answer,draft --rows.ratio 0.2 \
    --rows.ratios '{"sub_query": 1.0, "stop": 0.7, "final_answer": 0.3}'
rows ircot ircot --rows.tasks thought,reader --rows.ratio 1
rows one_step first --rows.tasks one_step
rows closed_book first --rows.tasks closed_book

# train NAME ROWS
train() {
    corag train --config training/configs/cpu.yaml --epochs "${EPOCHS:-2}" --save_steps 100 --rows "$2" \
        --out "$out/$1" >&2
}
train one_step $out/rows-one_step
train four_methods $out/rows-corag,$out/rows-ircot,$out/rows-one_step,$out/rows-closed_book

test="--questions $out/test/test.jsonl --limit $limit --retriever.index $out/test-bm25,$out/test-dense --recall_at 6
    --one_step.k 6 --one_step.max_answer_tokens 16 --closed_book.max_answer_tokens 16 $ircot $corag"
corag run $test --method one_step --model.adapter $out/one_step --out $out/alone >&2
corag run $test --method corag --model.adapter default --out $out/shipped >&2
corag run $test --method closed_book,one_step,ircot,corag --model.adapter $out/four_methods --out $out/runs >&2
corag table $out/runs/*/ $out/alone/one_step $out/shipped/corag --baseline alone/one_step
