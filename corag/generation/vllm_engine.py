"""The vLLM back end in this process: prefix caching, priorities, and scores by forced decoding.

vLLM starts its engine in child processes that import the main module again, so a script that opens it needs
the usual ``if __name__ == "__main__":``. Sampled replies depend on their seed, but vLLM's arithmetic is not
batch-invariant unless it is asked to be (``deterministic``): what else is in flight can change a last digit,
with it a token, and with that a chain.
"""

from __future__ import annotations

import asyncio
import gc
import itertools
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from corag.core.errors import BackendError, RequestRefusedError
from corag.core.prompting.prompt import as_prompt
from corag.core.protocols import Completion, GenerateRequest, Generation, Sampling, Score, ScoreRequest
from corag.core.runs.manifest import DETERMINISTIC
from corag.core.types import TokenUsage
from corag.generation.adapter_weights import check_weights
from corag.generation.adapters import adapter_folder, check_adapter, merged_folder
from corag.generation.config import ModelConfig
from corag.generation.encoder_decoder import refuse_encoder_decoder
from corag.generation.engine_arguments import identity
from corag.generation.forced import forced_sampling
from corag.generation.gpu_memory import choose_share, count_gpus
from corag.generation.models import folder_digest, model_folder
from corag.generation.rendering import Renderer, RenderingEngine
from corag.generation.vllm_processes import refuse_unguarded_main
from corag.generation.vllm_start import dtype_of, lora_rank, on_cpu, start

_SHUTDOWN_S = 10.0


