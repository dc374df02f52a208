"""Engines of a script: vLLM's own arguments reach them, also in little memory; Ctrl-C ends a question and not
them; none outlives a script that forgot it."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from corag.core.system.process import OWNER

SCRIPT = """
import os, signal, sys, threading
from corag import ClosedBookConfig, ask, closed_book, open_model

LITTLE = {  # the default model reads 8,192 tokens, which take 180 MiB of cache
    "dtype": "bfloat16", "kv_cache_gb": 0.12,
    "engine": {"hf_overrides": {"head_dtype": "float32"}, "max_num_batched_tokens": 8192},
}

def main():
    model = open_model(**LITTLE)
    threading.Timer(0.5, os.killpg, (0, signal.SIGINT)).start()  # as a terminal sends it
    long = ClosedBookConfig(max_answer_tokens=800)
    try:
        while True:  # one may be answered in a moment
            ask("Tell a long story of a river.", closed_book, model, config=long)
    except KeyboardInterrupt:
        print("interrupted", flush=True)
    print(repr(ask("Who?", closed_book, model, config=ClosedBookConfig(max_answer_tokens=3))), flush=True)
    again = open_model(**LITTLE)
    print("one engine" if again.engine is model.engine else "two engines", flush=True)
    print(model.engine.fingerprint, flush=True)
    sys.stdin.readline()
    if sys.argv[1] == "raises":
        raise RuntimeError("on purpose")

if __name__ == "__main__":
    main()
"""


def engines_of(owner: int) -> list[str]:
    """Return the processes that were started for an owner's engines."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            environment = (process / "environ").read_bytes().split(b"\0")
        except OSError:  # it has ended, or is another user's
            continue
        if f"{OWNER}={owner}".encode() in environment and int(process.name) != owner:
            found.append(process.name)
    return found


@pytest.mark.slow
@pytest.mark.parametrize("how", ["forgets", pytest.param("raises", marks=pytest.mark.drill)])
def test_an_engine_outlives_an_interrupted_question_and_not_its_script(how: str, tmp_path: Path) -> None:
    file = tmp_path / "script.py"
    file.write_text(SCRIPT)
    path = f"{Path(__file__).parents[2]}:{os.environ.get('PYTHONPATH', '')}"
    script = subprocess.Popen(
        [sys.executable, str(file), how], cwd=tmp_path, env=os.environ | {"PYTHONPATH": path}, text=True,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True,
    )  # fmt: skip
    assert script.stdout is not None
    assert script.stdout.readline() == "interrupted\n"
    assert script.stdout.readline().startswith("<Answered by closed_book")
    assert script.stdout.readline() == "one engine\n"
    fingerprint = script.stdout.readline()
    assert ":head=torch.float32:4096:" in fingerprint and "batched" not in fingerprint
    assert engines_of(script.pid), "it is up, and would be found"
    _, said = script.communicate("\n", timeout=300)
    assert script.returncode == (1 if how == "raises" else 0)
    assert ("RuntimeError: on purpose" in said) == (how == "raises")
    assert "reads 8,192 tokens at once" in said and "it reads 4,096" in said
    deadline = time.monotonic() + 60
    while left := engines_of(script.pid):
        assert time.monotonic() < deadline, f"{left} go on without their script"
        time.sleep(0.1)
