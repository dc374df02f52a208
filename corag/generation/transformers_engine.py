"""The transformers back end: slow and plain on one machine, and the oracle that the fast ones are checked by.

Batches form from what arrives while the model is busy, and are decoded by hand:
:mod:`corag.generation.decoding`, and for models such as Flan-T5 :mod:`corag.generation.encoder_decoder`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, TypeAlias, cast

from corag.core.batching import MicroBatcher
from corag.core.errors import BackendError
from corag.core.lazy import importing
from corag.core.protocols import Completion, GenerateRequest, Generation, Score, ScoreRequest
from corag.core.runs.manifest import DETERMINISTIC
from corag.core.system.devices import choose_device
from corag.core.system.installation import require
from corag.core.types import TokenUsage
from corag.core.web.hugging_face import reading_weights
from corag.generation.adapter_weights import check_weights
from corag.generation.adapters import adapter_folder, check_adapter, with_adapter
from corag.generation.config import ModelConfig
from corag.generation.decoding import GenerateJob, ScoreJob, generate, score
from corag.generation.encoder_decoder import (
    ABOUT,
    LACKS,
    WINDOW,
    check_greedy,
    generate_apart,
    is_encoder_decoder,
    refuse_encoder_decoder,
)
from corag.generation.models import folder_digest, model_folder, native_dtype
from corag.generation.rendering import Renderer, RenderingEngine

# Most tokens, padding included, in one forward pass: bounds the memory of attention masks and activations.
_MAX_BATCH_TOKENS = 32_768


_Job: TypeAlias = GenerateJob | ScoreJob
_Result: TypeAlias = tuple[Completion, ...] | tuple[float, ...]


class TransformersGenerator(RenderingEngine):
    """A :class:`corag.core.protocols.Generator` on a transformers model.

    Batches form from what arrives while the model is busy.
    """

    def __init__(
        self, model: Any, renderer: Renderer, window: int, batch_size: int, fingerprint: str
    ) -> None:
        """``window``: longest prompt plus completion, in tokens; of an encoder's model, longest prompt.

        ``batch_size``: most sequences at once.
        """
        self._model = model
        super().__init__(renderer, window)
        self._apart = bool(model.config.is_encoder_decoder)
        self.lacks = LACKS if self._apart else ()
        self.fingerprint, self.about = fingerprint, renderer.about
        ends = model.generation_config.eos_token_id
        ends = ends if isinstance(ends, list) else [ends]
        self._stop_ids = renderer.stop_ids.union(token for token in ends if token is not None)
        self._pad = min(self._stop_ids, default=0)  # any id would do: padding is masked
        self._batcher: MicroBatcher[_Job, _Result] = MicroBatcher(
            self._work, max_batch=batch_size, name="transformers"
        )
        self._batch_size = batch_size
        self._closed = False

    @classmethod
    def open(cls, config: ModelConfig) -> TransformersGenerator:
        """Load model, adapter and tokenizer.

        Raises :class:`ConfigError` or :class:`BackendError` with what is missing.
        """
        if config.adapter:
            require(f"the adapter '{config.adapter}'", "peft")
        with importing:
            import torch
            from transformers import AutoModelForCausalLM, AutoModelForSeq2SeqLM
            from transformers.utils import logging

        logging.disable_progress_bar()
        folder = model_folder(config.name)
        renderer = Renderer.load(folder, config.chat, config.thoughts)
        apart = is_encoder_decoder(folder)
        device = choose_device(config.device, "the model's device")
        dtype = _dtype(config.dtype, device, apart=apart)
        adapter, about = adapter_folder(config.adapter), ""
        if adapter:  # before weights are read
            refuse_encoder_decoder(folder, "no adapter goes on one")
            _, about = check_adapter(adapter, folder)
            check_weights(adapter, folder)
        try:
            with reading_weights(f"the model in '{folder}'"):
                kind = AutoModelForSeq2SeqLM if apart else AutoModelForCausalLM
                model = kind.from_pretrained(folder, dtype=getattr(torch, dtype))
            model = model.to(device).eval()
        except (OSError, ValueError, RuntimeError) as error:
            raise BackendError(
                f"transformers cannot load the model in '{folder}' on {device}: {error}"
            ) from error
        identity = f"transformers:{folder_digest(folder)}:{dtype}"
        if adapter:
            model = with_adapter(model, adapter)
            identity += f":{folder_digest(adapter)}"
        window = config.max_context or WINDOW
        if not apart:
            longest = int(model.config.get_text_config().max_position_embeddings)
            window = min(config.max_context or longest, longest)
        identity += f":{window}:chat={renderer.way}{DETERMINISTIC * config.deterministic}"
        # What is computed together differs in a last digit from what is computed alone.
        batch_size = 1 if config.deterministic else config.batch_size
        engine = cls(model, renderer, window, batch_size, identity)
        narrow = ABOUT if apart and not config.max_context else ""
        engine.about = (*renderer.about, *filter(None, (about, narrow)))
        return engine

    async def generate(self, request: GenerateRequest) -> Generation:
        """Continue a prompt."""
        if self._apart:  # the reply has the decoder's window
            check_greedy(request.sampling)
        room = self.window - (0 if self._apart else request.sampling.max_tokens)
        ids, shortening = self._renderer.encode_within(request.prompt, room)
        sampling = self._renderer.ending(request.prompt, request.sampling)
        watch, loop = request.watch, asyncio.get_running_loop()

        def show(text: str) -> None:
            if watch is not None:
                loop.call_soon_threadsafe(watch, text)

        job = GenerateJob(tuple(ids), sampling, show if watch is not None else None)
        result = await self._submit(job, request.priority)
        completions = cast("tuple[Completion, ...]", result)
        generated_tokens = sum(len(completion.token_ids) for completion in completions)
        usage = TokenUsage(1, len(ids), generated_tokens, len(ids), generated_tokens)
        return Generation(completions, usage, shortening)

    async def score(self, request: ScoreRequest) -> Score:
        """Return the log-likelihood of a given continuation, whose tokens count as generated."""
        if self._apart:
            return await super().score(request)
        target = tuple(self._renderer.target_ids(request))
        ids, shortening = self._renderer.encode_within(request.prompt, self.window - len(target))
        result = await self._submit(ScoreJob(tuple(ids), target), request.priority)
        usage = TokenUsage(1, len(ids), len(target), len(ids), len(target))
        return Score(target, cast("tuple[float, ...]", result), usage, shortening)

    async def close(self) -> None:
        """Stop taking requests. The model's memory goes with the object."""
        self._closed = True
        self._batcher.close()

    async def _submit(self, job: _Job, priority: int) -> _Result:
        """Return a job's result. Raises :class:`BackendError` once the model is closed, waiting jobs too."""
        if not self._closed:
            try:
                return await self._batcher.submit(job, priority)
            except asyncio.CancelledError:
                if isinstance(job, GenerateJob):
                    job.given_up.set()  # in the middle of a batch the others go on without it
                raise
            except RuntimeError:  # of the worker's threads, which have ended
                if not self._closed:
                    raise
        raise BackendError("the model was closed while a question was at work: open it again.")

    def _work(self, jobs: Sequence[_Job]) -> list[_Result]:
        """Serve a batch in the worker thread: jobs of one kind and similar length share a forward pass."""
        results: dict[int, _Result] = {}
        reply = generate_apart if self._apart else generate
        for rows in _alike(jobs, self._batch_size):
            to_score = [job for row in rows if isinstance(job := jobs[row], ScoreJob)]
            to_generate = [job for row in rows if isinstance(job := jobs[row], GenerateJob)]
            batch: Sequence[_Result]
            try:
                if to_score:
                    batch = score(self._model, to_score, self._pad)
                else:
                    batch = reply(self._model, self._renderer, to_generate, self._stop_ids, self._pad)
            except RuntimeError as error:
                raise BackendError(
                    f"transformers failed on a batch of {len(rows)} sequences of up to "
                    f"{jobs[rows[-1]].length} tokens: {error}. If memory ran out, choose a smaller "
                    "'model.batch_size' or 'model.max_context'."
                ) from error
            results.update(zip(rows, batch, strict=True))
        return [results[row] for row in range(len(jobs))]


