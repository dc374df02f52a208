#!/usr/bin/env bash
# A BM25 and a dense index over the paragraphs that a question file brings along; prints what their names begin with. For other scripts.
#   indexes=$(bash scripts/recipes/pooled_indexes.sh DATASET QUESTIONS)        then "$indexes-bm25" and "$indexes-dense"
set -euo pipefail
indexes=indexes/$1-$(basename "$2" | sed -E 's/(\.jsonl?)?(\.gz)?$//')
for kind in bm25 dense; do
    corag index "$2" --format "$1" --kind "$kind" --out "$indexes-$kind" >&2
done
echo "$indexes"
