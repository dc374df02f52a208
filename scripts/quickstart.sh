#!/usr/bin/env bash
# From a bare machine to the first table: install, write the embedded world, index it with Lucene and FAISS,
# start a real model under vLLM, answer its questions closed-book, with one-step retrieval and with IRCoT;
# then with CoRAG, the model fine-tuned for it on another world (the adapter comes with the package;
# scripts/recipes/train_loop.sh makes it). Run it again: it goes on where it was.
#   bash scripts/quickstart.sh                 30 questions
#   bash scripts/quickstart.sh --limit 20      options go to 'corag run'
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
bash scripts/install.sh
export PATH="$PWD/.venv/bin:$PATH"
runs=quickstart/runs
corag doctor >&2
corag world quickstart/world --passages 1000 --train 100 --dev 30 --test 30 >&2
corag index quickstart/world/corpus.jsonl --out quickstart/bm25 --kind bm25 >&2
corag index quickstart/world/corpus.jsonl --out quickstart/dense --kind dense >&2
corag run --config scripts/configs/quickstart.yaml --out $runs "$@" >&2
corag run --config scripts/configs/quickstart_corag.yaml --out $runs "$@" >&2
corag table $runs/closed_book $runs/one_step $runs/ircot $runs/corag
