#!/usr/bin/env bash
# Answer a question file in shards, each with an engine of its own, join the shards and print the table.
# 'corag run' has an engine on each GPU by itself, and one search server for all; here each shard is a process
# that opens the index, for machines without Ray and for SLURM's arrays.
# Options are those of 'corag run' and go there unchanged. The same command again goes on where it was.
# Questions need no gold answers: --answers_to answers.csv writes what was answered, with its sources.
# Recipes:
#   bash scripts/recipes/batch_inference.sh --config experiment.yaml      an engine and a shard for each GPU
#   CUDA_VISIBLE_DEVICES=2,3 bash scripts/recipes/batch_inference.sh ...  on these GPUs only
#   GPUS_PER_ENGINE=4 bash scripts/recipes/batch_inference.sh ...         tensor parallel: 2 engines on 8 GPUs
#   SHARDS=4 AT_ONCE=2 bash scripts/recipes/batch_inference.sh ...        no GPU: 4 shards, 2 at a time
#   LOGS=folder bash scripts/recipes/batch_inference.sh ...               each shard's log; else in runs/logs
# SLURM, one shard per task of an array (run scripts/install.sh --gpu before); afterwards, on any machine, the
# joining and the table:
#   sbatch --array=1-8 --gpus=1 --cpus-per-task=12 --mem=96G --wrap 'export PATH="$PWD/.venv/bin:$PATH"
#       corag run --config my.yaml --shard $SLURM_ARRAY_TASK_ID/8'
#   corag table runs/NAME/*.shard-1-of-8 --join --answers_to answers.csv
set -euo pipefail
if [ $# = 0 ] || [ "$1" = --help ]; then
    sed -n '2,/^set/{/^#/p}' "${BASH_SOURCE[0]}"
    exit 2
fi
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
[ -x "$root/.venv/bin/corag" ] || bash "$root/scripts/install.sh"
export PATH="$root/.venv/bin:$PATH"

per_engine=${GPUS_PER_ENGINE:-1}
visible=${CUDA_VISIBLE_DEVICES:-}
# Numbers of whole GPUs; of one that is cut into instances (MIG) their names, since it cannot be used whole.
list_gpus() {
    { nvidia-smi -L 2>/dev/null || true; } | awk '
        function whole() { if (gpu != "") print gpu; gpu = "" }
        /^GPU [0-9]+:/ { whole(); gpu = $2; sub(":", "", gpu) }
        /^ +MIG .*MIG-/ { gpu = ""; match($0, /MIG-[^)]*/); print substr($0, RSTART, RLENGTH) }
        END { whole() }'
}
if [ -z "${CUDA_VISIBLE_DEVICES+set}" ]; then
    visible=$(list_gpus | paste -sd, -)
fi
# CUDA reads numbers and names (GPU-..., MIG-...) up to the first entry that is none, such as -1 or what SLURM
# writes where there is no GPU (NoDevFiles).
IFS=, read -ra listed <<<"$visible"
gpus=()
for each in "${listed[@]}"; do
    [[ ${each// /} =~ ^([0-9]+|GPU-.+|MIG-.+)$ ]] || break
    gpus+=("${each// /}")
done
if [ "$per_engine" -gt 1 ] && [[ ${gpus[*]} == *MIG-* ]]; then
    echo "corag: an engine cannot run on several instances of a GPU (MIG): leave GPUS_PER_ENGINE out." >&2
    exit 2
fi
engines=$((${#gpus[@]} / per_engine))
if [ ${#gpus[@]} = 0 ]; then
    engines=${AT_ONCE:-1}
elif [ $engines = 0 ]; then
    echo "corag: GPUS_PER_ENGINE is $per_engine, but the GPUs are only ${gpus[*]}: give a smaller one." >&2
    exit 2
fi
# More threads than cores wait for each other, many times slower than one thread each: in torch, and in every
# shard's searches.
[ "$engines" = 1 ] || export OMP_NUM_THREADS=${OMP_NUM_THREADS:-$((($(nproc) + engines - 1) / engines))}
shards=${SHARDS:-$engines}
logs=${LOGS:-runs/logs/$(printf '%s\n' "$@" | cksum | cut -d' ' -f1)}
mkdir -p "$logs"

# Answer the shards number, number + engines, number + 2 * engines ... on this engine's GPUs; fail at the end
# if one of them failed.
engine() {
    local number=$1 options=() failed=0 running= shard log
    shift
    trap 'kill -TERM -- "-$running" "$running" 2>/dev/null; exit 143' INT TERM HUP
    if [ ${#gpus[@]} -gt 0 ]; then
        CUDA_VISIBLE_DEVICES=$(IFS=, && echo "${gpus[*]:(number - 1) * per_engine:per_engine}")
        export CUDA_VISIBLE_DEVICES
    fi
    [ "$per_engine" = 1 ] || options=(--model.tensor_parallel "$per_engine")
    for ((shard = number; shard <= shards; shard += engines)); do
        log=$logs/shard-$shard-of-$shards
        # In a process group of its own (setsid), an engine can be stopped with all processes that it starts.
        setsid corag run "${options[@]}" "$@" --shard "$shard/$shards" --json >"$log.out" 2>"$log.err" </dev/null &
        running=$!
        # A shard that ends with a table is finished, though questions may have failed: joining counts those.
        if ! wait "$running" && [[ $(tail -n 1 "$log.out") != '{"runs"'* ]]; then
            printf 'corag: shard %s of %s failed; its log is %s, which ends with:\n%s\n' \
                "$shard" "$shards" "$log.err" "$(tail -n 2 "$log.err")" >&2
            failed=1
        fi
    done
    return $failed
}

stop() {
    kill -TERM "${workers[@]}" 2>/dev/null || true
    echo "corag: interrupted. What was answered is kept: the same command goes on from there." >&2
    exit 130
}

workers=()
trap stop INT TERM HUP
echo "corag: $shards shards, $engines at a time; watch them with tail -f $logs/*.err" >&2
for ((number = 1; number <= engines; number++)); do
    engine "$number" "$@" &
    workers+=($!)
done
failed=0
for worker in "${workers[@]}"; do wait "$worker" || failed=1; done
if [ $failed = 1 ]; then
    echo "corag: not every shard is finished, so nothing was joined: mend the cause and run the same" \
        "command again." >&2
    exit 1
fi
folders='import json, sys; print(*(run["folder"] for run in json.load(sys.stdin)["runs"].values()), sep="\n")'
mapfile -t runs < <(tail -n 1 "$logs/shard-1-of-$shards.out" | python -c "$folders")
option_of() {
    tail -n 1 "$logs/shard-1-of-$shards.out" |
        python -c 'import json, sys; print(json.load(sys.stdin).get(sys.argv[1], ""))' "$1"
}
options=(--max_failed "$(option_of max_failed)")
answers=$(option_of answers_to)
[ -z "$answers" ] || options+=(--answers_to "$answers")
[[ " $* " != *" --json "* ]] || options+=(--json)
corag table "${runs[@]}" --join "${options[@]}"
