"""Starting vLLM's engine in this process: its arguments, and what it reads from the environment."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

from corag.core.errors import BackendError, ConfigError
from corag.core.lazy import importing
from corag.core.system.installation import how_to_install
from corag.core.system.machine import count_cores
from corag.core.system.process import keep_fault_handlers, mark_processes
from corag.core.tokenizer import tokenizer_folder
from corag.generation.adapter_weights import check_for_vllm, merge_instead
from corag.generation.config import ModelConfig
from corag.generation.engine_arguments import with_exact_head
from corag.generation.forced import PLUGIN
from corag.generation.models import native_dtype, quantisation
from corag.generation.vllm_processes import OwnerWatch

# Only whole blocks are found in the cache, and 32 is the smallest that CPU attention takes. On 96 requests
# that extended prompts of 700 tokens by 30, vLLM computed 5,638 prompt tokens with blocks of 32, and 8,742
# with its own choice of 128.
CPU_BLOCK_SIZE = 32
CPU_MAX_NUM_SEQS = 64
CPU_KV_CACHE_GB = 4.0  # 180,000 tokens of the default model in bfloat16
_INVARIANT = "VLLM_BATCH_INVARIANT"
_LORA_RANKS = (8, 16, 32, 64, 128, 256, 320, 512)  # what vLLM takes for max_lora_rank


def start(config: ModelConfig, folder: str, lora_rank: int) -> Any:
    """Start an ``AsyncLLM``, ready to score, with LoRA if a rank is given.

    Raises :class:`BackendError` if vLLM does not start.
    """
    mark_processes()  # before the engine's processes inherit the environment
    cpu = on_cpu()
    with importing, keep_fault_handlers():
        from vllm.engine.arg_utils import AsyncEngineArgs
        from vllm.usage.usage_lib import UsageContext
        from vllm.v1.engine.async_llm import AsyncLLM
    arguments = _own_arguments(config, folder, lora_rank, cpu=cpu) | _user_arguments(config, folder)
    # Batches for throughput: vLLM has none of its sizes (8,192 to 16,384 tokens on a GPU) for an engine that
    # a program embeds, as this one is, and would take 2,048 tokens. What a CPU takes at once is set here.
    usage = UsageContext.ENGINE_CONTEXT if cpu else UsageContext.LLM_CLASS
    try:
        with _batch_invariant() if config.deterministic else nullcontext():
            engine_config = AsyncEngineArgs(**arguments).create_engine_config(usage)
            # vLLM's own way to force tokens needs its second model runner, thus Triton and a GPU; which
            # runner it takes is only known now.
            if not cpu and engine_config.use_v2_model_runner:
                engine_config.model_config.enable_trace_replay = True
            with _without_worker_process(engine_config, config) if cpu else nullcontext():
                return AsyncLLM.from_vllm_config(engine_config, usage_context=usage, disable_log_stats=True)
    except (ValueError, RuntimeError, OSError, AssertionError, NotImplementedError, TypeError) as error:
        advice = ", 'model.engine' has what it refuses" if config.engine else ""
        raise BackendError(
            f"vLLM could not start on '{folder}': {error}. What it printed says more; often memory is "
            f"short (choose a larger 'model.tensor_parallel', a smaller 'model.kv_cache_gb' or "
            f"'model.max_context'){advice} or vLLM does not know the architecture (choose "
            "model.backend=transformers)."
        ) from error


@contextmanager
def _batch_invariant() -> Iterator[None]:
    """Let an engine that starts here compute each sequence as if it were alone.

    Its processes read that from the environment. Raises :class:`ConfigError` where vLLM has no such kernels.
    """
    from vllm.platforms import current_platform

    if not current_platform.is_cuda() or not current_platform.has_device_capability(80):
        raise ConfigError(
            "model.deterministic=true was given, but vLLM's batch-invariant kernels need a GPU of compute "
            "capability 8.0 or more: choose model.backend=transformers, or leave it out."
        )
    before = os.environ.get(_INVARIANT)
    os.environ[_INVARIANT] = "1"
    try:
        yield
    finally:
        del os.environ[_INVARIANT]
        os.environ.update({} if before is None else {_INVARIANT: before})


@contextmanager
def _without_worker_process(engine_config: Any, config: ModelConfig) -> Iterator[None]:
    """Let the engine's process compute, where vLLM on a CPU would start one more process for that.

    It does so for the environment of OpenMP: how many threads, and on which cores. That can as well be set
    for the engine's process. Starting and ending the other took 10 of the 32 seconds of a run of two
    questions, and questions are answered no slower without it.
    """
    parallel = engine_config.parallel_config
    processes = parallel.world_size * parallel.data_parallel_size
    if processes > 1 or "distributed_executor_backend" in config.engine:
        yield
        return
    from vllm.utils.ompmultiprocessing import OMPProcessManager

    parallel.distributed_executor_backend = "uni"
    with OMPProcessManager(engine_config).configure_omp_envs(rank=0, local_rank=0):
        yield


def _own_arguments(config: ModelConfig, folder: str, lora_rank: int, *, cpu: bool) -> dict[str, Any]:
    """Return the arguments of ``AsyncEngineArgs`` that options set, or that the work here rests on."""
    kv_cache_gb = config.kv_cache_gb or (cpu_kv_cache_gb() if cpu else 0)
    return {
        "model": folder,
        "tokenizer": tokenizer_folder(folder),  # by it vLLM turns tokens into text, and finds stop strings
        "dtype": dtype_of(config),
        "max_model_len": config.max_context or -1,  # -1: the model's own, or what the cache has room for
        "block_size": CPU_BLOCK_SIZE if cpu else None,
        "max_num_seqs": config.max_num_seqs or (CPU_MAX_NUM_SEQS if cpu else None),
        "kv_cache_memory_bytes": int(kv_cache_gb * 2**30) or None,
        "gpu_memory_utilization": config.gpu_memory_utilization,
        "tensor_parallel_size": config.tensor_parallel,
        # Of a model that also sees, the part that does takes GiBs, and no picture ever comes.
        "language_model_only": True,
        "enforce_eager": cpu,  # compilation takes about a minute at start-up
        "enable_prefix_caching": True,
        # A sampled request with a seed, whose prompt vLLM reads in chunks, ends the whole engine on a CPU: a
        # CPU's random generator has no offset to wind back ("CPU Generator does not use offset"). So prompts
        # are read whole there.
        "enable_chunked_prefill": False if cpu else None,
        # Of a thousand questions in flight those deepest in their chain go first: they finish and make room,
        # and their prefixes are the ones still in the cache.
        "scheduling_policy": "priority",
        "logits_processors": [PLUGIN],
        "additional_config": {"corag": OwnerWatch("owner")},
        # From before any logits processor: what forced tokens had before they were forced, and what methods
        # that weigh a reply's probabilities mean by them.
        "logprobs_mode": "raw_logprobs",
        "enable_lora": lora_rank > 0,
        "max_lora_rank": lora_rank or _LORA_RANKS[0],
        "disable_log_stats": True,
        "use_tqdm_on_load": False,
    }


def _user_arguments(config: ModelConfig, folder: str) -> dict[str, Any]:
    """Return the engine's arguments that are no options: the user's, and the output layer's precision."""
    from vllm.platforms import current_platform

    # Below compute capability 9.0 vLLM's batch-invariant kernels have no product that ends in float32.
    if not current_platform.is_cuda() or (
        config.deterministic and not current_platform.has_device_capability(90)
    ):
        return config.engine
    return with_exact_head(config.engine, quantized=bool(quantisation(folder)))


