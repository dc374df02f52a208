#!/usr/bin/env bash
# Install what the tests need into .venv and run them: style, types, floors, then every test. Arguments go to pytest.
#   bash scripts/test.sh                  everything, as CI does
#   bash scripts/test.sh -m 'not slow'    without real engines and index builds
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
bash scripts/install.sh
export PATH="$PWD/.venv/bin:$PATH"
ruff format --check .
ruff check .
mypy
lint-imports
python -m pytest --durations=15 "$@"
