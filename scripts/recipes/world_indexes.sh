#!/usr/bin/env bash
# A fictional universe, and a BM25 and a dense index of it. For other scripts; paths are relative to the
# repository.
#   bash scripts/recipes/world_indexes.sh WORLD INDEXES [options of 'corag world']  then "INDEXES-bm25"
set -euo pipefail
world=$1 indexes=$2
shift 2
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
export PATH="$PWD/.venv/bin:$PATH"
corag world "$world" "$@" >&2
for kind in bm25 dense; do
    corag index "$world/corpus.jsonl" --kind "$kind" --out "$indexes-$kind" >&2
done
