"""Memory between steps: training on a CPU frees in every step what the next one allocates again.

It stands apart from sft.py because it reaches through Python into the C library.
"""

from __future__ import annotations

import ctypes

# Parameters of mallopt, from glibc's malloc.h.
_TRIM_THRESHOLD, _TOP_PAD, _MMAP_MAX, _ARENA_MAX = -1, -2, -4, -8
_PAD_BYTES = 2**28


def keep_freed_memory() -> bool:
    """Let glibc keep freed memory instead of giving it back to the system; return whether it does.

    Memory that is touched for the first time is slow: without this a first step of 8 rows of 689 tokens took
    40 s instead of 18. Where the C library is another, nothing changes.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):
        return False
    # Large blocks from the heap instead of maps of their own (which are unmapped when freed), its top never
    # trimmed and grown in large steps; one arena, so that what one thread freed serves the others.
    wanted = ((_MMAP_MAX, 0), (_TRIM_THRESHOLD, -1), (_TOP_PAD, _PAD_BYTES), (_ARENA_MAX, 1))
    taken = [mallopt(parameter, value) for parameter, value in wanted]
    return all(taken)
