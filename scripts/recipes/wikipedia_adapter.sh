#!/usr/bin/env bash
# The shipped adapter `wikipedia`: CoRAG's prompts on Wikipedia questions (sub-queries, sub-answers, refusals,
# when to stop, final answers), learned on from the adapter START. Rows are made of training questions only,
# without every question, title and paragraph that stands in the files that it is measured on. Run it again to
# go on.
#   bash scripts/recipes/wikipedia_adapter.sh FOLDER FORMAT:FILE ...
# into results/wikipedia_adapter. FOLDER has the training files: two_wiki.json (2WikiMultihopQA in the release
# that brings sub-questions), musique.json, hotpotqa.jsonl with hotpotqa_corpus.jsonl and
# hotpotqa_chains.jsonl.gz, nq_qed.jsonl.gz, squad.jsonl.gz, abstracts.jsonl.gz. Then all files that will be
# measured on, such as musique:dev.json hotpotqa:dev.jsonl. What was run of it: the adapter's README.
set -euo pipefail
folder=$(realpath "$1")
held=()
for each in "${@:2}"; do held+=("${each%%:*}:$(realpath "${each#*:}")"); done
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
bash scripts/install.sh
export PATH="$PWD/.venv/bin:$PATH"
out=results/wikipedia_adapter
abstracts=$folder/abstracts.jsonl.gz
hotpotqa=$folder/hotpotqa_chains.jsonl.gz,$folder/hotpotqa.jsonl,$folder/hotpotqa_corpus.jsonl
corag="--corag.preset small_model --corag.max_hops 4 --corag.stop learned --corag.context_passages 4"
folders=

# learn NAME FORMAT FILE MOST titles|none decomposition|given OPTIONS: rows of at most so many questions of a
# file, searched with links or without.
learn() {
    local name=$1 made=$out/$1-$5 index="--retriever.index $out/$1-bm25 --retriever.links $5"
    [ -e $out/$name ] || MOST=$4 python scripts/recipes/leave_out.py $out/$name "$2" "$3" "${held[@]}"
    [ -e $out/$name-bm25 ] || corag index $out/$name/corpus.jsonl --out $out/$name-bm25 >&2
    corag sample --questions $out/$name/questions.jsonl $index $corag --model.adapter default \
        --sample.source "$6" --out $made-chains >&2
    corag rows $made-chains $index --rows.max_length 900 --rows.validation 0.02 --rows.ratio 1 "${@:7}" \
        --out $made-rows >&2
    folders+=${folders:+,}$made-rows
}

# Few refusals: a model that has seen one in five refuses where it could have read.
reading='--rows.tasks sub_answer,refusal --rows.ratios {"refusal":0.07}'
tasks=sub_query,sub_answer,refusal,stop,final_answer,draft
learn nq nq_qed $folder/nq_qed.jsonl.gz 2500 titles decomposition $reading
learn squad squad_lines $folder/squad.jsonl.gz 900 titles decomposition $reading
learn facts facts $abstracts 1900 titles decomposition $reading
learn comparisons comparisons $abstracts 0 titles given --rows.tasks sub_query,stop,final_answer,draft \
    --rows.ratios '{"sub_query":0.12,"stop":0.12}'
learn hotpotqa hotpotqa_chains $hotpotqa 0 titles decomposition --rows.tasks $tasks \
    --rows.ratios '{"refusal":0.1}'
learn wrong wrong_hops $hotpotqa 0 titles given --rows.tasks final_answer,no_chain
# Twice: with links and without, the passages beside the gold ones are others.
learn musique musique $folder/musique.json 0 titles decomposition --rows.tasks $tasks \
    --rows.ratios '{"refusal":0.15}'
learn musique musique $folder/musique.json 0 none decomposition --rows.tasks $tasks \
    --rows.ratios '{"refusal":0.1,"stop":0.3,"sub_query":0.5}'
learn wiki 2wikimultihopqa $folder/two_wiki.json 0 titles decomposition --rows.tasks $tasks \
    --rows.ratios '{"sub_query":0.6,"sub_answer":0.35,"refusal":0.04,"stop":0.5}'
corag train --config training/configs/cpu.yaml --rows $folders --adapter "${START:-wikipedia}" --batch_size 8 \
    --accumulation 4 --gradient_checkpointing no --learning_rate 6.0e-4 --max_steps 440 --seed 3 \
    --out $out/adapter >&2
