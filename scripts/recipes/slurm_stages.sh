#!/usr/bin/env bash
# CoRAG's training and test as SLURM jobs, a job script per stage: each with its cores, memory, time and GPUs, each
# starts when the one before has ended well, and is put back into the queue at its time limit or when preempted.
# Every stage resumes, so submit the same again after a failure. *Not run on a cluster by us.*
#   QUESTIONS=train.jsonl TEST=test.jsonl CORPUS=corpus.jsonl bash scripts/recipes/slurm_stages.sh
#                                                      all stages: index sample rows train run table
#   ... bash scripts/recipes/slurm_stages.sh train run table      some of them
#   DRY=1 ...                      write the job scripts, check the options of their commands, submit nothing
# Variables, with their defaults:
#   OUT=results/slurm              folder of all results, and of the job scripts (OUT/jobs)
#   MODEL=meta-llama/Llama-3.1-8B-Instruct    TRAIN=training/configs/1gpu_qlora.yaml    TRAIN_GPUS=1 (more: one node)
#   LAUNCH=                        e.g. --launch=--config_file,training/configs/accelerate_8gpu.yaml with TRAIN_GPUS=8
#   SHARDS=8                       jobs of the array that samples, and of the one that decodes
#   GPUS_PER_ENGINE=1              of each of these jobs: tensor parallelism
#   SOURCE=model                   --sample.source, such as decomposition
#   GRACE=300                      seconds before its time limit at which a job's command is stopped and the job put back
#                                  into the queue: more where writing a checkpoint of the model takes longer
#   FORMAT=  DATASET=              of CORPUS and of QUESTIONS and TEST, if they are official files, such as hotpotqa
#   OPTIONS="--corag.preset paper" those of sampling and decoding alike; no blanks within a value
#   SBATCH="--partition=gpu --account=me"     further options of every job
# Before: bash scripts/install.sh --gpu, on a file system that all nodes see; models in HF_HOME.
set -euo pipefail
if [ "${1:-}" = --help ]; then sed -n '2,/^set/{/^#/p}' "${BASH_SOURCE[0]}"; exit 2; fi
root=${CORAG_ROOT:-$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)}
export PATH="$root/.venv/bin:$PATH"
out=${OUT:-results/slurm} model=${MODEL:-meta-llama/Llama-3.1-8B-Instruct} shards=${SHARDS:-8}
engine=${GPUS_PER_ENGINE:-1} train=${TRAIN:-$root/training/configs/1gpu_qlora.yaml} train_gpus=${TRAIN_GPUS:-1}
options=${OPTIONS:---corag.preset paper} jobs=$out/jobs previous= grace=${GRACE:-300}
dataset=${DATASET:+--dataset $DATASET}
fail() { echo "slurm_stages.sh: $1" >&2; exit 2; }
need() { [ -n "${!1:-}" ] || fail "$1 is not set: name the file, such as $1=$2."; [ -e "${!1}" ] ||
    fail "$1=${!1} is not there: name a file that all nodes see."; }

# job STAGE CORES MEMORY HOURS GPUS ARRAY COMMAND: write the job script, then check its options or submit it.
job() {
    local stage=$1 file=$jobs/$1.sbatch array= gpus= task=
    [ "$6" = 0 ] || array=$'\n'"#SBATCH --array=1-$6" task='-%a'
    [ "$5" = 0 ] || gpus=$'\n'"#SBATCH --gpus-per-node=$5"
    cat >"$file" <<JOB
#!/usr/bin/env bash
#SBATCH --job-name=corag-$stage
#SBATCH --nodes=1 --ntasks=1
#SBATCH --cpus-per-task=$2
#SBATCH --mem=$3
#SBATCH --time=$4:00:00$gpus$array
#SBATCH --output=$jobs/$stage$task.log --open-mode=append
#SBATCH --requeue
#SBATCH --signal=B:USR1@$grace
# $grace seconds before the time limit: stop the command, which resumes, and go back into the queue.
again() { kill -TERM "\$child"; wait "\$child"; scontrol requeue "\$SLURM_JOB_ID" && sleep 60; exit 1; }
trap again USR1
cd "$PWD" || exit 1
export PATH="$root/.venv/bin:\$PATH"
$7 &
child=\$!
wait "\$child"
JOB
    bash -n "$file"
    if [ "${DRY:-}" = 1 ]; then
        echo "$file: $2 cores, $3, $4 h${gpus:+, $5 GPU}${array:+, array of $6}${previous:+, after $previous}"
        SLURM_ARRAY_TASK_ID=1 eval "$7 --print_config" >/dev/null || fail "stage $stage: see the message above."
        previous=$stage
    else
        # shellcheck disable=SC2086
        previous=$(sbatch --parsable ${SBATCH:-} ${previous:+--dependency=afterok:$previous --kill-on-invalid-dep=yes} "$file")
        echo "$stage: job $previous"
    fi
}

stages=("$@")
[ $# -gt 0 ] || stages=(index sample rows train run table)
[[ $grace =~ ^[1-9][0-9]{0,4}$ && $grace -le 65535 ]] || fail "GRACE=$grace is no number of seconds: give one from 1 to 65535, such as 300."
case " $options " in *tensor_parallel*) fail "OPTIONS has tensor_parallel: set GPUS_PER_ENGINE instead." ;; esac
if [ "$train_gpus" -gt 1 ] && [ -z "${LAUNCH:-}" ]; then
    fail "TRAIN_GPUS=$train_gpus, but one process trains on one GPU: set LAUNCH, such as
    LAUNCH=--launch=--config_file,training/configs/accelerate_8gpu.yaml."
fi
mkdir -p "$jobs"
index=$out/index chains=$out/chains decoding="--model.name $model"
if grep -q '^tuning: full' "$train"; then decoding="--model.name $out/model"; else decoding+=" --model.adapter $out/model"; fi
parallel="--model.tensor_parallel $engine --workers.kind none"
folders=
for i in $(seq "$shards"); do folders+=" $chains.shard-$i-of-$shards"; done
for stage in "${stages[@]}"; do
    case $stage in
    index) need CORPUS corpus.jsonl
        job index 16 64G 12 0 0 "corag index $CORPUS ${FORMAT:+--format $FORMAT} --out $index" ;;
    sample) need QUESTIONS train.jsonl
        job sample $((12 * engine)) $((96 * engine))G 24 "$engine" "$shards" "corag sample --questions $QUESTIONS $dataset \
--retriever.index $index --model.name $model $parallel --sample.source ${SOURCE:-model} $options --out $chains \
--shard \$SLURM_ARRAY_TASK_ID/$shards" ;;
    rows) job rows 4 32G 4 0 0 "corag rows$folders --retriever.index $index --model $model \
--rows.tasks sub_query,sub_answer,stop,final_answer --out $out/rows" ;;
    train) job train $((8 * train_gpus)) $((64 * train_gpus))G 24 "$train_gpus" 0 "corag train ${LAUNCH:-} \
--config $train --rows $out/rows --model $model --out $out/model" ;;
    run) need TEST test.jsonl
        job run $((12 * engine)) $((96 * engine))G 12 "$engine" "$shards" "corag run --questions $TEST $dataset --method corag \
--retriever.index $index $decoding $parallel $options --out $out/run --shard \$SLURM_ARRAY_TASK_ID/$shards" ;;
    table) job table 4 32G 1 0 0 "corag table $out/run/corag --join" ;;
    *) fail "there is no stage '$stage': give some of index sample rows train run table." ;;
    esac
done
