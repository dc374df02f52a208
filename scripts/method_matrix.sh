#!/usr/bin/env bash
# Every method with BM25, dense and hybrid search on a question file that brings its own paragraphs, in one table. The corpus is the union of
# those paragraphs: call the figures pooled-distractor, never open. self_rag is not among them: it needs a model with reflection tokens. Run
# it again to go on.
#   bash scripts/method_matrix.sh DATASET QUESTIONS DEMONSTRATIONS LIMIT [more options of 'corag sweep']
#   bash scripts/method_matrix.sh hotpotqa hotpot_dev_distractor_v1.json gold_with_1_distractors_context_cot_qa_codex.txt 100
set -euo pipefail
dataset=$1 questions=$(realpath "$2") demonstrations=$(realpath "$3") limit=$4
shift 4
cd "$(dirname "${BASH_SOURCE[0]}")/.."
bash scripts/install.sh
export PATH="$PWD/.venv/bin:$PATH"
indexes=$(bash scripts/pooled_indexes.sh "$dataset" "$questions")
# Four units and their question fit a window of 8,192 tokens.
corag units "$questions" --format "$dataset" --links mentions --max_words 1000 --out "$indexes-units.jsonl" >&2
options=(--config scripts/configs/pooled.yaml --config scripts/configs/method_matrix.yaml --dataset "$dataset" --questions "$questions" --limit "$limit" --longrag.units "$indexes-units.jsonl")
for method in closed_book one_step ircot iter_retgen flare; do options+=("--$method.demonstrations" "$demonstrations"); done
both="retriever.index: ['$indexes-bm25', '$indexes-bm25,$indexes-dense']" dense="retriever.index: $indexes-dense"
all="retriever.index: ['$indexes-bm25', '$indexes-dense', '$indexes-bm25,$indexes-dense']"
# Question words are noise to BM25 but not to an encoder: the dense queries keep them.
corag sweep "${options[@]}" --grid "
- {method: closed_book}
- {method: [one_step, ircot], $both}
- {method: one_step, $dense, one_step.strip_question_words: false}
- {method: ircot, $dense, ircot.strip_question_words: false}
- {method: [corag, self_ask, react, iter_retgen, flare, self_rag_prompted, auto_rag, search_o1, drag, iterdrag, longrag], $all}
- {method: recursive, recursive.mode: [recursive, multi_hop, self_query, decompose], $all}
- {method: corag, $all, model.adapter: default}" "$@"
