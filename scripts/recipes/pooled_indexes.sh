#!/usr/bin/env bash
# A BM25 and a dense index over the paragraphs that a question file brings along; prints what their names
# begin with. For other scripts.
#   indexes=$(bash scripts/recipes/pooled_indexes.sh DATASET QUESTIONS)  then "$indexes-bm25"
# Their folders lie in the repository, wherever this is called from.
set -euo pipefail
questions=$(realpath "$2")
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
bash scripts/install.sh
export PATH="$PWD/.venv/bin:$PATH"
indexes=indexes/$1-$(basename "$2" | sed -E 's/(\.jsonl?)?(\.gz)?$//')
for kind in bm25 dense; do
    corag index "$questions" --format "$1" --kind "$kind" --out "$indexes-$kind" >&2
done
echo "$indexes"
