#!/usr/bin/env bash
# Put the locked packages and corag itself into .venv at the repository's root; do nothing if they are there
# already.
#   bash scripts/install.sh          CPU (requirements/cpu.lock)
#   CORAG_GPU=1 bash scripts/install.sh   CUDA GPU (requirements/gpu.lock); the default where there is one
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

kind=cpu
if [ "${CORAG_GPU:-}" = 1 ] || { [ -z "${CORAG_GPU:-}" ] && nvidia-smi -L >/dev/null 2>&1; }; then
    kind=gpu
fi
lock=requirements/$kind.lock

python=${CORAG_PYTHON:-}
if [ -z "$python" ]; then
    for candidate in python3.11 python3 python; do
        if "$candidate" -c 'import sys; sys.exit(sys.version_info[:2] != (3, 11))' 2>/dev/null; then
            python=$candidate
            break
        fi
    done
fi
if [ -z "$python" ]; then
    echo "corag: Python 3.11 was not found: install it, or name it with CORAG_PYTHON=/path/to/python3.11." >&2
    exit 2
fi

[ -x .venv/bin/python ] || "$python" -m venv .venv
wanted=$(cat "$lock" pyproject.toml | sha256sum | cut -d' ' -f1)
if [ "$(cat .venv/corag-lock 2>/dev/null || true)" = "$wanted" ]; then
    exit 0
fi
echo "corag: installing $(grep -c '==' "$lock") packages from $lock into .venv (1 to 4 minutes) ..." >&2
started=$SECONDS
# What the installers say is of interest only if something goes wrong.
exec 3>&2 2>.venv/install.log
show_log() { tail -n 15 .venv/install.log >&3 && echo "corag: not installed; see .venv/install.log." >&3; }
trap '[ $? = 0 ] || show_log' EXIT
pip_install() { .venv/bin/python -m pip install --quiet --disable-pip-version-check "$@" >&2; }
# Python compiles a package when it is first imported, unless the environment forbids it to write that down:
# then every process would compile all that it imports, so uv does it now.
compile=()
[ -z "${PYTHONDONTWRITEBYTECODE:-}" ] || compile=(--compile-bytecode)
# uv unpacks in parallel what pip takes one by one, in a fifth of the time. torch stays pip's, since pip alone
# may be configured to find CPU builds. Whatever uv cannot do, pip does afterwards.
uv_install() {
    pip_install "uv>=0.9" && pip_install --no-deps "$(grep '^torch==' "$lock")" &&
        grep -v '^torch==' "$lock" >.venv/uv-lock.txt &&
        VIRTUAL_ENV="$PWD/.venv" .venv/bin/uv pip install "${compile[@]}" --no-deps \
            --no-build-isolation -r .venv/uv-lock.txt
}
pip_install --upgrade "pip>=25" "setuptools>=77,<81" wheel
uv_install || pip_install --no-deps -r "$lock"
pip_install --no-deps --no-build-isolation --editable .
if ! torch_of=$(.venv/bin/python -c 'import torch
print(torch.version.cuda, torch.cuda.is_available())' 2>.venv/torch-error); then
    tail -n 1 .venv/torch-error >&3
    echo "corag: torch does not start. On a machine without a GPU it must be the CPU build: add PyTorch's" \
        "index of CPU builds to pip's configuration (extra-index-url), delete .venv and run this again." >&3
    exit 2
fi
read -r cuda finds_gpu <<<"$torch_of"
if [ $kind = gpu ] && [ "$cuda" = None ]; then
    echo "corag: torch is a build for CPUs, though this should be an installation for GPUs: take the indexes" \
        "of CPU builds out of pip's and uv's configuration, delete .venv and run this again." >&3
    exit 2
elif [ $kind = gpu ] && [ "$finds_gpu" = False ]; then
    driver=$(nvidia-smi --query-gpu=driver_version --format=csv,noheader 2>/dev/null | head -n 1) || driver=
    if [ -n "$driver" ]; then
        echo "corag: torch, a build for CUDA $cuda, finds no GPU. CUDA 13 wants NVIDIA driver 580 (R580) or newer;" \
            "this machine's is $driver. Update it and run this again, or install for CPUs with CORAG_GPU=0." >&3
        exit 2
    fi
    echo "corag: there is no GPU here. Machines that corag is to run on want NVIDIA driver 580 (R580) or newer." >&3
fi
exec 2>&3
echo "$wanted" >.venv/corag-lock
echo "corag: installed in $((SECONDS - started)) s. Next: source .venv/bin/activate; corag --help" >&2
