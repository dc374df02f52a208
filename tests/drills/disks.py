"""Disks that are soon full."""

from __future__ import annotations

import os
import resource
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass
class SmallDisk:
    """A folder with little space.

    ``limits`` and ``nothing`` go to a process that is to find so much space there, or none: where no further
    disk is allowed, they are limits on the size of its files.
    """

    folder: Path
    mounted: bool
    limits: dict[str, Any] = field(default_factory=dict)
    nothing: dict[str, Any] = field(default_factory=dict)

    def fill(self) -> None:
        """Leave no space."""
        if self.mounted:
            try:
                (self.folder / "filler").write_bytes(bytes(2**24))
            except OSError:
                return
            raise AssertionError("the disk is not small")

    def grow(self) -> None:
        """Give it space."""
        if self.mounted:
            subprocess.run(["mount", "-o", "remount,size=16m", str(self.folder)], check=True)


def _limit(size: int) -> dict[str, Any]:
    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))
        # Python does not notice that it could write a .pyc file only in part, and fails whenever it reads it.
        os.environ["PYTHONDONTWRITEBYTECODE"] = "1"

    return {"preexec_fn": limit}


@contextmanager
def small_disk(folder: Path, kilobytes: int) -> Iterator[SmallDisk]:
    """Mount a disk of so many kilobytes or, where that is not allowed, limit the size of files."""
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={kilobytes}k", "drill", str(folder)]
    try:
        mounted = subprocess.run(mount, capture_output=True, check=False).returncode == 0
    except FileNotFoundError:
        mounted = False
    if not mounted:
        yield SmallDisk(folder, False, _limit(kilobytes * 1024 // 2), _limit(0))
        return
    try:
        yield SmallDisk(folder, True)
    finally:
        subprocess.run(["umount", str(folder)], check=True)
