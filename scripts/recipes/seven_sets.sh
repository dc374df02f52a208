#!/usr/bin/env bash
# The field's usual table: exact match on Natural Questions, TriviaQA, PopQA, HotpotQA, 2WikiMultihopQA, MuSiQue and
# Bamboogle with one corpus, index and number of passages, for a list of methods and checkpoints; mean over sets, tokens
# and intervals, beside published rows. What it costs: docs/guides/seven_sets.md. The same command again goes on.
#   bash scripts/recipes/seven_sets.sh                     all rows, 51,713 questions; files and index are fetched
#   LIMIT=1000 bash scripts/recipes/seven_sets.sh          the first 1,000 of each set, as FlashRAG's table has them
#   ROWS=my.rows ...        rows of yours (scripts/configs/seven_sets.rows says how)
#   INDEX=indexes/wiki18-bm25 K=5 ...     another index (several, with commas; or a server's address), more passages
#   SETS="musique bamboogle" DATA=folder ...      some sets, from files of yours: folder/SET.jsonl in FlashRAG's form
#   SMOKE=1 bash scripts/recipes/seven_sets.sh    each stage on a slice of the embedded world, two CPU cores
# Options after these go to 'corag run', such as --model.tensor_parallel 2. On several GPUs each has its own engine.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
bash scripts/install.sh
export PATH="$PWD/.venv/bin:$PATH"
read -ra sets <<<"${SETS:-nq triviaqa popqa hotpotqa 2wikimultihopqa musique bamboogle}"
out=${OUT:-results/seven_sets} data=${DATA:-data/flashrag} index=${INDEX:-indexes/wiki18-e5} k=${K:-3}
rows=${ROWS:-scripts/configs/seven_sets.rows} limit=${LIMIT:-0}
if [ "${SMOKE:-}" ]; then
    out=${OUT:-results/seven_sets_smoke} rows=${ROWS:-scripts/configs/seven_sets_smoke.rows} limit=${LIMIT:-2}
    data=${DATA:-$out/sets} index=${INDEX:-$out/index}
fi
mkdir -p "$out" "$data"

questions() { # those that are not there yet
    local set split
    for set in "${sets[@]}"; do
        [ ! -f "$data/$set.jsonl" ] || continue
        case $set in
        nq | triviaqa | popqa | bamboogle) split=test ;;
        *) split=dev ;; # Search-R1's choice: test, else dev
        esac
        hf download --repo-type dataset RUC-NLPIR/FlashRAG_datasets "$set/$split.jsonl" --local-dir "$data" >&2
        mv "$data/$set/$split.jsonl" "$data/$set.jsonl"
    done
}
smoke() { # the embedded world's questions in the place of all sets
    local set
    [ -d "$index" ] || {
        corag world "$out/world" --passages 500 --train 4 --dev 1 --test 14 >&2
        corag index "$out/world/corpus.jsonl" --out "$index" >&2
    }
    for set in "${sets[@]}"; do
        [ -f "$data/$set.jsonl" ] || sed 's/"answers"/"golden_answers"/' "$out/world/test.jsonl" >"$data/$set.jsonl"
    done
}
wikipedia() { # Search-R1's and FlashRAG's passages with their E5 vectors, or BM25 of them
    [[ $index == *wiki18* && ! -d $index ]] || return 0
    if [[ $index == *bm25* ]]; then
        corag index hub:PeterJinGo/wiki-18-corpus/wiki-18.jsonl.gz --out "$index" >&2
        return
    fi
    hf download --repo-type dataset PeterJinGo/wiki-18-e5-index --local-dir "$data/wiki18" >&2
    [ -f "$data/wiki18/e5_Flat.index" ] || cat "$data"/wiki18/part_* >"$data/wiki18/e5_Flat.index"
    corag index hub:PeterJinGo/wiki-18-corpus/wiki-18.jsonl.gz --kind dense --encoder intfloat/e5-base-v2 \
        --vectors "$data/wiki18/e5_Flat.index" --out "$index" >&2
}

if [ "${SMOKE:-}" ]; then smoke; else questions; wikipedia; fi
files=("${sets[@]/#/$data/}")
python scripts/recipes/seven_sets.py merge "$out/questions.jsonl" "$limit" "${files[@]/%/.jsonl}"
while IFS='|' read -r name options; do
    read -r name <<<"$name"
    [[ $name && $name != \#* ]] || continue
    read -ra words <<<"${options//@k/$k}"
    corag run --dataset flashrag --questions "$out/questions.jsonl" --retriever.index "$index" "${words[@]}" "$@" \
        --out "$out/runs/$name" </dev/null >&2
done <"$rows"
for set in "${sets[@]}"; do
    corag table "$out"/runs/*/*/ --kinds "$set" --to csv >"$out/$set.csv"
done
tables=("${sets[@]/#/$out/}")
python scripts/recipes/seven_sets.py table scripts/configs/seven_sets_published.yaml "${tables[@]/%/.csv}"
