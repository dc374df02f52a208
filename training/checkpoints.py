"""What a training leaves at any time: checkpoints (the last whole one), what was logged, and its memory."""

from __future__ import annotations

import json
import re
import resource
import sys
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from corag.core.errors import DataError
from corag.core.system.files import FULL

CHECKPOINTS, METRICS = "checkpoints", "metrics.jsonl"

# So safetensors says that there is no space, and torch, which counts what it wrote.
_FULL = re.compile(r"No space left|File too large|inline_container")


@contextmanager
def full_disk_refused(out: Path) -> Iterator[None]:
    """Raise :class:`DataError` where no space is left for what is written to a training's folder."""
    try:
        yield
    except Exception as error:
        is_full = error.errno in FULL if isinstance(error, OSError) else _FULL.search(str(error))
        if not is_full:
            raise
        raise DataError(
            f"cannot write a checkpoint or the result to '{out}': the disk is full ({error!s:.60}). Free "
            "some space: the same command goes on from the last checkpoint."
        ) from error


def last_checkpoint(out: Path) -> str | None:
    """Return the newest whole checkpoint of a training's folder."""
    return next((str(each) for each in _newest_first(out) if _is_whole(each)), None)


def describe_resume(out: Path) -> str:
    """Say where a training goes on from, which newer checkpoints are torn, and what that one lacks."""
    checkpoints = list(_newest_first(out))
    whole = next((each for each in checkpoints if _is_whole(each)), None)
    torn = [each.name for each in checkpoints[: checkpoints.index(whole) if whole else None]]
    begin = f"goes on from {whole.name}" if whole else "begins"
    if whole and not [*whole.glob("optimizer*"), *whole.glob("global_step*")]:
        begin += ", which lacks the optimizer's state, so losses differ from those of one that went on"
    return begin + (f" ({', '.join(torn)}: torn, left out)" if torn else "")


def _newest_first(out: Path) -> Iterator[Path]:
    folders = (out / CHECKPOINTS).glob("checkpoint-*")
    yield from sorted(folders, key=lambda path: -int(path.name.rpartition("-")[2]))


def _is_whole(folder: Path) -> bool:
    """Whether all files are: transformers writes trainer_state.json last, but a disk may cut any."""
    return (folder / "trainer_state.json").is_file() and all(map(_is_complete, folder.iterdir()))


def _is_complete(file: Path) -> bool:
    try:
        if file.suffix == ".json":
            json.loads(file.read_bytes())
        if file.suffix == ".safetensors":
            return file.stat().st_size == _safetensors_size(file)
        return file.suffix not in (".pt", ".pth", ".bin") or zipfile.is_zipfile(file)
    except (OSError, ValueError):
        return False


def _safetensors_size(file: Path) -> int:
    """Return the size that a file's header says. Raises :class:`ValueError` for a header that is torn."""
    with file.open("rb") as stream:
        length = int.from_bytes(stream.read(8), "little")
        header = json.loads(stream.read(length)) if length < file.stat().st_size else {}
    ends = [tensor["data_offsets"][1] for name, tensor in header.items() if name != "__metadata__"]
    return 8 + length + max(ends, default=0)


def lines_until(file: Path, step: int) -> list[dict[str, Any]]:
    """Return what was logged up to a step; nothing where that is 0, or there is no file."""
    if not step or not file.is_file():
        return []
    lines = []
    for text in file.read_text(encoding="utf-8").splitlines():
        with suppress(json.JSONDecodeError):  # one that a killed training had not written whole
            lines.append(json.loads(text))
    return [line for line in lines if line["step"] <= step]


def seconds_until(file: Path, step: int) -> float:
    """Return how long training up to a step took, over all starts, by its file of metrics."""
    return max((float(line.get("seconds", 0.0)) for line in lines_until(file, step)), default=0.0)


def mean_loss(log: Sequence[Mapping[str, Any]]) -> float | None:
    """Return the mean loss of all steps, by what was logged; None if nothing was.

    Each loss is the mean of the steps since the one before.

    >>> mean_loss([{"step": 1, "loss": 4.0}, {"step": 2, "eval_loss": 9.0}, {"step": 4, "loss": 2.0}])
    2.5
    """
    total, last = 0.0, 0
    for entry in log:
        if "loss" in entry:
            total, last = total + float(entry["loss"]) * (entry["step"] - last), entry["step"]
    return total / last if last else None


def peak_memory() -> dict[str, float]:
    """Return the most memory that this process had, and had on its GPU, in GB."""
    import torch

    # In kilobytes, but for macOS.
    unit = 1 if sys.platform == "darwin" else 1024
    figures = {"peak_memory_gb": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 1e9, 2)}
    if torch.cuda.is_available():
        figures["peak_gpu_memory_gb"] = round(torch.cuda.max_memory_allocated() / 1e9, 2)
    return figures


def peak_memory_until(file: Path, step: int) -> dict[str, float]:
    """Return the most memory over all starts up to a step, by its file of metrics, this one among them."""
    now = peak_memory()
    lines = [now, *lines_until(file, step)]
    return {name: max(line.get(name, 0.0) for line in lines) for name in now}
