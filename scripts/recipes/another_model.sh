#!/usr/bin/env bash
# Another small model than the default one, taught from annotated sub-questions of three corpora: to ask, answer,
# stop, answer without a chain, and think for IRCoT. Then chains of 0 to 4 hops on 2WikiMultihopQA's dev
# questions. The corpora are the unions of the questions' own paragraphs (pooled-distractor). Run it again to go
# on. An hour and a half on two cores with a model of 270 million weights.
#   bash scripts/recipes/another_model.sh MODEL TWO_WIKI_TRAIN MUSIQUE_TRAIN TWO_WIKI_DEV 200
#                              into results/another_model; 2WikiMultihopQA's training questions in the release
#                              that brings sub-questions (qa_pairs), 500 of them as a JSON list
set -euo pipefail
model=$1 limit=$5
wiki=$(realpath "$2") musique=$(realpath "$3") dev=$(realpath "$4")
[ ! -d "$model" ] || model=$(realpath "$model")
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
bash scripts/install.sh
export PATH="$PWD/.venv/bin:$PATH"
out=results/another_model
mkdir -p $out
bash scripts/recipes/world_indexes.sh $out/learn --seed 11 --train 600 --test 50
tail -n +301 $out/learn/train.jsonl > $out/learn.jsonl
# The first 60 are left for choosing among options.
python -c 'import json, sys; json.dump(json.load(open(sys.argv[1]))[60:], open(sys.argv[2], "w"))' \
    "$wiki" $out/wiki.json
cp "$musique" $out/musique.json
for kind in bm25 dense; do
    corag index "$wiki" --format 2wikimultihopqa --kind $kind --out $out/wiki-$kind >&2
    corag index "$musique" --format musique --kind $kind --out $out/musique-$kind >&2
    corag index "$dev" --format 2wikimultihopqa --kind $kind --out $out/dev-$kind >&2
done
corag="--corag.preset small_model --corag.max_hops 4 --corag.stop learned --corag.context evidence"
folders=

# learn FILE DATASET HOPS SHARES THOUGHTS: rows of a corpus, shares of those asked at every hop, of others, of
# thoughts (0: none).
learn() {
    local name index
    name=$(basename "$1" | cut -d. -f1)
    index="--retriever.index $out/$name-bm25,$out/$name-dense"
    corag sample --questions "$1" --dataset "$2" $index $corag --sample.source decomposition \
        --out $out/$name-followed >&2
    corag rows $out/$name-followed $index --model "$model" --rows.ratio "$3" --rows.ratios "$4" \
        --rows.tasks sub_query,sub_answer,stop,final_answer,draft,no_chain \
        --rows.max_length 1024 --rows.validation 0.03 --out $out/rows/$name >&2
    folders+=${folders:+,}$out/rows/$name
    [ "$5" != 0 ] || return 0
    corag sample --questions "$1" --dataset "$2" $index --sample.source thoughts --ircot.k_per_step 8 \
        --out $out/$name-thoughts >&2
    corag rows $out/$name-thoughts $index --model "$model" --rows.tasks thought --rows.ratio "$5" \
        --rows.max_length 1536 --rows.validation 0.03 --out $out/rows/$name-thoughts >&2
    folders+=,$out/rows/$name-thoughts
}

many='{"sub_query": 0.4, "stop": 0.2, "final_answer": 0.35, "draft": 0.1, "no_chain": 0.35}'
few='{"sub_query": 0.15, "stop": 0.1, "final_answer": 0.1, "draft": 0.05, "no_chain": 0.1}'
learn $out/wiki.json 2wikimultihopqa 0.15 "$many" 0.08
learn $out/musique.json musique 0.15 "$many" 0.12
learn $out/learn.jsonl jsonl 0.05 "$few" 0
corag train --config training/configs/cpu.yaml --model "$model" --rows "$folders" --max_steps 200 \
    --out $out/adapter >&2
corag sweep --questions "$dev" --dataset 2wikimultihopqa --shuffle 1 --limit "$limit" \
    --retriever.index $out/dev-bm25,$out/dev-dense --model.name "$model" --model.adapter $out/adapter \
    --corag.preset small_model --corag.stop learned --corag.context evidence --method corag \
    --grid '[{corag.strategy: greedy, corag.L: [0, 1, 2, 4]}]' --out $out/sweep
