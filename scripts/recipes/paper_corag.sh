#!/usr/bin/env bash
# CoRAG's tables 1 and 4 and figure 3, from an empty machine: the index of Wikipedia, the authors' chains, rows,
# training with chains and without (the paper's fine-tuned baseline), the sweep over hops, chains and tree search,
# a table for each set. What it costs and downloads: docs/guides/reproduce_costs.md; '... cost' prints it.
#   bash scripts/recipes/paper_corag.sh                   all stages, on eight GPUs
#   bash scripts/recipes/paper_corag.sh index chains      some: cost index chains rows train decode table
#   SMOKE=1 bash scripts/recipes/paper_corag.sh           each stage on a slice of the embedded world, two CPU cores
#   CHAINS=model    sample the chains ourselves, 16 a question, instead of taking over the authors'
#   SEARCH=http://localhost:8100    search there. A card of 80 GB does not hold the index, so serve it on two:
#       CUDA_VISIBLE_DEVICES=6,7 corag serve indexes/kilt-e5 --retriever.search_device cuda --port 8100
#   TRAIN=training/configs/1gpu_qlora.yaml    an adapter on one GPU instead of all weights on eight
#   SETS="musique"  fewer sets to decode
#   TABLE=1         decode the rows of table 1 only, without the points of figure 3
# Every stage goes on where it was, whatever ended it: give the same command again.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
cost() { sed -n "/^## CoRAG/,/^## IRCoT/p" docs/guides/reproduce_costs.md; }
if [ "$*" = cost ]; then cost && exit; fi
bash scripts/install.sh
export PATH="$PWD/.venv/bin:$PATH"
stages=("$@")
[ $# -gt 0 ] || stages=(cost index chains rows train decode table)

if [ "${SMOKE:-}" ]; then
    out=results/paper_corag_smoke
    corpus=$out/world/corpus.jsonl index=$out/index encode=() sets=(world) learn=(world)
    model=default engine=(--model.backend transformers) few=(--limit 12)
    corag=(--corag.preset small_model --corag.passages_per_hop 2 --corag.context_passages 3
        --corag.max_sub_query_tokens 12 --corag.max_sub_answer_tokens 8 --corag.max_answer_tokens 8)
    rows=(--rows.max_length 512)
    decoding=(--config scripts/configs/paper_corag_smoke.yaml) train=(--config training/configs/cpu.yaml
        --tuning full --learning_rate 2e-5 --batch_size 2 --max_steps 2 --save_steps 1)
    export PARTS=${PARTS:-1}
else
    out=results/paper_corag
    corpus=hub:corag/kilt-corpus index=indexes/kilt-e5
    encode=(--encoder intfloat/e5-large-v2 --encoder_dtype bfloat16)
    read -ra sets <<<"${SETS:-2wikimultihopqa hotpotqa musique bamboogle}"
    learn=(2wikimultihopqa hotpotqa musique)
    model=meta-llama/Llama-3.1-8B-Instruct engine=() few=() corag=(--corag.preset paper) rows=(--rows.validation 0)
    decoding=() train=(--config "${TRAIN:-training/configs/8gpu_full.yaml}")
    if [ -z "${TRAIN:-}" ]; then train=(--launch=--config_file,training/configs/accelerate_8gpu.yaml "${train[@]}"); fi
fi
if [ "${TABLE:-}" = 1 ]; then decoding+=(--grid "" --cells eval/configs/paper_corag_table1.yaml); fi
search=${SEARCH:-$index}
given=(--sample.source given)
if [ "${CHAINS:-given}" = model ]; then given=(--sample.chains "$([ "${SMOKE:-}" ] && echo 2 || echo 16)"); fi

questions() { # SET learn|decode: where its questions are
    if [ "${SMOKE:-}" ]; then
        echo --questions "$out/world/$2.multihopqa.jsonl"
    else
        local split=validation
        [ "$1" != bamboogle ] || split=test
        [ "$2" != learn ] || split=train
        echo --questions corag/multihopqa --subset "$1" --split "$split"
    fi
}
tuned() { # FOLDER: how a model is named that was trained there
    if [ -f "$1/adapter_config.json" ]; then
        echo --model.name "$model" --model.adapter "$1"
    else
        echo --model.name "$1"
    fi
}

index() {
    if [ "${SMOKE:-}" ]; then
        corag world "$out/world" --passages 500 --train 12 --dev 1 --test 12 >&2
        python scripts/recipes/as_multihopqa.py "$out/world/train.jsonl" "$out/world/learn.multihopqa.jsonl"
        python scripts/recipes/as_multihopqa.py "$out/world/test.jsonl" "$out/world/decode.multihopqa.jsonl"
    fi
    bash scripts/recipes/encode_on_all_gpus.sh "$corpus" "$index" "${encode[@]}" >&2
}
chains() {
    for set in "${learn[@]}"; do
        read -ra from <<<"$(questions "$set" learn)"
        corag sample --dataset corag "${from[@]}" "${few[@]}" "${given[@]}" "${corag[@]}" --model.name "$model" \
            "${engine[@]}" --retriever.index "$search" --out "$out/chains/$set" >&2
    done
}
rows() {
    local options=(--model "$model" --retriever.index "$search" "${rows[@]}")
    corag rows "${learn[@]/#/$out/chains/}" "${options[@]}" --out "$out/rows" >&2
    corag rows "${learn[@]/#/$out/chains/}" "${options[@]}" --rows.tasks no_chain --out "$out/rows-no-chain" >&2
}
train() {
    corag train "${train[@]}" --model "$model" --rows "$out/rows" --out "$out/model" >&2
    corag train "${train[@]}" --model "$model" --rows "$out/rows-no-chain" --out "$out/model-no-chain" >&2
}
decode() {
    read -ra with <<<"$(tuned "$out/model")"
    read -ra without <<<"$(tuned "$out/model-no-chain")"
    for set in "${sets[@]}"; do
        read -ra from <<<"$(questions "$set" decode)"
        local options=(--dataset corag "${from[@]}" "${few[@]}" "${engine[@]}" "${corag[@]}"
            --retriever.index "$search")
        local sweep=(--config eval/configs/paper_corag.yaml "${decoding[@]}" "${options[@]}" "${with[@]}"
            --out "$out/table/$set")
        corag sweep "${sweep[@]}" --pilot 20 >&2
        corag sweep "${sweep[@]}"
        corag run --method corag --corag.max_hops 0 "${options[@]}" "${without[@]}" --out "$out/no-chain/$set" >&2
    done
}
table() {
    for set in "${sets[@]}"; do
        corag table "$out/table/$set"/*/ "$out/no-chain/$set/corag" --baseline "no-chain/$set/corag"
        # Gold answers are looked for in the passages' texts, which a server of the index keeps to itself.
        [ -n "${SEARCH:-}" ] || corag table "$out/table/$set"/*/ --answer_recall true --recall_at 10 --to csv \
            >"$out/table/$set/recall.csv"
    done
}

for stage in "${stages[@]}"; do
    case $stage in
    cost | index | chains | rows | train | decode | table) ;;
    *)
        echo "corag: there is no stage '$stage': write cost, index, chains, rows, train, decode or table." >&2
        exit 2
        ;;
    esac
done
for stage in "${stages[@]}"; do
    echo "corag: stage $stage" >&2
    $stage
done
