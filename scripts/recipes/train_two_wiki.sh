#!/usr/bin/env bash
# CoRAG trained and compared on real questions: 2WikiMultihopQA's training questions in a release that brings
# sub-questions (qa_pairs), at least 210 of them, and its dev questions. The corpora are the unions of the
# questions' own paragraphs: call the figures pooled-distractor, never open. Run it again to go on.
#   bash scripts/recipes/train_two_wiki.sh TRAIN DEV 100        so many dev questions
set -euo pipefail
train=$(realpath "$1") dev=$(realpath "$2") limit=$3
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
bash scripts/install.sh
export PATH="$PWD/.venv/bin:$PATH"
out=results/train_two_wiki
for kind in bm25 dense; do
    corag index "$train" --format 2wikimultihopqa --kind $kind --out $out/train-$kind >&2
    corag index "$dev" --format 2wikimultihopqa --kind $kind --out $out/dev-$kind >&2
done
corag rounds --config training/configs/two_wiki_rounds.yaml --dataset 2wikimultihopqa --questions "$train" \
    --retriever.index $out/train-bm25,$out/train-dense --out $out >&2
bash scripts/recipes/training_table.sh $out $out/train-bm25,$out/train-dense "$limit" \
    --dataset 2wikimultihopqa --questions "$dev" --retriever.index $out/dev-bm25,$out/dev-dense