def cpu_kv_cache_gb() -> float:
    """Return the memory for the prefix cache in GiB: what is usual, or half of what is free, if that is less.

    The other half is for the weights. vLLM refuses to start when less is free than it is to take. What
    its own memory node and control group have is what it counts as free, so it is asked.
    """
    with importing:
        from vllm.utils.cpu_resource_utils import get_memory_node_info
    free = float(get_memory_node_info().available_memory)
    return min(CPU_KV_CACHE_GB, free / 2**30 / 2)


def on_cpu() -> bool:
    """Whether vLLM is a build for CPUs. Raises :class:`ConfigError` if there is no vLLM."""
    _set_environment()
    try:
        with importing, keep_fault_handlers():
            from vllm.platforms import current_platform
    except ImportError as error:
        raise ConfigError(
            f"vLLM cannot be imported ({error}): install it again with `{how_to_install('vllm')}`, or choose "
            "model.backend=transformers."
        ) from error
    return bool(current_platform.is_cpu())


def dtype_of(config: ModelConfig) -> str:
    """Return the precision of the weights, by what this machine multiplies if none was asked for."""
    if config.dtype != "auto":
        return config.dtype
    if on_cpu():
        return native_dtype(on_cpu=True)
    from vllm.platforms import current_platform

    # As native_dtype has it, but asked of the driver: torch would take memory on the GPU to find out.
    return "bfloat16" if current_platform.has_device_capability(80) else "float16"


def _set_environment() -> None:
    """Set what vLLM reads from the environment when imported, unless the user has set it."""
    if count_cores() <= 4:
        # vLLM keeps a core free for its scheduler. Of two cores that is half: with both, everything was about
        # twice as fast.
        os.environ.setdefault("VLLM_CPU_NUM_OF_RESERVED_CPU", "0")
    for name, value in {
        "VLLM_LOGGING_LEVEL": "ERROR",
        "VLLM_NO_USAGE_STATS": "1",
        "DO_NOT_TRACK": "1",
        "TOKENIZERS_PARALLELISM": "false",
        "VLLM_WORKER_MULTIPROC_METHOD": "spawn",  # a running Java does not survive a fork
    }.items():
        os.environ.setdefault(name, value)


def lora_rank(adapter: str) -> int:
    """Return the smallest rank that vLLM offers for this adapter, which it has to serve."""
    rank = check_for_vllm(adapter)
    fitting = [offered_rank for offered_rank in _LORA_RANKS if offered_rank >= rank]
    if rank < 1 or not fitting:
        raise ConfigError(
            f"the adapter '{adapter}' has rank {rank}; vLLM takes ranks from 1 to {_LORA_RANKS[-1]}. "
            f"{merge_instead(adapter)}"
        )
    return fitting[0]
