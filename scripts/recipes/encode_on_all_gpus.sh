#!/usr/bin/env bash
# Encode a corpus on every GPU of this machine: a part of the index on each, then one index of them all.
# Options are those of 'corag index'. The same command again goes on where it was, whatever ended it.
#   bash scripts/recipes/encode_on_all_gpus.sh wiki.jsonl indexes/wiki --encoder intfloat/e5-base-v2 --encoder_dtype bfloat16
#   CUDA_VISIBLE_DEVICES=2,3 bash scripts/recipes/encode_on_all_gpus.sh ...    on these GPUs only
#   PARTS=4 bash scripts/recipes/encode_on_all_gpus.sh ...                     no GPU: 4 processes
# The parts lie in OUT.parts and may be removed afterwards; there must be room for the vectors twice.
set -euo pipefail
if [ $# -lt 2 ] || [ "$1" = --help ]; then
    sed -n '2,/^set/{/^#/p}' "${BASH_SOURCE[0]}"
    exit 2
fi
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
[ -x "$root/.venv/bin/corag" ] || bash "$root/scripts/install.sh"
export PATH="$root/.venv/bin:$PATH"
corpus=$1 out=$2
shift 2

if [ -z "${CUDA_VISIBLE_DEVICES+set}" ]; then
    CUDA_VISIBLE_DEVICES=$({ nvidia-smi -L 2>/dev/null || true; } | sed -n 's/^GPU \([0-9]*\):.*/\1/p' | paste -sd, -)
fi
IFS=, read -ra gpus <<<"$CUDA_VISIBLE_DEVICES"
parts=${PARTS:-${#gpus[@]}}
[ "$parts" -gt 0 ] || parts=1
cores=$(nproc)
export OMP_NUM_THREADS=${OMP_NUM_THREADS:-$(((cores + parts - 1) / parts))}

encoding=() folders=()
trap 'kill -TERM "${encoding[@]}" 2>/dev/null || true; exit 130' INT TERM HUP
for ((number = 1; number <= parts; number++)); do
    folders+=("$out.parts/$number")
    if [ ${#gpus[@]} -gt 0 ]; then
        export CUDA_VISIBLE_DEVICES=${gpus[(number - 1) % ${#gpus[@]}]}
    fi
    corag index "$corpus" --kind dense "$@" --part "$number/$parts" --out "${folders[-1]}" &
    encoding+=($!)
done
failed=0
for each in "${encoding[@]}"; do wait "$each" || failed=1; done
if [ $failed = 1 ]; then
    echo "corag: not every part is finished: mend the cause and run the same command again." >&2
    exit 1
fi
unset OMP_NUM_THREADS
corag index "$corpus" --kind dense "$@" --merge "$(IFS=, && echo "${folders[*]}")" --out "$out"
