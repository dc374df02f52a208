"""The tests' own scheduler: a test that kills its process fails, and all others are run."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[1]
PLAIN = "def test_one(): pass\ndef test_two(): pass\ndef test_three(): pass\n"
KILLS = (
    "import os\ndef test_before(): pass\ndef test_kills(): os.kill(os.getpid(), 9)\ndef test_after(): pass\n"
)
LAST = "import os\ndef test_kills(): os.kill(os.getpid(), 9)\n"
# gw2 and gw3 stand in for two processes that die at once: the second is there, and still collects, when the
# first is done with that.
SLOW = "import os, time\ntime.sleep({'gw2': 1.5, 'gw3': 4}.get(os.environ.get('PYTEST_XDIST_WORKER'), 0))\n"


@pytest.mark.parametrize(
    ("files", "passed", "died_of"),
    [
        ([KILLS, PLAIN, PLAIN, PLAIN], 11, ["test_0.py::test_kills"]),
        ([PLAIN, PLAIN, PLAIN, KILLS], 11, ["test_3.py::test_kills"]),
        (
            [PLAIN, KILLS, "def test_one(): pass\n", LAST, PLAIN],
            9,
            ["test_1.py::test_kills", "test_3.py::test_kills"],
        ),
        ([LAST, LAST, SLOW + PLAIN, PLAIN], 6, ["test_0.py::test_kills", "test_1.py::test_kills"]),
    ],
    ids=["the first file", "the last file", "two, and a file of one test", "two at once"],
)
def test_a_test_that_kills_its_process_fails_alone(
    tmp_path: Path, files: list[str], passed: int, died_of: list[str]
) -> None:
    ended = run_tests(tmp_path, files)
    assert ended.returncode == 1, ended.stdout + ended.stderr
    assert f"{len(died_of)} failed, {passed} passed" in ended.stdout
    assert sorted(re.findall(r"^FAILED (\S+)", ended.stdout, re.MULTILINE)) == died_of
    assert len(re.findall(r"crashed while running 'test_.*: SIGKILL$", ended.stdout, re.MULTILINE)) >= len(
        died_of
    )


def test_a_process_that_finds_other_tests_ends_the_run(tmp_path: Path) -> None:
    changed = (
        "import os\nif os.environ.get('PYTEST_XDIST_WORKER') in ('gw2', 'gw3'):\n    def test_new(): pass\n"
    )
    ended = run_tests(tmp_path, [LAST, LAST, PLAIN + changed, PLAIN])
    assert ended.returncode not in (0, 1), ended.stdout + ended.stderr
    assert "stands in for a process that died, but finds other tests" in ended.stdout


def run_tests(folder: Path, files: list[str]) -> subprocess.CompletedProcess[str]:
    for number, text in enumerate(files):
        (folder / f"test_{number}.py").write_text(text)
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-p",
        "xdist",
        "-p",
        "tests.scheduling",
        "--rootdir",
        ".",
        "-rf",
    ]
    return subprocess.run(
        [*command, "--numprocesses", "2", "--dist", "loadscope", "--no-loadscope-reorder", "."],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True,
        text=True,
        timeout=300,
    )
