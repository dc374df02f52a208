"""vLLM's processes: they end with their owner, compute as it asks, and must not start a script again.

Apart from the engine, since the process that computes loads it (through :mod:`corag.generation.forced`) and
not the engine.
"""

from __future__ import annotations

import ast
import multiprocessing
import signal
import sys
from dataclasses import replace
from multiprocessing import resource_tracker, spawn
from pathlib import Path
from typing import Any

from corag.core.errors import ConfigError
from corag.core.process import end_with_owner

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
    """Refuse a script that an engine's processes would run once more, each of them, up to this very line.

    vLLM spawns its processes, and a spawned one imports the main module again. What stands below ``if
    __name__ == "__main__":`` is spared. Without that line the user would wait for the engine, see an error of
    multiprocessing's and another of vLLM's, and everything ahead of it would have happened twice.

    Raises:
        ConfigError: in such a script, in a process that is being spawned from one, and in a script that
            Python reads from standard input.
    """
    main = sys.modules["__main__"]
    if getattr(main, "__spec__", None) is None and getattr(main, "__file__", None) == "<stdin>":
        raise ConfigError(
            "vLLM starts processes that import your script, but this one came from standard input: put it "
            'into a file, or open the model with backend="transformers".'
        )
    line = _unguarded_line()
    if line or getattr(multiprocessing.current_process(), "_inheriting", False):
        where = f" ({line})" if line else ""
        raise ConfigError(
            f"vLLM starts processes that import your script again{where}: put what opens a model below the "
            'line \'if __name__ == "__main__":\', or open it with backend="transformers".'
        )


def _unguarded_line() -> str:
    """Name the line of the main module that is being run, if a spawned process would run it too; else ""."""
    main = sys.modules["__main__"]
    frame = sys._getframe()
    while not (frame.f_code.co_name == "<module>" and frame.f_globals is vars(main)):
        if frame.f_back is None:
            return ""
        frame = frame.f_back
    preparation = spawn.get_preparation_data("engine")  # what multiprocessing itself goes by
    module, file = preparation.get("init_main_from_name", ""), preparation.get("init_main_from_path", "")
    if module.rpartition(".")[2] == "__main__" or not (module or file):  # python -m package, a prompt, -c
        return ""
    path = Path(frame.f_code.co_filename)
    try:
        tree = ast.parse(path.read_bytes())
    except (OSError, SyntaxError, ValueError):  # no file, such as a cell of a notebook
        return ""
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.If)
            and node.lineno <= frame.f_lineno <= (node.end_lineno or node.lineno)
            and any(isinstance(each, ast.Name) and each.id == "__name__" for each in ast.walk(node.test))
        ):
            return ""
    return f"{path}, line {frame.f_lineno}"
