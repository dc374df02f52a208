#!/usr/bin/env bash
# Install what the tests need into .venv and run them. Further arguments go to pytest.
#   bash scripts/test.sh --quick    style, types, layers, tests without engines: for every edit
#   bash scripts/test.sh            and real engines, indexes, trainings: before a push; CI runs this
#   bash scripts/test.sh --all      and drills: killed processes, browsers, pages, recipes, long fuzzing
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
tier="not drill"
case "${1:-}" in
    --quick) tier="not slow and not drill" && shift ;;
    --all) tier="" && shift && export CORAG_FUZZ=10 ;; # ten times as many random cases, others each time
esac
export PYTHONDONTWRITEBYTECODE= # packages are compiled as they are imported, once
bash scripts/install.sh
export PATH="$PWD/.venv/bin:$PATH"
# Drills look at reports in a real browser, which pip does not have: Debian's, where this may install it (else
# those tests are skipped).
if [ -z "$tier" ] && ! command -v chromedriver >/dev/null && [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    browser() { apt-get install -y -qq --no-install-recommends chromium chromium-driver >/dev/null 2>&1; }
    echo "corag: installing chromium and chromium-driver for the tests of reports ..." >&2
    browser || { apt-get update -qq >/dev/null 2>&1 && browser; } ||
        echo "corag: no browser could be installed." >&2
fi
ruff format --check .
ruff check .
mypy
lint-imports
python scripts/budget.py
# Two processes compute at once. OpenMP's threads that wait would keep the cores busy: trainings then take four
# times as long.
export OMP_WAIT_POLICY="${OMP_WAIT_POLICY:-passive}"
python -m pytest --durations=15 --numprocesses 2 --dist loadscope --no-loadscope-reorder -m "$tier" "$@"
