"""The vLLM back end in this process: prefix caching, priorities, and scores by forced decoding.

vLLM starts its engine in child processes that import the main module again, so a script that opens it needs
the usual ``if __name__ == "__main__":``. Sampled replies depend on their seed, but vLLM's arithmetic is not
batch-invariant: what else is in flight can change a last digit, and with it, rarely, a token.
"""

from __future__ import annotations

import asyncio
import gc
import itertools
import os
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

from corag.core.errors import BackendError, ConfigError, RequestRefusedError
from corag.core.installation import how_to_install
from corag.core.lazy import importing
from corag.core.machine import count_cores
from corag.core.process import keep_fault_handler, own_processes
from corag.core.protocols import Completion, GenerateRequest, Generation, Sampling, Score, ScoreRequest
from corag.core.tokenizer import tokenizer_folder
from corag.core.types import TokenUsage
from corag.generation.adapters import adapter_folder, check_adapter, merged_folder
from corag.generation.config import ModelConfig
from corag.generation.forced import FORCED_TOKENS, PLUGIN
from corag.generation.models import folder_digest, model_folder, native_dtype
from corag.generation.rendering import Renderer
from corag.generation.vllm_processes import OwnerWatch, refuse_unguarded_main

# Only whole blocks are found in the cache, and 32 is the smallest that CPU attention takes. On 96 requests
# that extended prompts of 700 tokens by 30, vLLM computed 5,638 prompt tokens with blocks of 32, and 8,742
# with its own choice of 128.
CPU_BLOCK_SIZE = 32
CPU_MAX_NUM_SEQS, GPU_MAX_NUM_SEQS = 64, 256
CPU_KV_CACHE_GB = 4.0  # 180,000 tokens of the default model in bfloat16
_SHUTDOWN_S = 10.0
_LORA_RANKS = (8, 16, 32, 64, 128, 256, 320, 512)  # what vLLM takes for max_lora_rank


