"""Two processes in one folder: the second is told of the first, and a killed one leaves no lock."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from corag.core.errors import ConfigError, DataError
from corag.core.system.folder_lock import lock_folder, refuse_if_locked
from tests.messages import raises_message

HOLD = """
import os, sys, time
from pathlib import Path
from corag.core.system.folder_lock import lock_folder
lock = lock_folder(Path(sys.argv[1]), work="corag train", beside=sys.argv[2] == "beside")
if sys.argv[2] != "fork" or not os.fork():
    print(os.getpid(), flush=True)
time.sleep(60)
"""


@contextmanager
def holder(folder: Path, how: str = "") -> Iterator[tuple[subprocess.Popen[str], int]]:
    """Another process that holds the lock, and the number of its child, or its own if it has none."""
    command = [sys.executable, "-c", HOLD, str(folder), how]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        child = int(process.stdout.readline())
        try:
            yield process, child
        finally:
            process.kill()
            if child != process.pid:
                os.kill(child, 9)


def test_a_second_process_is_told_which_is_at_work(tmp_path: Path) -> None:
    folder = tmp_path / "new/adapter"
    refuse_if_locked(folder)
    assert not folder.exists()
    with holder(folder) as (process, _):
        for ask in (lock_folder, refuse_if_locked):
            with pytest.raises(ConfigError) as refused:
                ask(folder)
            who = f"another corag train (process {process.pid} on {socket.gethostname()})"
            assert str(refused.value) == f"{who} is at work in '{folder}': wait for it or stop it."
        with raises_message(ConfigError):
            lock_folder(folder, advice="choose another 'out'")
    with lock_folder(folder), raises_message(ConfigError):  # of this process, too
        lock_folder(folder)
    refuse_if_locked(folder)


def test_after_kill_9_the_folder_is_free_though_a_child_lives_on(tmp_path: Path) -> None:
    with holder(tmp_path, "fork") as (process, child):
        process.kill()
        process.wait()
        os.kill(child, 0)
        lock_folder(tmp_path).close()


def test_a_folder_that_is_replaced_as_a_whole_is_locked_from_beside(tmp_path: Path) -> None:
    folder = tmp_path / "index"
    with holder(folder, "beside"):
        assert not folder.exists()
        for _ in range(2):
            with pytest.raises(ConfigError, match="corag train"):
                lock_folder(folder, beside=True)
            (tmp_path / "other").mkdir()
            (tmp_path / "other").rename(folder)


def test_a_link_and_the_folder_that_it_leads_to_are_one(tmp_path: Path) -> None:
    (tmp_path / "index").mkdir()
    (tmp_path / "link").symlink_to("index")
    with lock_folder(tmp_path / "index", beside=True):
        for ask in (lock_folder, refuse_if_locked):
            with pytest.raises(ConfigError, match=r"is at work in '.*link'"):
                ask(tmp_path / "link", beside=True)


def test_a_folder_that_was_removed_meanwhile_is_locked_anew(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    with lock_folder(folder):
        shutil.rmtree(folder)
        with lock_folder(folder), pytest.raises(ConfigError):
            refuse_if_locked(folder)


def test_where_nothing_can_be_written_it_says_so(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with raises_message(DataError):
        lock_folder(tmp_path / "file/run")
