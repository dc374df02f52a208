#!/usr/bin/env bash
# Install what the tests need into .venv and run them: style, types, floors, then every test. Arguments go to
# pytest.
#   bash scripts/test.sh                  everything, as CI does
#   bash scripts/test.sh -m 'not slow'    without real engines and index builds
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
export PYTHONDONTWRITEBYTECODE=  # packages are compiled as they are imported, once
bash scripts/install.sh
export PATH="$PWD/.venv/bin:$PATH"
# The report is tested in a real browser, which pip does not have: Debian's, where this may install it (else
# those tests are skipped).
if ! command -v chromedriver >/dev/null && [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    browser() { apt-get install -y -qq --no-install-recommends chromium chromium-driver >/dev/null 2>&1; }
    echo "corag: installing chromium and chromium-driver for the tests of reports ..." >&2
    browser || { apt-get update -qq >/dev/null 2>&1 && browser; } ||
        echo "corag: no browser could be installed." >&2
fi
ruff format --check .
ruff check .
mypy
lint-imports
python -m pytest --durations=15 --numprocesses 2 --dist loadscope --no-loadscope-reorder "$@"
