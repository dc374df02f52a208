"""vLLM's processes: they end with their owner, compute as it asks, and must not start a script again.

Apart from the engine, since the process that computes loads it (through :mod:`corag.generation.forced`) and
not the engine.
"""

from __future__ import annotations

import multiprocessing
import signal
import sys
from contextlib import suppress
from dataclasses import replace
from multiprocessing import resource_tracker
from pathlib import Path
from typing import Any

from corag.core.errors import ConfigError
from corag.core.system.process import end_with_owner

BATCH_INVARIANT = "batch invariant"
_BLOCK = 16  # rows; a row costs as much in a product of 16 as in one of 500, and a lone one as much as 4


class OwnerWatch(str):
    """A string in an engine's configuration, which vLLM passes to the processes that it starts.

    Where it arrives, that process begins to watch its owner: before anything else of ours runs there. An
    engine whose owner is killed before the two have connected would wait five minutes for it. If the string
    is :data:`BATCH_INVARIANT`, it computes as :func:`multiply_in_blocks` and :func:`attend_by_token` have it.
    """

    __slots__ = ()

    def __reduce__(self) -> tuple[Any, ...]:
        """Return a call that starts the watch, for unpickling."""
        return _watch, (str(self),)


def _watch(argument: str) -> OwnerWatch:
    end_with_owner()
    if argument == BATCH_INVARIANT:
        multiply_in_blocks()
        attend_by_token()
    return OwnerWatch(argument)


def multiply_in_blocks() -> None:
    """Let vLLM on a CPU multiply matrices by oneDNN alone, always as many rows at once, and use no AMX.

    In which order oneDNN sums a row's products depends on how many rows there are: on which numbers of them,
    is another matter on each processor. It does not depend on where among them the row stands. SGLang's
    products and attention by AMX, which vLLM has as well, are not known to have that.
    """
    import torch
    import vllm._custom_ops as operators
    import vllm.model_executor.layers.utils as layers

    multiply = operators.onednn_mm

    def multiply_blocks(handler: Any, x: Any, bias: Any) -> Any:
        rows = x.reshape(-1, handler.k)
        blocks = torch.nn.functional.pad(rows, (0, 0, 0, -len(rows) % _BLOCK)).split(_BLOCK)
        products = torch.cat([multiply(handler, block, bias) for block in blocks])
        return products[: len(rows)].reshape(*x.shape[:-1], -1)

    operators.onednn_mm = multiply_blocks
    layers.check_cpu_sgl_kernel = torch.cpu._is_amx_tile_supported = lambda *_: False


def attend_by_token() -> None:
    """Let vLLM's attention on a CPU compute each query token as a sequence of its own.

    It goes through a sequence's keys in tiles, whose size depends on how many queries it computes together:
    on the rest of the batch, and on what of the prompt was in the cache. Up to about 1,000 keys fit into one
    tile (by the size of the L2 cache); of longer prompts the last digits differed.
    """
    import torch
    from vllm.v1.attention.backends.cpu_attn import CPUAttentionMetadataBuilder

    build = CPUAttentionMetadataBuilder.build

    def build_by_token(self: Any, common_prefix_len: int, common: Any, *rest: Any, **options: Any) -> Any:
        starts = common.query_start_loc
        counts = starts[1:] - starts[:-1]
        tokens = torch.arange(common.num_actual_tokens, dtype=starts.dtype)
        ends = torch.repeat_interleave(common.seq_lens - starts[1:], counts)
        single = replace(
            common,
            num_reqs=len(tokens),
            max_query_len=1,
            query_start_loc=torch.arange(len(tokens) + 1, dtype=starts.dtype),
            seq_lens=(ends + tokens + 1).to(common.seq_lens.dtype),
            block_table_tensor=torch.repeat_interleave(common.block_table_tensor, counts, dim=0),
        )
        return build(self, common_prefix_len, single, *rest, **options)

    CPUAttentionMetadataBuilder.build = build_by_token


def spare_children_interrupts() -> None:
    """Keep Ctrl-C from the processes that this thread starts from now on.

    A terminal, and a notebook that interrupts a cell, send SIGINT to a whole group of processes. In Python it
    shall end the question at work; an engine that got it too would end. The calling thread gets
    none any more either, so it must not be the main one.
    """
    # What a thread blocks, its processes inherit. The tracker is a process of multiprocessing's own, which
    # unblocks SIGINT when it is started, as it is with the first other one.
    resource_tracker.ensure_running()
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})


def refuse_unguarded_main() -> None:
    """Refuse a script that an engine's processes would run once more, each of them.

    vLLM spawns its processes, and a spawned one imports the main module again. What stands below ``if
    __name__ == "__main__":`` is spared; a script without that line would begin anew in each.

    Raises:
        ConfigError: in such a script, in a process that is being spawned from one, and in a script that
            Python reads from standard input.
    """
    file = getattr(sys.modules["__main__"], "__file__", None) or ""
    is_guarded = file != "<stdin>"
    with suppress(OSError, UnicodeDecodeError):  # no file, as at a prompt
        is_guarded &= Path(file).name == "__main__.py" or "__main__" in Path(file).read_text(encoding="utf-8")
    if not is_guarded or getattr(multiprocessing.current_process(), "_inheriting", False):
        raise ConfigError(
            "vLLM starts processes that import your script again: put it into a file, and what opens a model "
            'below the line \'if __name__ == "__main__":\', or open it with backend="transformers".'
        )
