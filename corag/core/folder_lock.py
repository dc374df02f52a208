"""One process at a time works in a folder; a second one is told which does.

Two trainings, runs, samplings or index builds in one folder would write each other's files. The lock is the
system's own (flock): it ends with the process that holds it, however that ends, so ``kill -9`` leaves none
behind. The file, ``.lock``, stays; it says who holds the lock, for the message.

On NFS Linux makes flock a lock of the server, which all machines see. A file system without locks (some
Lustre mounts) keeps no second process out.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import socket
import sys
import time
import weakref
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

from corag.core.errors import ConfigError, DataError

LOCK = ".lock"
_TRIES, _PAUSE_S = 30, 0.05
_COMMAND = re.compile(r"(?:.*/)?corag(?:/cli/__main__\.py)?")
_open: weakref.WeakSet[FolderLock] = weakref.WeakSet()


class FolderLock:
    """The lock of a folder, held until it is closed or the process ends. Also a context manager."""

    def __init__(self, descriptor: int) -> None:
        """``descriptor``: of the locked file."""
        self._descriptor: int | None = descriptor
        _open.add(self)

    def close(self) -> None:
        """Give the folder free."""
        if self._descriptor is not None:
            with suppress(OSError):
                os.ftruncate(self._descriptor, 0)
            self._abandon()

    def _abandon(self) -> None:
        """Close this process's descriptor; another process's lock on the same file is left."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _after_fork() -> None:
    # A child that outlives a killed parent would hold the lock of a work that nobody does any more.
    for lock in list(_open):
        lock._abandon()


os.register_at_fork(after_in_child=_after_fork)


def lock_folder(folder: Path, *, work: str = "", beside: bool = False, advice: str = "") -> FolderLock:
    """Create a folder if need be and lock it.

    Args:
        folder: what is locked.
        work: what is done there, such as "corag train"; by default this process's command.
        beside: put the lock file beside the folder, whose own files are going to be replaced as a whole. The
            folder is then not created.
        advice: what else a second process can do, such as "choose another 'out'".

    Raises:
        ConfigError: if another process holds the lock, naming it.
        DataError: if nothing can be written there.
    """
    file = _lock_file(folder, beside)
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        while True:
            descriptor = os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
            if not _take_soon(descriptor):
                message = _work_message(folder, _holder(descriptor), advice)
                os.close(descriptor)
                raise ConfigError(message)
            if _is_same(descriptor, file):
                break
            os.close(descriptor)  # somebody removed the folder meanwhile: this lock keeps nobody out
        with suppress(OSError):  # on a full disk the lock holds all the same, and a second is told less
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, json.dumps(_this_process(work or this_command())).encode(), 0)
    except OSError as error:
        raise DataError(
            f"cannot write the folder '{folder}': {error.strerror}. Choose another with 'out'."
        ) from error
    return FolderLock(descriptor)


def refuse_if_locked(folder: Path, *, beside: bool = False, advice: str = "") -> None:
    """Raise :class:`ConfigError` if a process is at work in a folder; nothing is created or kept.

    For the moment before something takes long: whoever writes there locks it all the same.
    """
    try:
        descriptor = os.open(_lock_file(folder, beside), os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return  # not there yet, or not ours to write, which its lock will say
    try:
        if not _take_soon(descriptor, fcntl.LOCK_SH):
            raise ConfigError(_work_message(folder, _holder(descriptor), advice))
    finally:
        os.close(descriptor)


def this_command() -> str:
    """Return what this process is, for a reader: "corag run", say."""
    is_command = _COMMAND.fullmatch(sys.argv[0])
    return " ".join(["corag", *sys.argv[1:2]]) if is_command else "Python program"


def _lock_file(folder: Path, beside: bool) -> Path:
    if not beside:
        return folder / LOCK
    target = folder.resolve()  # of a link, beside where it leads: both names are one folder
    return target.with_name(f".{target.name}{LOCK}")


def _take(descriptor: int, kind: int = fcntl.LOCK_EX) -> bool:
    """Lock an open file and return whether that worked."""
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except (BlockingIOError, PermissionError):
        return False
    except OSError:  # a file system without locks
        return True
    return True


def _take_soon(descriptor: int, kind: int = fcntl.LOCK_EX) -> bool:
    """Lock an open file within a moment.

    What is in the way may be another's look (:func:`refuse_if_locked`), or a process that was killed and has
    not come to its end.
    """
    for _ in range(_TRIES):
        if _take(descriptor, kind):
            return True
        time.sleep(_PAUSE_S)
    return _take(descriptor, kind)


def _is_same(descriptor: int, file: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), file.stat())
    except FileNotFoundError:
        return False


def _this_process(work: str) -> dict[str, Any]:
    return {"work": work, "process": os.getpid(), "host": socket.gethostname()}


def _holder(descriptor: int) -> dict[str, Any]:
    """Return what the holder has noted of itself, {} if it has not come to that yet."""
    try:
        record = json.loads(os.pread(descriptor, 4096, 0))
    except (OSError, ValueError):
        return {}
    return record if isinstance(record, dict) else {}


def _work_message(folder: Path, holder: dict[str, Any], advice: str) -> str:
    host = holder.get("host", "")
    where = f" on {host}" if host and host != socket.gethostname() else ""
    is_known = {"work", "process"} <= holder.keys()
    who = f"{holder['work']} (process {holder['process']}{where})" if is_known else "process"
    choices = ["wait for it", "stop it", advice] if advice else ["wait for it", "stop it"]
    return f"another {who} is at work in '{folder}': {', '.join(choices[:-1])} or {choices[-1]}."
