"""One process at a time works in a folder; a second one is refused with the name of the first.

Two trainings, runs, samplings or index builds in one folder would write each other's files. The lock is the
system's own (flock): it ends with the process that holds it, however that ends, so ``kill -9`` leaves none
behind. The file, ``.lock``, stays; it names the holder, for the message.

On NFS Linux makes flock a lock of the server, which all machines see. A file system without locks (some
Lustre mounts) keeps no second process out.
"""

from __future__ import annotations

import fcntl
import os
import re
import socket
import sys
import time
import weakref
from contextlib import suppress
from pathlib import Path
from typing import Self

from corag.core.errors import ConfigError, DataError

LOCK = ".lock"
_TRIES, _PAUSE_S = 5, 0.1
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
    # A child that outlives a killed parent would hold the lock of a work that has ended.
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
        descriptor = os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        if not _take(descriptor):
            holder = os.pread(descriptor, 4096, 0).decode(errors="replace")
            os.close(descriptor)
            choices = ["wait for it", "stop it", advice] if advice else ["wait for it", "stop it"]
            raise ConfigError(
                f"another {holder or 'process'} is at work in '{folder}': {', '.join(choices[:-1])} or "
                f"{choices[-1]}."
            )
        with suppress(OSError):  # on a full disk the lock holds all the same, and the message says less
            os.ftruncate(descriptor, 0)
            holder = f"{work or _this_command()} (process {os.getpid()} on {socket.gethostname()})"
            os.pwrite(descriptor, holder.encode(), 0)
    except OSError as error:
        raise DataError(
            f"cannot write the folder '{folder}': {error.strerror}. Choose another with 'out'."
        ) from error
    return FolderLock(descriptor)


def refuse_if_locked(folder: Path, *, beside: bool = False, advice: str = "") -> None:
    """Raise :class:`ConfigError` if a process is at work in a folder; a folder without a lock stays as it is.

    For the moment before something takes long: whatever writes there locks it all the same.
    """
    file = _lock_file(folder, beside)
    if os.access(file, os.W_OK):
        descriptor = os.open(file, os.O_RDWR | os.O_CLOEXEC)
        is_free = _take(descriptor, fcntl.LOCK_SH)  # which many may have at once
        os.close(descriptor)
        if not is_free:
            lock_folder(folder, beside=beside, advice=advice).close()


def _this_command() -> str:
    is_command = _COMMAND.fullmatch(sys.argv[0])
    return " ".join(["corag", *sys.argv[1:2]]) if is_command else "Python program"


def _lock_file(folder: Path, beside: bool) -> Path:
    if not beside:
        return folder / LOCK
    target = folder.resolve()  # of a link, beside where it leads: both names are one folder
    return target.with_name(f".{target.name}{LOCK}")


def _take(descriptor: int, kind: int = fcntl.LOCK_EX) -> bool:
    """Lock an open file and return whether that worked."""
    for _ in range(_TRIES):
        try:
            fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
        except (BlockingIOError, PermissionError):
            time.sleep(_PAUSE_S)  # a process that was killed, or that takes a look, is gone in a moment
        except OSError:  # a file system without locks
            return True
        else:
            return True
    return False
