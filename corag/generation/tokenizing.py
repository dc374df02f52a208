"""Prompts become tokens beside the event loop, which sends requests and reads replies meanwhile.

One process may feed several servers: a prompt of 4,000 tokens takes 12 ms, in which none of them would be
heard. Fast tokenizers let go of Python's lock while they work.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from functools import cache

from corag.core.machine import count_cores
from corag.core.prompting.prompt import Prompt, Shortening
from corag.generation.rendering import Renderer

_MOST_THREADS = 4  # rendering itself holds the lock


@cache
def _pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(min(_MOST_THREADS, count_cores()), thread_name_prefix="tokens")


async def encode_beside(renderer: Renderer, prompt: Prompt, room: int) -> tuple[list[int], Shortening]:
    """Do what :meth:`Renderer.encode_within` does in a thread, and raise what it raises."""
    return await asyncio.get_running_loop().run_in_executor(_pool(), renderer.encode_within, prompt, room)
