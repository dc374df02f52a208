#!/usr/bin/env bash
# Put the locked packages and corag itself into .venv at the repository's root; do nothing if they are there
# already.
#   bash scripts/install.sh          for GPUs where nvidia-smi finds one, else for CPUs
#   bash scripts/install.sh --gpu    for NVIDIA GPUs (requirements/gpu.lock), also on a login node that has none;
#                                    CORAG_GPU=1 says the same
#   bash scripts/install.sh --cpu    for CPUs (requirements/cpu.lock); CORAG_GPU=0 says the same
# Later calls without a word keep the choice. Python 3.11 or 3.12, for CPUs 3.13 too; CORAG_PYTHON names one.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

case "${1:-}" in
"") ;;
--gpu) CORAG_GPU=1 ;;
--cpu) CORAG_GPU=0 ;;
*)
    echo "corag: there is no '$1': write --gpu, --cpu or nothing." >&2
    exit 2
    ;;
esac
kind_given=${CORAG_GPU:-$(cat .venv/corag-gpu 2>/dev/null || true)}
kind=cpu
if [ "$kind_given" = 1 ] || { [ -z "$kind_given" ] && nvidia-smi -L >/dev/null 2>&1; }; then
    kind=gpu
fi
lock=requirements/$kind.lock

# cuda-python, which vLLM's build for GPUs asks for, has no wheels for Python 3.13.
versions="3.11 3.12"
[ $kind = gpu ] || versions="$versions 3.13"
fits() { # PYTHON
    "$1" -c 'import sys; sys.exit("%d.%d" % sys.version_info[:2] not in sys.argv[1:])' $versions 2>/dev/null
}
python=${CORAG_PYTHON:-}
if [ -n "$python" ] && ! fits "$python"; then
    echo "corag: CORAG_PYTHON=$python is not Python ${versions// /, } (for $kind): name another." >&2
    exit 2
fi
if [ -z "$python" ]; then
    for candidate in python3.11 python3.12 python3.13 python3 python; do
        if fits "$candidate"; then
            python=$candidate
            break
        fi
    done
fi
# uv brings a Python of its own, without root.
get_python() {
    local uv=uv
    command -v uv >/dev/null || {
        python3 -m pip install --quiet --user "uv>=0.9" >&2 && uv="$(python3 -m site --user-base)/bin/uv"
    } || return 1
    "$uv" python install 3.12 >&2 && python=$("$uv" python find 3.12)
}
[ -n "$python" ] || get_python || true
if [ -z "$python" ]; then
    echo "corag: Python ${versions// /, } was not found: install one (without root: 'uv python install 3.12')," \
        "or name it with CORAG_PYTHON=/path/to/python3.11." >&2
    exit 2
fi

wanted=$(cat "$lock" pyproject.toml | sha256sum | cut -d' ' -f1)
if [ -x .venv/bin/python ] && [ "$(cat .venv/corag-lock 2>/dev/null || true)" = "$wanted" ]; then
    [ -z "$kind_given" ] || echo "$kind_given" >.venv/corag-gpu
    exit 0
fi
# Debian's and Ubuntu's python3.11 without python3.11-venv leaves a .venv that has a python and no pip.
has_pip() { .venv/bin/python -m pip --version >/dev/null 2>&1; }
has_pip || "$python" -m venv --clear .venv >&2 || true
has_pip || { get_python && "$python" -m venv --clear .venv >&2; } || true
has_pip || {
    echo "corag: '$python -m venv' makes no environment with pip: install its package (Ubuntu: apt install" \
        "python3-venv or python3.11-venv), or name another Python with CORAG_PYTHON." >&2
    exit 2
}
if [ $kind = cpu ] && [ -z "$kind_given" ]; then
    echo "corag: no GPU is seen here, so this is an installation for CPUs. If it is for machines with GPUs (this is" \
        "a cluster's login node), stop it and write: bash scripts/install.sh --gpu" >&2
fi
echo "corag: installing $(grep -c '==' "$lock") packages from $lock into .venv (1 to 6 minutes) ..." >&2
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
# uv unpacks in parallel what pip takes one by one, in a fifth of the time, and knows where PyTorch's builds for
# CPUs are, a tenth of those for GPUs. Where it cannot reach them, pip may be configured to find some. Whatever
# uv cannot do, pip does afterwards.
uv_torch() {
    [ $kind = cpu ] && UV_HTTP_RETRIES=0 VIRTUAL_ENV="$PWD/.venv" .venv/bin/uv pip install --no-deps \
        --torch-backend cpu "$1"
}
torch_install() { uv_torch "$1" || pip_install --no-deps "$1"; }
uv_install() {
    pip_install "uv>=0.9" && torch_install "$(grep '^torch==' "$lock")" &&
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
            "this machine's is $driver. Update it and run this again. Without root: on data-centre GPUs (A100, H100, L4)" \
            "driver 535 or newer does with NVIDIA's package cuda-compat-13-0, its libraries first in LD_LIBRARY_PATH," \
            "or in a container (scripts/recipes/corag.def); or take vLLM's and PyTorch's wheels for CUDA 12 (cu129), or" \
            "install for CPUs with --cpu." >&3
        exit 2
    fi
    echo "corag: there is no GPU here. Machines that corag is to run on want NVIDIA driver 580 (R580) or newer." >&3
fi
exec 2>&3
# Triton and FlashInfer compile on the machines with GPUs.
[ $kind != gpu ] || command -v "${CC:-gcc}" >/dev/null || echo "corag: there is no C compiler (gcc) here. vLLM's kernels
for GPUs are compiled when an engine first starts: install gcc, or load the cluster's module of it." >&2
[ -z "$kind_given" ] || echo "$kind_given" >.venv/corag-gpu
echo "$wanted" >.venv/corag-lock
echo "corag: installed in $((SECONDS - started)) s. Next: source .venv/bin/activate; corag --help" >&2