class VllmGenerator:
    """A :class:`corag.core.protocols.Generator` on an asynchronous vLLM engine of its own."""

    def __init__(self, engine: Any, renderer: Renderer, weights: str, adapter: str = "") -> None:
        """``engine``: an ``AsyncLLM`` with the plug-in of :mod:`forced`; ``weights``: a hash."""
        self._engine = engine
        self._renderer = renderer
        self._adapter = str(Path(adapter).resolve()) if adapter else ""
        self._window, about = _window(engine.model_config)
        self.about = (*about, *renderer.about)
        self.fingerprint = f"vllm:{weights}:{engine.model_config.dtype}:{self._window}:chat={renderer.way}"
        self._numbers = itertools.count()
        self._closed = False

    @classmethod
    def open(cls, config: ModelConfig) -> VllmGenerator:
        """Start an engine (20 to 60 s).

        Raises :class:`ConfigError` or :class:`BackendError` saying what is missing.
        """
        refuse_unguarded_main()
        folder = model_folder(config.name)
        renderer = Renderer.load(folder, config.chat)
        weights = folder_digest(folder)
        adapter, rank = adapter_folder(config.adapter), 0
        if adapter:
            check_adapter(adapter, folder)
            weights += f"+{folder_digest(adapter)}"
            if _on_cpu():  # vLLM's kernels for adapters are ten times slower there than the model itself
                folder, adapter = merged_folder(folder, adapter, _dtype(config)), ""
            else:
                rank = _lora_rank(adapter, folder)
        # No variable here may hold the engine: vLLM keeps the frames that imported it, and close() could not
        # free it.
        return cls(_start(config, folder, rank), renderer, weights, adapter)

    @property
    def failed(self) -> bool:
        """Whether the engine has ended, or its process has died."""
        return self._closed or bool(self._engine.errored)

    def count_tokens(self, text: str) -> int:
        """Return the number of tokens of a text, without special tokens."""
        return self._renderer.count(text)

    async def generate(self, request: GenerateRequest) -> Generation:
        """Continue a prompt. Sample i of n gets the seed ``seed + i``."""
        ids, shortening = self._renderer.encode_within(
            request.prompt, self._window - request.sampling.max_tokens
        )
        # One engine request per sample is what vLLM itself makes of n > 1; made here, each tells what it
        # found in the cache.
        sampling, stop_ids = self._renderer.ending(request.prompt, request.sampling), self._renderer.stop_ids
        outputs = await asyncio.gather(
            *(
                self._run(ids, _params(sampling, i, stop_ids), request.priority)
                for i in range(request.sampling.n)
            )
        )
        samples = (_completion(output.outputs[0], request.sampling.logprobs) for output in outputs)
        completions = tuple(
            self._renderer.with_token_texts(sample, ids, request.sampling) for sample in samples
        )
        generated = sum(len(completion.token_ids) for completion in completions)
        # The prompt counts once, so the rest of a block that further samples compute again is left out.
        computed = len(ids) - min(output.num_cached_tokens or 0 for output in outputs)
        return Generation(completions, TokenUsage(1, len(ids), generated, computed, generated), shortening)

    async def score(self, request: ScoreRequest) -> Score:
        """Return the log-likelihood of a continuation by forced decoding; its tokens count as generated."""
        from vllm import SamplingParams
        from vllm.sampling_params import RequestOutputKind

        target = self._renderer.target_ids(request)
        ids, shortening = self._renderer.encode_within(request.prompt, self._window - len(target))
        # The plug-in forces the target: the prompt comes out of the cache, only the target is decoded.
        # logprobs=0 is the generated token's alone; FINAL_ONLY spares a message per token.
        params = SamplingParams(
            temperature=0,
            max_tokens=len(target),
            ignore_eos=True,  # a target may hold or be the end of the turn
            logprobs=0,
            detokenize=False,
            output_kind=RequestOutputKind.FINAL_ONLY,
            extra_args={FORCED_TOKENS: target},
        )
        output = await self._run(ids, params, request.priority)
        sample = output.outputs[0]
        if list(sample.token_ids) != target:
            raise BackendError(
                "vLLM did not generate the tokens that it was forced to, so it cannot score: its logits "
                "processors work in another way than expected. Set VLLM_USE_V2_MODEL_RUNNER=0 in the "
                "environment, or choose --model.backend transformers."
            )
        usage = TokenUsage(1, len(ids), len(target), len(ids) - (output.num_cached_tokens or 0), len(target))
        return Score(tuple(target), _logprobs(sample), usage, shortening)

    async def score_by_prompt_logprobs(self, request: ScoreRequest) -> Score:
        """Return what :meth:`score` does in the obvious and slow way, to measure and check the fast way by.

        vLLM computes the whole prompt for it, past the cache, and gathers a row of the vocabulary per prompt
        token. For 16 prompts of 720 tokens that took 12.9 s where forced decoding took 0.6 s (bfloat16, 2
        cores).
        """
        from vllm import SamplingParams
        from vllm.sampling_params import RequestOutputKind

        target = self._renderer.target_ids(request)
        ids, shortening = self._renderer.encode_within(request.prompt, self._window - len(target) - 1)
        params = SamplingParams(
            temperature=0,
            max_tokens=1,
            prompt_logprobs=0,
            detokenize=False,
            output_kind=RequestOutputKind.FINAL_ONLY,
        )
        output = await self._run(ids + target, params, request.priority)
        rows = output.prompt_logprobs[-len(target) :]
        logprobs = tuple(row[token].logprob for row, token in zip(rows, target, strict=True))
        usage = TokenUsage(1, len(ids), len(target), len(ids), len(target))
        return Score(tuple(target), logprobs, usage, shortening)

    async def reset_prefix_cache(self) -> None:
        """Forget every cached prefix, so that what is measured next starts cold."""
        await self._engine.reset_prefix_cache()

    async def close(self) -> None:
        """Stop the engine's processes."""
        if self._closed:
            return
        self._closed = True
        if self._engine.output_handler is not None:
            # It would report the engine's end as a failure.
            self._engine.output_handler.cancel()
        await asyncio.to_thread(self._engine.shutdown, timeout=_SHUTDOWN_S)
        self._engine = None
        # vLLM cleans up again when the engine is collected, and complains if Python is shutting down by then.
        gc.collect()

    async def _run(self, ids: Sequence[int], params: Any, priority: int) -> Any:
        """Put one request through the engine and return its final ``RequestOutput``."""
        from vllm import TokensPrompt
        from vllm.exceptions import VLLMClientError
        from vllm.lora.request import LoRARequest
        from vllm.v1.engine.exceptions import EngineDeadError, EngineGenerateError

        if self._closed:
            raise BackendError("the vLLM engine is closed: open it again.")
        final = None
        try:
            async for output in self._engine.generate(
                TokensPrompt(prompt_token_ids=list(ids)),
                params,
                str(next(self._numbers)),
                lora_request=LoRARequest("adapter", 1, self._adapter) if self._adapter else None,
                priority=priority,
            ):
                final = output
        except (EngineDeadError, EngineGenerateError) as error:
            reason = str(error.__cause__ or error).rstrip(".")
            raise BackendError(
                f"the vLLM engine failed: {reason}. What it printed says more; start the run again, or "
                "open the model again."
            ) from error
        except (VLLMClientError, ValueError) as error:
            raise RequestRefusedError(f"vLLM refused a request: {error}") from error
        if final is None or final.outputs[0].finish_reason in (None, "abort", "error"):
            raise BackendError(
                "the vLLM engine gave a request up without a reply: it may be out of memory or shutting down."
            )
        return final


