#!/usr/bin/env bash
# A fictional universe of 1,000 passages and 50 dev questions, and a BM25 and a dense index of it, WORLD-bm25
# and WORLD-dense. For other scripts; paths are relative to the repository.
#   bash scripts/recipes/world_indexes.sh WORLD [options of 'corag world']
set -euo pipefail
world=$1
shift
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
export PATH="$PWD/.venv/bin:$PATH"
corag world "$world" --passages 1000 --dev 50 "$@" >&2
for kind in bm25 dense; do
    corag index "$world/corpus.jsonl" --kind "$kind" --out "$world-$kind" >&2
done
