#!/usr/bin/env bash
# From a bare machine to the first table: install, write the embedded world, index it with Lucene and FAISS,
# start a real model under vLLM, answer one question with its chain drawn, then 20 questions closed-book, with
# one-step retrieval, IRCoT and CoRAG, and with one-step retrieval fine-tuned as CoRAG was. Run it again: it goes
# on where it was.
#   bash scripts/quickstart.sh                 20 questions
#   bash scripts/quickstart.sh --limit 30      options go to 'corag quickstart'
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
CORAG_BEGUN=$(date +%s)  # the seconds that it tells are counted from here
export CORAG_BEGUN
export PYTHONDONTWRITEBYTECODE=  # packages are compiled as they are imported, once
bash scripts/install.sh
.venv/bin/corag quickstart "$@"