def _start(config: ModelConfig, folder: str, lora_rank: int) -> Any:
    """Start an ``AsyncLLM``, ready to score, with LoRA if a rank is given."""
    own_processes()  # before the engine's processes inherit the environment
    on_cpu = _on_cpu()
    with importing, keep_fault_handler():
        from vllm.engine.arg_utils import AsyncEngineArgs
        from vllm.v1.engine.async_llm import AsyncLLM
    kv_cache_gb = config.kv_cache_gb or (cpu_kv_cache_gb() if on_cpu else 0)
    arguments = AsyncEngineArgs(
        model=folder,
        tokenizer=tokenizer_folder(folder),  # by it vLLM turns tokens into text, and finds stop strings
        dtype=_dtype(config),
        max_model_len=config.max_context or -1,  # -1: the model's own, or what the cache has room for
        block_size=config.block_size or (CPU_BLOCK_SIZE if on_cpu else None),
        max_num_seqs=config.max_num_seqs or (CPU_MAX_NUM_SEQS if on_cpu else GPU_MAX_NUM_SEQS),
        kv_cache_memory_bytes=int(kv_cache_gb * 2**30) or None,
        gpu_memory_utilization=config.gpu_memory_utilization,
        tensor_parallel_size=config.tensor_parallel,
        enforce_eager=config.enforce_eager == "yes" or (config.enforce_eager == "auto" and on_cpu),
        enable_prefix_caching=config.prefix_cache,
        # A sampled request with a seed, whose prompt vLLM reads in chunks, ends the whole engine on a CPU: a
        # CPU's random generator has no offset to wind back ("CPU Generator does not use offset"). So prompts
        # are read whole there.
        enable_chunked_prefill=False if on_cpu else None,
        # Of a thousand questions in flight those deepest in their chain go first: they finish and make room,
        # and their prefixes are the ones still in the cache.
        scheduling_policy="priority",
        logits_processors=[PLUGIN],
        additional_config={"corag": OwnerWatch("owner")},
        # From before any logits processor: what forced tokens had before they were forced, and what methods
        # that weigh a reply's probabilities mean by them.
        logprobs_mode="raw_logprobs",
        enable_lora=lora_rank > 0,
        max_lora_rank=lora_rank or _LORA_RANKS[0],
        disable_log_stats=True,
        use_tqdm_on_load=False,
    )
    try:
        return AsyncLLM.from_engine_args(arguments)
    except (ValueError, RuntimeError, OSError, AssertionError, NotImplementedError) as error:
        raise BackendError(
            f"vLLM could not start on '{folder}': {error}. What it printed says more; often memory is "
            "short (choose a smaller kv_cache_gb, gpu_memory_utilization or max_context) or vLLM does not "
            "know the architecture (choose --model.backend transformers)."
        ) from error


