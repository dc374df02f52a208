#!/usr/bin/env bash
# Closed-book, one-step retrieval and IRCoT with BM25, dense and hybrid search on a question file that brings
# its own paragraphs. The corpus is the union of those paragraphs: call the figures pooled-distractor, never
# open. Run it again to go on.
#   bash scripts/recipes/pooled_distractor.sh DATASET QUESTIONS DEMONSTRATIONS LIMIT [options of 'corag run']
#   bash scripts/recipes/pooled_distractor.sh hotpotqa hotpot_dev_distractor_v1.json \
#       gold_with_1_distractors_context_cot_qa_codex.txt 100
set -euo pipefail
dataset=$1 questions=$(realpath "$2") demonstrations=$(realpath "$3") limit=$4
shift 4
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
bash scripts/install.sh
export PATH="$PWD/.venv/bin:$PATH"
indexes=$(bash scripts/recipes/pooled_indexes.sh "$dataset" "$questions")
options=(--config scripts/configs/pooled.yaml --dataset "$dataset" --questions "$questions" --limit "$limit")
for method in closed_book one_step ircot; do options+=("--$method.demonstrations" "$demonstrations"); done
corag run "${options[@]}" --retriever.index "$indexes-bm25" --retriever.bm25 ircot "$@"
# Question words are noise to BM25 but not to an encoder: the dense queries keep them.
corag run "${options[@]}" --method one_step,ircot --retriever.index "$indexes-dense" \
    --one_step.strip_question_words false --ircot.strip_question_words false "$@"
corag run "${options[@]}" --method one_step,ircot --retriever.index "$indexes-bm25,$indexes-dense" \
    --retriever.bm25 ircot "$@"
