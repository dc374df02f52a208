#!/usr/bin/env bash
# Every method with BM25, dense and hybrid search on a question file that brings its own paragraphs, in one
# table. The corpus is the union of those paragraphs: call the figures pooled-distractor, never open. self_rag
# is not among them: it needs a model with reflection tokens. Run it again to go on.
#   bash scripts/recipes/method_matrix.sh DATASET QUESTIONS DEMONSTRATIONS LIMIT [options of 'corag sweep']
#   bash scripts/recipes/method_matrix.sh hotpotqa hotpot_dev_distractor_v1.json \
#       gold_with_1_distractors_context_cot_qa_codex.txt 100
#   SEARCHES="hybrid" bash scripts/recipes/method_matrix.sh ...     one way; the others join the table later
set -euo pipefail
dataset=$1 questions=$(realpath "$2") demonstrations=$(realpath "$3") limit=$4
shift 4
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
bash scripts/install.sh
export PATH="$PWD/.venv/bin:$PATH"
indexes=$(bash scripts/recipes/pooled_indexes.sh "$dataset" "$questions")
# Four units and their question fit a window of 8,192 tokens.
units=$indexes-units.jsonl
corag index "$questions" --format "$dataset" --out "$indexes-bm25" --long_units "$units" --long_unit_links mentions \
    --long_unit_words 1000 >&2

cells="closed_book: {method: closed_book}"
declare -A index=([bm25]="$indexes-bm25" [dense]="$indexes-dense" [hybrid]="$indexes-bm25,$indexes-dense")
add() { # NAME METHOD [OPTION: VALUE]: a cell for each way of searching
    local search settings
    for search in ${SEARCHES:-bm25 dense hybrid}; do
        settings="retriever.index: '${index[$search]}'${3:+, $3}"
        case $search-$2 in # question words are noise to BM25 but not to an encoder
            dense-one_step | dense-ircot) settings+=", $2.strip_question_words: false" ;;
        esac
        cells+=", $1 $search: {method: $2, $settings}"
    done
}
methods=(
    one_step ircot corag self_ask react iter_retgen flare auto_rag search_o1 drag iterdrag longrag
)
for method in "${methods[@]}"; do add "$method" "$method"; done
for mode in recursive multi_hop self_query; do
    add "recursive $mode" recursive "recursive.mode: $mode"
done
add "corag tuned" corag "model.adapter: default"

options=(--config scripts/configs/pooled.yaml --config scripts/configs/method_matrix.yaml)
options+=(--longrag.units "$units" --dataset "$dataset" --questions "$questions" --limit "$limit")
for method in closed_book one_step ircot iter_retgen flare drag; do
    options+=("--$method.demonstrations" "$demonstrations")
done
corag sweep "${options[@]}" --cells "{$cells}" "$@"