def _window(model: Any) -> tuple[int, tuple[str, ...]]:
    """Return the context in tokens, and lines about it. ``model``: a started engine's ``ModelConfig``.

    A model of 8 billion weights that reads 131,072 tokens wants 16 GiB of cache for one such prompt, and vLLM
    would not start with less; asked to, it takes a context that fits. Of that the greatest power of two is
    used: the rest depends on what else was in memory, and the context is part of a run's identity.
    """
    fitting = int(model.max_model_len)
    if model.original_max_model_len != -1 or fitting >= (whole := int(model.get_and_verify_max_len(-1))):
        return fitting, ()
    window = 1 << (fitting.bit_length() - 1)
    return window, (
        f"the model reads {whole:,} tokens at once, but the memory for its cache holds {fitting:,}: it reads "
        f"{window:,}. More memory (--model.kv_cache_gb, --model.tensor_parallel) gives more, and "
        f"--model.max_context {window} says nothing about it.",
    )


def cpu_kv_cache_gb() -> float:
    """Return the memory for the prefix cache in GiB: what is usual, or half of what is free, if that is less.

    The other half is for the weights. vLLM refuses to start when less is free than it was told to take. What
    its own memory node and control group have is what it counts as free, so it is asked.
    """
    with importing:
        from vllm.utils.cpu_resource_utils import get_memory_node_info
    free = float(get_memory_node_info().available_memory)
    return min(CPU_KV_CACHE_GB, free / 2**30 / 2)


def _on_cpu() -> bool:
    """Whether vLLM is a build for CPUs. Raises :class:`ConfigError` if there is no vLLM."""
    _set_environment()
    try:
        with importing, keep_fault_handler():
            from vllm.platforms import current_platform
    except ImportError as error:
        raise ConfigError(
            f"vLLM cannot be imported ({error}): install it again with `{how_to_install('vllm')}`, or choose "
            "--model.backend transformers."
        ) from error
    return bool(current_platform.is_cpu())


def _dtype(config: ModelConfig) -> str:
    if config.dtype != "auto":
        return config.dtype
    if _on_cpu():
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


def _lora_rank(adapter: str, folder: str) -> int:
    """Return the smallest rank that vLLM offers for this adapter."""
    rank = int(check_adapter(adapter, folder).get("r", 0))
    fitting = [offered for offered in _LORA_RANKS if offered >= rank]
    if rank < 1 or not fitting:
        raise ConfigError(
            f"the adapter '{adapter}' has rank {rank}; vLLM takes ranks from 1 to {_LORA_RANKS[-1]}."
        )
    return fitting[0]


def _params(sampling: Sampling, sample: int, stop_ids: Collection[int]) -> Any:
    from vllm import SamplingParams
    from vllm.sampling_params import RequestOutputKind

    greedy = sampling.temperature == 0
    return SamplingParams(
        temperature=sampling.temperature,
        top_p=1.0 if greedy else sampling.top_p,
        top_k=0 if greedy else sampling.top_k,
        repetition_penalty=sampling.repetition_penalty,
        seed=None if greedy or sampling.seed is None else sampling.seed + sample,
        max_tokens=sampling.max_tokens,
        stop=list(sampling.stop),
        stop_token_ids=sorted(stop_ids),  # besides those of the model's own configuration
        logprobs=0 if sampling.logprobs else None,
        logit_bias=dict(sampling.logit_bias) or None,
        skip_special_tokens=not sampling.special_tokens,
        output_kind=RequestOutputKind.FINAL_ONLY,
    )


def _completion(sample: Any, logprobs: bool) -> Completion:
    return Completion(
        text=sample.text,
        token_ids=tuple(sample.token_ids),
        finish_reason=sample.finish_reason,
        logprobs=_logprobs(sample) if logprobs else None,
    )


def _logprobs(sample: Any) -> tuple[float, ...]:
    return tuple(row[token].logprob for row, token in zip(sample.logprobs, sample.token_ids, strict=True))
