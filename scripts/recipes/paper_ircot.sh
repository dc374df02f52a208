#!/usr/bin/env bash
# IRCoT's table 4 and its recall, from an empty machine, by the paper's protocol: passages a search and distractors
# are chosen on 100 dev questions with the first set of demonstrations by the dataset's F1 (the authors: DROP's F1),
# then 500 others are asked with all three sets; mean and deviation over the sets. Recall has runs of its own, without
# a reader: one step takes 15 passages, IRCoT's are chosen by recall of passages (the authors: of titles).
# What it costs and downloads: docs/guides/reproduce_costs.md.
#   bash scripts/recipes/paper_ircot.sh hotpotqa DEV.json CORPUS         all stages; musique, 2wikimultihopqa
#   STAGES="index choose" bash scripts/recipes/paper_ircot.sh ...        some: cost index choose test recall table
#   SMOKE=1 bash scripts/recipes/paper_ircot.sh                          a slice of the embedded world, two CPU cores
#   MODEL=Qwen/Qwen3-8B BACKEND=vllm        another model than Flan-T5-XXL
#   ALIASES=id_aliases.json                 2WikiMultihopQA's file, without which its scores are lower than the paper's
# CORPUS: what is indexed. HotpotQA: hub:mteb/hotpotqa/corpus.jsonl, with BEIR's qrels/test.tsv as DEV.json; the
# others: all of their official files, one after another (their paragraphs are the corpus).
# The authors' prompts are cloned from GitHub. Every stage goes on where it was: give the same command again.
set -euo pipefail
usage() { sed -n '2,/^set/{/^#/p}' "${BASH_SOURCE[0]}"; exit 2; }
[ "${SMOKE:-}" ] || [ $# -ge 3 ] || usage
case ${SMOKE:+smoke}${1:-} in
smoke* | hotpotqa | 2wikimultihopqa | musique) ;;
*)
    echo "corag: there are no prompts for '$1': name hotpotqa, 2wikimultihopqa or musique." >&2
    exit 2
    ;;
esac
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
bash scripts/install.sh
export PATH="$PWD/.venv/bin:$PATH"
if [ "${SMOKE:-}" ]; then
    dataset=smoke out=results/paper_ircot/smoke questions=results/paper_ircot/smoke/dev.jsonl
    corpus=("$out/corpus.jsonl") form=auto index=$out/index dev=(--limit 4) test=(--skip 4 --limit 6)
    config=(--config eval/configs/paper_ircot.yaml --config scripts/configs/paper_ircot_smoke.yaml)
    sets=scripts/configs/paper_ircot_smoke_sets.yaml
else
    dataset=$1 questions=$2 out=results/paper_ircot/$1 index=indexes/$1-open
    corpus=("${@:3}") form=$dataset sets=eval/configs/paper_ircot_sets/$dataset.yaml
    dev=(--shuffle 13370 --limit 100) test=(--shuffle 13370 --skip 100 --limit 500)
    mkdir -p "$out"
    sed "s/hotpotqa/$dataset/g" eval/configs/paper_ircot.yaml >"$out/paper_ircot.yaml"
    config=(--config "$out/paper_ircot.yaml" --model.name "${MODEL:-google/flan-t5-xxl}"
        --model.backend "${BACKEND:-transformers}")
    [ "$dataset" != hotpotqa ] || { form=beir; config+=(--dataset beir --scorer hotpotqa); }
fi
options=("${config[@]}" --questions "$questions" --retriever.index "$index")
[ -z "${ALIASES:-}" ] || options+=(--aliases "$ALIASES")
first=$(sed -n '/&set1/,/]/p' "$sets" | grep -o '"[^"]*"' | tr -d '"' | paste -sd,)
dev+=(--ircot.demonstration_ids "$first" --one_step.demonstration_ids "$first")
searches=(--ircot.reader none --one_step.reader none --metric recall)

cost() { sed -n "/^## IRCoT/,/^## What/p" docs/guides/reproduce_costs.md; }
index() {
    if [ "${SMOKE:-}" ]; then
        corag world "$out" --passages 500 --train 4 --dev 10 --test 1 >&2
    elif [ ! -d prompts-of-ircot/prompts ]; then
        git clone --depth 1 https://github.com/StonyBrookNLP/ircot prompts-of-ircot >&2
    fi
    corag index "${corpus[@]}" --format "$form" --out "$index" >&2
}
choose() { corag sweep "${options[@]}" "${dev[@]}" --out "$out/choose"; }
ask() {
    mapfile -t ircot < <(python scripts/recipes/best_cell.py "$out/choose" ircot)
    mapfile -t one_step < <(python scripts/recipes/best_cell.py "$out/choose" one_step)
    echo "corag: chosen: ${ircot[*]} ${one_step[*]}" >&2
    corag sweep "${options[@]}" "${test[@]}" --grid "" --cells "$sets" "${ircot[@]}" "${one_step[@]}" \
        --out "$out/test"
}
recall() {
    corag sweep "${options[@]}" "${dev[@]}" "${searches[@]}" --out "$out/recall-choose"
    mapfile -t ircot < <(python scripts/recipes/best_cell.py "$out/recall-choose" ircot)
    echo "corag: chosen by recall: ${ircot[*]}" >&2
    grep -v '^closed_book' "$sets" >"$out/recall_sets.yaml"
    corag sweep "${options[@]}" "${test[@]}" "${searches[@]}" --grid "" --cells "$out/recall_sets.yaml" \
        "${ircot[@]}" --one_step.k 15 --out "$out/recall"
}
table() {
    for part in test recall; do
        if [ -d "$out/$part" ]; then corag table "$out/$part"/*/ --over demonstrations; fi
    done
}

read -ra stages <<<"${STAGES:-cost index choose test recall table}"
for stage in "${stages[@]}"; do
    echo "corag: stage $stage" >&2
    case $stage in
    cost | index | choose | recall | table) $stage ;;
    test) ask ;;
    *)
        echo "corag: there is no stage '$stage': write cost, index, choose, test, recall or table." >&2
        exit 2
        ;;
    esac
done
