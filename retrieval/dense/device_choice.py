"""Where an exact index is searched, if nothing is said: on the GPUs where its vectors take little room."""

from __future__ import annotations

from collections.abc import Sequence

from corag.core.installation import cpu_build_note
from corag.core.machine import count_threads, gpu_memory, visible_gpus

AUTO = "auto"
_SHARE = 0.25  # of each card's memory: the rest is an engine's
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
    cards = [total * 2**20 for _, total in gpu_memory(visible_gpus())]
    return decide(rows, dimension, cards, count_threads())


def decide(rows: int, dimension: int, cards: Sequence[float], cores: int) -> tuple[str, str]:
    """Return where so many vectors are searched, and a line if that is the CPU of a machine with GPUs.

    ``cards``: the memory of each GPU in bytes.

    >>> decide(21_015_324, 768, [80e9] * 8, 64)
    ('cuda', '')
    """
    if not cards or 4 * rows * dimension < _WORTH_BYTES:
        return "", ""
    needed = 2 * rows * dimension  # bfloat16
    if needed / len(cards) <= _SHARE * min(cards):
        return "cuda", ""
    return "", (
        f"exact search of {rows:,} x {dimension:,} stays on the CPU, where {cores} cores make "
        f"{cores * _PRODUCTS / rows / dimension:,.0f} searches a second at most: its {needed / 2**30:.0f} "
        f"GiB in bfloat16 are more than a quarter of {len(cards)} GPU(s) of {min(cards) / 2**30:.0f} GiB. "
        "--retriever.search_device cuda takes them all the same, and an engine there gets what is left."
    )