class VllmGenerator(RenderingEngine):
    """A :class:`corag.core.protocols.Generator` on an asynchronous vLLM engine of its own."""

    def __init__(
        self,
        engine: Any,
        renderer: Renderer,
        weights: str,
        adapter: str = "",
        arguments: str = "",
        about: Sequence[str] = (),
    ) -> None:
        """``engine``: an ``AsyncLLM`` with the plug-in of :mod:`forced`; ``weights``: a hash.

        ``arguments``: what the fingerprint says of arguments that were passed through, and of the arithmetic.
        ``about``: lines about
        the adapter and the memory, if there is something to say.
        """
        self._engine = engine
        self._adapter = str(Path(adapter).resolve()) if adapter else ""
        model = engine.model_config
        window, lines = _window(model)
        super().__init__(renderer, window)
        self.about = (*lines, *renderer.about, *filter(None, about))
        # vLLM's own way to force tokens, where the engine was started with it; else the plug-in's.
        self._replays = bool(model.enable_trace_replay)
        head = "" if model.head_dtype == model.dtype else f":head={model.head_dtype}"
        self.fingerprint = f"vllm:{weights}:{model.dtype}{head}:{window}:chat={renderer.way}{arguments}"
        self._numbers = itertools.count()
        self._closed = False

    @classmethod
    def open(cls, config: ModelConfig) -> VllmGenerator:
        """Start an engine (20 to 60 s).

        Raises :class:`ConfigError` or :class:`BackendError` saying what is missing.
        """
        refuse_unguarded_main()
        folder = model_folder(config.name)
        refuse_encoder_decoder(folder, "vLLM does not run one")
        renderer = Renderer.load(folder, config.chat, config.thoughts)
        weights = folder_digest(folder)
        adapter, rank, about = adapter_folder(config.adapter), 0, ""
        if adapter:
            _, about = check_adapter(adapter, folder)
            check_weights(adapter, folder)
            weights += f"+{folder_digest(adapter)}"
            if on_cpu():  # vLLM's kernels for adapters are ten times slower there than the model itself
                folder, adapter = merged_folder(folder, adapter, dtype_of(config)), ""
            else:
                rank = lora_rank(adapter)
        share, note = choose_share(config.gpu_memory_utilization, 0 if on_cpu() else count_gpus(config))
        config = replace(config, gpu_memory_utilization=share)
        arguments = identity(config.engine) + DETERMINISTIC * config.deterministic
        # No variable here may hold the engine: vLLM keeps the frames that imported it, and close() could not
        # free it.
        return cls(start(config, folder, rank), renderer, weights, adapter, arguments, (note, about))

    @property
    def failed(self) -> bool:
        """Whether the engine has ended, or its process has died."""
        return self._closed or bool(self._engine.errored)

    async def generate(self, request: GenerateRequest) -> Generation:
        """Continue a prompt. Sample i of n gets the seed ``seed + i``."""
        ids, shortening = self._renderer.encode_within(
            request.prompt, self.window - request.sampling.max_tokens
        )
        # One engine request per sample is what vLLM itself makes of n > 1; made here, each tells what it
        # found in the cache.
        sampling, stop_ids = self._renderer.ending(request.prompt, request.sampling), self._renderer.stop_ids
        outputs = await asyncio.gather(
            *(
                self._generate_ids(
                    ids,
                    _params(sampling, i, stop_ids, grows=request.watch is not None),
                    request.priority,
                    request.watch,
                )
                for i in range(request.sampling.n)
            )
        )
        samples = (_completion(output.outputs[0], request.sampling.logprobs) for output in outputs)
        completions = tuple(
            self._renderer.with_token_texts(sample, ids, request.sampling) for sample in samples
        )
        generated_tokens = sum(len(completion.token_ids) for completion in completions)
        # The prompt counts once, so the rest of a block that further samples compute again is left out.
        computed_tokens = len(ids) - min(output.num_cached_tokens or 0 for output in outputs)
        usage = TokenUsage(1, len(ids), generated_tokens, computed_tokens, generated_tokens)
        return Generation(completions, usage, shortening)

    async def score(self, request: ScoreRequest) -> Score:
        """Return the log-likelihood of a continuation by forced decoding; its tokens count as generated."""
        from vllm import SamplingParams
        from vllm.sampling_params import RequestOutputKind

        target = self._renderer.target_ids(request)
        ids, shortening = self._renderer.encode_within(request.prompt, self.window - len(target))
        # The target is forced: the prompt comes out of the cache, only the target is decoded.
        # logprobs=0 is the generated token's alone; FINAL_ONLY spares a message per token.
        params = SamplingParams(
            temperature=0,
            max_tokens=len(target),
            ignore_eos=True,  # a target may hold or be the end of the turn
            logprobs=0,
            detokenize=False,
            output_kind=RequestOutputKind.FINAL_ONLY,
            **forced_sampling(target, replay=self._replays),
        )
        output = await self._generate_ids(ids, params, request.priority)
        sample = output.outputs[0]
        if list(sample.token_ids) != target:
            raise BackendError(
                "vLLM did not generate the tokens that it was forced to, so it cannot score: it works in "
                "another way than expected. Set VLLM_USE_V2_MODEL_RUNNER=0 in the environment, or choose "
                "model.backend=transformers."
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
        ids, shortening = self._renderer.encode_within(request.prompt, self.window - len(target) - 1)
        params = SamplingParams(
            temperature=0,
            max_tokens=1,
            prompt_logprobs=0,
            detokenize=False,
            output_kind=RequestOutputKind.FINAL_ONLY,
        )
        output = await self._generate_ids(ids + target, params, request.priority)
        rows = output.prompt_logprobs[-len(target) :]
        logprobs = tuple(row[token].logprob for row, token in zip(rows, target, strict=True))
        usage = TokenUsage(1, len(ids), len(target), len(ids), len(target))
        return Score(tuple(target), logprobs, usage, shortening)

    async def check_deterministic(self) -> None:
        """Raise :class:`BackendError` if a reply is another one beside others than alone, to the last digit.

        Not every GPU's kernels have been tried.
        """
        sampling = Sampling(32, logprobs=True, special_tokens=True)
        texts = (" ".join(map(str, range(length))) for length in (400, 7, 30, 150))
        requests = [GenerateRequest(as_prompt(each), sampling) for each in texts]
        alone = await self.generate(requests[0])
        await self.reset_prefix_cache()
        beside, *_ = await asyncio.gather(*map(self.generate, requests))
        if alone.completions != beside.completions:
            raise BackendError(
                "model.deterministic=true was given, but here vLLM's arithmetic depends on what else is in "
                "flight: choose model.backend=transformers, or leave it out."
            )

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

    async def _generate_ids(
        self, ids: Sequence[int], params: Any, priority: int, watch: Callable[[str], None] | None = None
    ) -> Any:
        """Put one request through the engine and return its final ``RequestOutput``.

        ``watch``: sees the text grow, if the parameters ask for more than the final output.
        """
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
                if watch is not None:
                    watch(output.outputs[0].text)
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
        f"{window:,}. More memory ('model.kv_cache_gb', 'model.tensor_parallel') gives more, and "
        f"model.max_context={window} says nothing about it.",
    )


def _params(sampling: Sampling, sample: int, stop_ids: Collection[int], *, grows: bool = False) -> Any:
    """Return vLLM's parameters. ``grows``: there is an output after each token, not only a final one."""
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
        output_kind=RequestOutputKind.CUMULATIVE if grows else RequestOutputKind.FINAL_ONLY,
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
