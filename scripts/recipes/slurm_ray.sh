#!/usr/bin/env bash
#SBATCH --job-name=corag
#SBATCH --ntasks-per-node=1
#SBATCH --exclusive
#SBATCH --mem=0
# One run over all GPUs of all nodes of a SLURM job: Ray is started on each, the command on the first.
# The nodes are the job's alone, with all cores and memory. Options are those of 'corag run', 'sample' or 'sweep'
# and go there unchanged. The same command again goes on
# where it was. Recipes:
#   sbatch --nodes 4 --gpus-per-node 8 scripts/recipes/slurm_ray.sh run --config experiment.yaml
#   GPUS_PER_ENGINE=4 sbatch --nodes 4 --gpus-per-node 8 scripts/recipes/slurm_ray.sh run --config big.yaml \
#       --model.tensor_parallel 4
#   DRY=1 NODES=2 bash scripts/recipes/slurm_ray.sh run --config experiment.yaml      says what it would do
# Run scripts/install.sh --gpu before, where all nodes see it; run folders and indexes lie where all nodes see them.
set -euo pipefail
if [ $# = 0 ] || [ "$1" = --help ]; then
    sed -n '2,/^set/{/^#/p}' "${BASH_SOURCE[0]}"
    exit 2
fi
# SLURM runs a copy of this file: the checkout is where the job was submitted.
root=${CORAG_ROOT:-${SLURM_SUBMIT_DIR:-$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)}}
export PATH="$root/.venv/bin:$PATH" RAY_USAGE_STATS_ENABLED=0
# Importing Ray from a cold network file system may take a node longer than the 30 s that Ray waits for it.
export RAY_SYMMETRIC_RUN_CLUSTER_WAIT_TIMEOUT=${RAY_SYMMETRIC_RUN_CLUSTER_WAIT_TIMEOUT:-600}
# Ray asks who joins for a token, which each node would look for in a file of its own: this job's is in its environment.
export RAY_AUTH_MODE=${RAY_AUTH_MODE:-token}
export RAY_AUTH_TOKEN=${RAY_AUTH_TOKEN:-$(od -An -N32 -tx1 /dev/urandom | tr -d ' \n')}
nodes=${SLURM_JOB_NUM_NODES:-${NODES:-1}}
per_engine=${GPUS_PER_ENGINE:-1}
command=$1
shift
if [ -n "${SLURM_JOB_NODELIST:-}" ]; then
    head=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
else
    head=$(hostname)
fi
# A port of the job's own: two jobs may share their first node.
port=$((6379 + ${SLURM_JOB_ID:-0} % 1000))
# Without an address corag would start a cluster of its own on the first node, and the others would idle.
wanted=(ray symmetric-run --address "$head:$port" --min-nodes "$nodes" --
    corag "$command" --workers ray --workers.address "$head:$port" --workers.gpus_per_worker "$per_engine" "$@")
# All that the job has on a node: a step of its own would get one core of it.
step=(srun --nodes "$nodes" --ntasks "$nodes" --cpus-per-task "${SLURM_CPUS_ON_NODE:-$(nproc)}"
    --cpu-bind none --mem 0)
if [ "${DRY:-}" = 1 ]; then
    echo "${step[*]} ${wanted[*]}"
    exit 0
fi
exec "${step[@]}" "${wanted[@]}"
