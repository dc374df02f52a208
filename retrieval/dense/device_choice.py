"""Where an exact index is searched, by default: on the GPUs where its vectors take little room."""

from __future__ import annotations

from collections.abc import Sequence

from corag.core.system.installation import cpu_build_note
from corag.core.system.machine import count_threads, gpu_memory, visible_gpus

AUTO = "auto"
_SHARE = 0.25  # of each card's memory: the rest is an engine's
_OF_FREE = 0.8  # of what is free there: an engine may be open already
_WORTH_BYTES = 2**30  # of vectors in float32; fewer are no work for the cores
_PRODUCTS = 45e9  # of numbers that a core makes in a second, in large batches, where none waits for memory


def choose_vector_devices(asked: str, device: str, rows: int, dimension: int) -> tuple[str, str]:
    """Return where an exact index is searched on this machine, "" for FAISS on the CPU, and a line about it.

    Args:
        asked: the option ``search_device``.
        device: the encoder's: "cpu" keeps all that searches off the GPUs.
        rows: how many vectors there are.
        dimension: their length.
    """
    if asked != AUTO:
        return asked, ""
    if device not in (AUTO, "cuda") or cpu_build_note():
        return "", ""
    rooms = [min(_SHARE * total, _OF_FREE * free) * 2**20 for free, total in gpu_memory(visible_gpus())]
    return decide(rows, dimension, rooms, count_threads())


def decide(rows: int, dimension: int, rooms: Sequence[float], cores: int) -> tuple[str, str]:
    """Return where so many vectors are searched, and a line if that is the CPU of a machine with GPUs.

    ``rooms``: the memory of each GPU in bytes that vectors may take.

    >>> decide(21_015_324, 768, [20e9] * 8, 64)
    ('cuda', '')
    """
    if not rooms or 4 * rows * dimension < _WORTH_BYTES:
        return "", ""
    needed = 2 * rows * dimension  # bfloat16
    if needed / len(rooms) <= min(rooms):
        return "cuda", ""
    return "", (
        f"exact search of {rows:,} x {dimension:,} stays on the CPU, where {cores} cores make "
        f"{cores * _PRODUCTS / rows / dimension:,.0f} searches a second at most: its {needed / 2**30:.0f} "
        f"GiB in bfloat16 are more than {len(rooms)} GPU(s) have room for ("
        f"{min(rooms) / 2**30:.0f} GiB each): "
        "a quarter of the memory, or most of what is free. "
        "'retriever.search_device' cuda takes them all the same, and an engine there gets what is left."
    )
