#!/usr/bin/env bash
# The shipped adapter `wikipedia`: CoRAG's prompts on Wikipedia questions (sub-queries, sub-answers, refusals,
# when to stop, final answers from evidence), learned on from the world's adapter. Rows are made of training
# questions only, without every question, title and paragraph that stands in the files that it is measured on.
# Run it again to go on. Training reads 12 million tokens: five minutes on an H200; hours on CPU cores, where
# BATCH=4 makes the same updates of fewer rows at once.
#   bash scripts/recipes/wikipedia_adapter.sh TWO_WIKI_TRAIN MUSIQUE_TRAIN SQUAD_TRAIN FORMAT:FILE ...
# into results/wikipedia_adapter. The first: 2WikiMultihopQA's training questions in the release that brings
# sub-questions (qa_pairs); the third: SQuAD 2.0's training file, or some of its articles; then all files that
# will be measured on, such as musique:dev.json 2wikimultihopqa:dev.json hotpotqa:dev.jsonl.
set -euo pipefail
two_wiki=$(realpath "$1") musique=$(realpath "$2") squad=$(realpath "$3")
held=()
for each in "${@:4}"; do held+=("${each%%:*}:$(realpath "${each#*:}")"); done
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
bash scripts/install.sh
export PATH="$PWD/.venv/bin:$PATH"
out=results/wikipedia_adapter
corag="--corag.preset small_model --corag.max_hops 4 --corag.stop learned --corag.context evidence
    --corag.context_passages 4"
folders=

# learn NAME titles|none OPTIONS: rows of a folder with questions.jsonl and corpus.jsonl, searched with links
# or without.
learn() {
    local name=$1 made=$out/$1-$2 index="--retriever.index $out/$1-bm25 --retriever.links $2"
    [ -e $out/$name-bm25 ] || corag index $out/$name/corpus.jsonl --out $out/$name-bm25 >&2
    corag sample --questions $out/$name/questions.jsonl $index $corag --model.adapter default \
        --sample.source decomposition --out $made-chains >&2
    corag rows $made-chains $index --rows.max_length 640 --rows.validation 0.03 "${@:3}" --out $made-rows >&2
    folders+=${folders:+,}$made-rows
}

[ -e $out/wiki ] || python scripts/recipes/leave_out.py $out/wiki 2wikimultihopqa "$two_wiki" "${held[@]}"
[ -e $out/musique ] || python scripts/recipes/leave_out.py $out/musique musique "$musique" "${held[@]}"
[ -e $out/squad ] || python scripts/recipes/leave_out.py $out/squad squad "$squad" "${held[@]}"
[ -e $out/world ] || corag world $out/world --seed 5 --train 400 --test 20 >&2
[ -e $out/world/questions.jsonl ] || cp $out/world/train.jsonl $out/world/questions.jsonl

tasks=sub_query,sub_answer,refusal,stop,final_answer,draft
# Few refusals: a model that has seen one in five refuses where it could have read.
# Each question twice: with links and without, the passages beside the gold ones are others.
for links in titles none; do
    learn musique "$links" --rows.tasks $tasks --rows.ratio 1 --rows.ratios '{"refusal": 0.15}'
    learn wiki "$links" --rows.tasks $tasks --rows.ratio 1 --rows.ratios '{"refusal": 0.04}'
done
learn squad titles --rows.tasks sub_answer,refusal --rows.ratio 1 --rows.ratios '{"refusal": 0.05}'
learn world titles --rows.tasks $tasks --rows.per_length 60 --rows.ratio 0.5 --rows.ratios \
    '{"sub_answer": 0.2, "refusal": 0.03, "final_answer": 0.3, "draft": 0.3}'
batch=${BATCH:-64}
options="--config training/configs/cpu.yaml --rows $folders --batch_size $batch --accumulation $((64 / batch))
    --gradient_checkpointing no"
corag train $options --adapter corag/generation/shipped/corag-world --epochs 2 --learning_rate 1.0e-3 \
    --out $out/adapter-first >&2
corag train $options --adapter $out/adapter-first --epochs 2 --learning_rate 7.0e-4 --seed 2 --out $out/adapter >&2