def _dtype(dtype: str, device: str, *, apart: bool) -> str:
    """Return the precision of the weights. ``apart``: of an encoder-decoder."""
    if dtype != "auto":
        return dtype
    native = native_dtype(on_cpu=False) if device.startswith("cuda") else "float32"
    # T5's activations leave the range of float16, which is what GPUs without bfloat16 have.
    return "float32" if apart and native == "float16" else native


def _alike(jobs: Sequence[_Job], batch_size: int) -> list[list[int]]:
    """Group positions of jobs of one kind, within a quarter of each other's length, by rising length.

    What is shorter than the longest of its batch is padded to it, and padding is computed like any token.
    """
    groups: list[list[int]] = []
    sequences = 0
    for row in sorted(range(len(jobs)), key=lambda row: (isinstance(jobs[row], ScoreJob), jobs[row].length)):
        job = jobs[row]
        more = job.sampling.n if isinstance(job, GenerateJob) else 1
        first = jobs[groups[-1][0]] if groups else job
        if (
            groups
            and type(first) is type(job)
            and job.length <= first.length * 1.25 + 32
            and sequences + more <= batch_size
            and (sequences + more) * job.length <= _MAX_BATCH_TOKENS
        ):
            groups[-1].append(row)
            sequences += more
        else:
            groups.append([row])
            sequences = more
    return groups
