"""The transformers back end: slow and plain on one machine, and the oracle that the fast ones are checked by.

First the engine, whose batches form from what arrives while the model is busy; then batched decoding by hand.
``model.generate`` would take one sampling setting and one seed for a whole batch. Here every sequence has its
own, so that what a request gets does not depend on what happens to be beside it.
"""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from corag.core.batching import MicroBatcher
from corag.core.devices import choose_device
from corag.core.errors import BackendError
from corag.core.hugging_face import reading_weights
from corag.core.installation import require
from corag.core.lazy import importing
from corag.core.protocols import Completion, GenerateRequest, Generation, Sampling, Score, ScoreRequest
from corag.core.types import TokenUsage
from corag.generation.adapter_weights import check_weights
from corag.generation.adapters import adapter_folder, describe_base, with_adapter
from corag.generation.config import ModelConfig
from corag.generation.models import folder_digest, model_folder, native_dtype
from corag.generation.rendering import Renderer, RenderingEngine

if TYPE_CHECKING:
    import torch

# Most tokens, padding included, in one forward pass: bounds the memory of attention masks and activations.
_MAX_BATCH_TOKENS = 32_768


@dataclass(frozen=True, slots=True)
class _GenerateJob:
    """Continue a prompt, unless ``given_up``: then nobody waits for the reply any more."""

    ids: tuple[int, ...]
    sampling: Sampling
    given_up: threading.Event = field(default_factory=threading.Event, compare=False)

    @property
    def length(self) -> int:
        """Tokens that the first forward pass reads."""
        return len(self.ids)


@dataclass(frozen=True, slots=True)
class _ScoreJob:
    """Score a target after a prompt."""

    ids: tuple[int, ...]
    target: tuple[int, ...]

    @property
    def length(self) -> int:
        """Tokens that the forward pass reads."""
        return len(self.ids) + len(self.target)


@dataclass(slots=True)
class _Sample:
    """One sequence that is being decoded."""

    job: _GenerateJob
    chance: random.Random
    token_ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    finish: str = ""


_Job: TypeAlias = _GenerateJob | _ScoreJob
_Result: TypeAlias = tuple[Completion, ...] | tuple[float, ...]


class TransformersGenerator(RenderingEngine):
    """A :class:`corag.core.protocols.Generator` on a transformers model.

    Batches form from what arrives while the model is busy.
    """

    def __init__(
        self, model: Any, renderer: Renderer, window: int, batch_size: int, fingerprint: str
    ) -> None:
        """``window``: longest prompt plus completion in tokens. ``batch_size``: most sequences at once."""
        self._model = model
        self._renderer = renderer
        self._window = window
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
            from transformers import AutoModelForCausalLM
            from transformers.utils import logging

        logging.disable_progress_bar()
        folder = model_folder(config.name)
        renderer = Renderer.load(folder, config.chat, config.thoughts)
        device = choose_device(config.device, "the model's device")
        dtype = (
            config.dtype
            if config.dtype != "auto"
            else "float32"
            if not device.startswith("cuda")
            else native_dtype(on_cpu=False)
        )
        adapter, about = adapter_folder(config.adapter), ""
        if adapter:  # before weights are read
            about = describe_base(adapter, folder)
            check_weights(adapter, folder)
        try:
            with reading_weights(f"the model in '{folder}'"):
                model = AutoModelForCausalLM.from_pretrained(folder, dtype=getattr(torch, dtype))
            model = model.to(device).eval()
        except (OSError, ValueError, RuntimeError) as error:
            raise BackendError(
                f"transformers cannot load the model in '{folder}' on {device}: {error}"
            ) from error
        identity = f"transformers:{folder_digest(folder)}:{dtype}"
        if adapter:
            model = with_adapter(model, adapter)
            identity += f":{folder_digest(adapter)}"
        longest = int(model.config.get_text_config().max_position_embeddings)
        window = min(config.max_context or longest, longest)
        identity += f":{window}:chat={renderer.way}"
        engine = cls(model, renderer, window, config.batch_size, identity)
        engine.about += (about,) if about else ()
        return engine

    async def generate(self, request: GenerateRequest) -> Generation:
        """Continue a prompt."""
        ids, shortening = self._renderer.encode_within(
            request.prompt, self._window - request.sampling.max_tokens
        )
        sampling = self._renderer.ending(request.prompt, request.sampling)
        result = await self._submit(_GenerateJob(tuple(ids), sampling), request.priority)
        completions = cast("tuple[Completion, ...]", result)
        generated = sum(len(completion.token_ids) for completion in completions)
        return Generation(completions, TokenUsage(1, len(ids), generated, len(ids), generated), shortening)

    async def score(self, request: ScoreRequest) -> Score:
        """Return the log-likelihood of a given continuation, whose tokens count as generated."""
        target = tuple(self._renderer.target_ids(request))
        ids, shortening = self._renderer.encode_within(request.prompt, self._window - len(target))
        result = await self._submit(_ScoreJob(tuple(ids), target), request.priority)
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
                if isinstance(job, _GenerateJob):
                    job.given_up.set()  # in the middle of a batch the others go on without it
                raise
            except RuntimeError:  # of the worker's threads, which have ended
                if not self._closed:
                    raise
        raise BackendError("the model was closed while a question was at work: open it again.")

    def _work(self, jobs: Sequence[_Job]) -> list[_Result]:
        """Serve a batch in the worker thread: jobs of one kind and similar length share a forward pass."""
        results: dict[int, _Result] = {}
        for rows in _alike(jobs, self._batch_size):
            to_score = [job for row in rows if isinstance(job := jobs[row], _ScoreJob)]
            to_generate = [job for row in rows if isinstance(job := jobs[row], _GenerateJob)]
            batch: Sequence[_Result]
            try:
                if to_score:
                    batch = _score(self._model, to_score, self._pad)
                else:
                    batch = _generate(self._model, self._renderer, to_generate, self._stop_ids, self._pad)
            except RuntimeError as error:
                raise BackendError(
                    f"transformers failed on a batch of {len(rows)} sequences of up to "
                    f"{jobs[rows[-1]].length} tokens: {error}. If memory ran out, choose a smaller "
                    "batch_size or max_context."
                ) from error
            results.update(zip(rows, batch, strict=True))
        return [results[row] for row in range(len(jobs))]


def _alike(jobs: Sequence[_Job], batch_size: int) -> list[list[int]]:
    """Group positions of jobs of one kind, within a quarter of each other's length, by rising length.

    What is shorter than the longest of its batch is padded to it, and padding is computed like any token.
    """
    groups: list[list[int]] = []
    sequences = 0
    for row in sorted(range(len(jobs)), key=lambda row: (isinstance(jobs[row], _ScoreJob), jobs[row].length)):
        job = jobs[row]
        more = job.sampling.n if isinstance(job, _GenerateJob) else 1
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


def _score(model: Any, jobs: Sequence[_ScoreJob], pad: int) -> list[tuple[float, ...]]:
    """Return log P of each target token: one plain forward pass, the oracle of all scoring here."""
    import torch

    with torch.inference_mode():
        ids, mask = _left_padded([job.ids + job.target for job in jobs], pad, model.device)
        longest = max(len(job.target) for job in jobs)
        # No more than that: a row of the vocabulary per prompt token would be most of the memory.
        last = longest + 1
        logits = model(
            input_ids=ids,
            attention_mask=mask,
            position_ids=_positions(mask),
            use_cache=False,
            logits_to_keep=last,
        ).logits
        scores = []
        for row, job in enumerate(jobs):
            logprobs = logits[row, -len(job.target) - 1 : -1].float().log_softmax(-1)  # [target, vocabulary]
            target = torch.tensor(job.target, device=logits.device)
            scores.append(tuple(logprobs.gather(1, target[:, None])[:, 0].tolist()))
        return scores


def _generate(
    model: Any, renderer: Renderer, jobs: Sequence[_GenerateJob], stop_ids: frozenset[int], pad: int
) -> list[tuple[Completion, ...]]:
    """Continue each job's prompt ``sampling.n`` times.

    Prompts are read once; finished sequences leave the batch.
    """
    import torch
    from transformers import DynamicCache

    samples = [_Sample(job, _chance(job.sampling, n)) for job in jobs for n in range(job.sampling.n)]
    with torch.inference_mode():
        ids, mask = _left_padded([job.ids for job in jobs], pad, model.device)
        cache = DynamicCache(config=model.config)
        out = model(
            input_ids=ids,
            attention_mask=mask,
            position_ids=_positions(mask),
            past_key_values=cache,
            logits_to_keep=1,
        )
        owners = torch.tensor(
            [row for row, job in enumerate(jobs) for _ in range(job.sampling.n)], device=model.device
        )
        if len(samples) > len(jobs):  # the prompt was read once; its n samples go on with a copy each
            cache.reorder_cache(owners)
        mask, logits, active = mask[owners], out.logits[owners, -1], samples
        while True:
            tokens = _extend(active, logits.float(), renderer, stop_ids)
            alive = [row for row, sample in enumerate(active) if not sample.finish]
            if not alive:
                break
            if len(alive) < len(active):
                rows = torch.tensor(alive, device=model.device)
                cache.reorder_cache(rows)
                mask, tokens, active = mask[rows], tokens[rows], [active[row] for row in alive]
            mask = torch.cat([mask, mask.new_ones(len(active), 1)], dim=1)
            position = mask.sum(-1, keepdim=True) - 1
            logits = model(
                input_ids=tokens[:, None], attention_mask=mask, position_ids=position, past_key_values=cache
            ).logits[:, -1]
    finished = iter([_completion(sample, renderer, stop_ids) for sample in samples])
    return [tuple(next(finished) for _ in range(job.sampling.n)) for job in jobs]


def _chance(sampling: Sampling, n: int) -> random.Random:
    return random.Random() if sampling.seed is None else random.Random(f"{sampling.seed}/{n}")


def _left_padded(
    sequences: Sequence[tuple[int, ...]], pad: int, device: torch.device
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return ids and mask, int64 [sequences, longest], so that all sequences end in the last column.

    There the next token's logits stand for all of them.
    """
    import torch

    longest = max(map(len, sequences))
    ids = [[pad] * (longest - len(sequence)) + list(sequence) for sequence in sequences]
    mask = [[0] * (longest - len(sequence)) + [1] * len(sequence) for sequence in sequences]
    return torch.tensor(ids, device=device), torch.tensor(mask, device=device)


def _positions(mask: torch.Tensor) -> torch.Tensor:
    # Without padding: a sequence counts from 0 wherever it begins, and reads as it would alone.
    return (mask.cumsum(-1) - 1).clamp(min=0)


def _extend(
    samples: Sequence[_Sample], logits: torch.Tensor, renderer: Renderer, stop_ids: frozenset[int]
) -> torch.Tensor:
    """Append each sample's next token, from float32 logits [samples, vocabulary]; mark who has finished."""
    tokens = _choose(samples, logits)
    # Raw: from before biases, penalties and temperature, as vLLM reports them.
    logprobs = (logits.gather(1, tokens[:, None])[:, 0] - logits.logsumexp(-1)).tolist()
    for sample, token, logprob in zip(samples, tokens.tolist(), logprobs, strict=True):
        sample.token_ids.append(token)
        sample.logprobs.append(logprob)
        if token in stop_ids or _stops(sample, renderer):
            sample.finish = "stop"
        elif len(sample.token_ids) >= sample.job.sampling.max_tokens or sample.job.given_up.is_set():
            sample.finish = "length"
    return tokens


def _choose(samples: Sequence[_Sample], logits: torch.Tensor) -> torch.Tensor:
    """Return one token id per sample: the best at temperature 0, else drawn as its sampling says."""
    import torch

    settings = [sample.job.sampling for sample in samples]
    if any(setting.logit_bias or setting.repetition_penalty != 1 for setting in settings):
        logits = logits.clone()
        for row, sample in zip(logits, samples, strict=True):
            _penalise(row, sample)
    best = logits.argmax(-1)
    warm = [row for row, setting in enumerate(settings) if setting.temperature > 0]
    if not warm:
        return best

    def column(values: list[float]) -> torch.Tensor:
        return torch.tensor(values, device=logits.device, dtype=torch.float32)[:, None]

    heat = column([settings[row].temperature for row in warm])
    ordered, ids = (logits[warm] / heat).sort(-1, descending=True)
    rank = torch.arange(ordered.shape[1], device=logits.device)
    ordered = ordered.masked_fill(
        rank >= column([settings[row].top_k or ordered.shape[1] for row in warm]), -torch.inf
    )
    probs = ordered.softmax(-1)
    probs = probs.masked_fill(probs.cumsum(-1) - probs >= column([settings[row].top_p for row in warm]), 0)
    # One uniform number per sequence, from its own seed, inverts the cumulative distribution: the batch
    # around it has no say.
    mass = probs.cumsum(-1)
    draw = column([samples[row].chance.random() for row in warm]) * mass[:, -1:]
    columns = torch.searchsorted(mass, draw, right=True).clamp(max=(probs > 0).sum(-1, keepdim=True) - 1)
    best[warm] = ids.gather(1, columns)[:, 0]
    return best


def _penalise(row: torch.Tensor, sample: _Sample) -> None:
    """Apply logit biases, then the repetition penalty over prompt and completion, to one row in place.

    In vLLM's order, since that engine is checked against this one.
    """
    import torch

    setting = sample.job.sampling
    for token, bias in setting.logit_bias:
        row[token] += bias
    if setting.repetition_penalty != 1:
        earlier = torch.tensor(sorted({*sample.job.ids, *sample.token_ids}), device=row.device)
        values = row[earlier]
        row[earlier] = torch.where(
            values > 0, values / setting.repetition_penalty, values * setting.repetition_penalty
        )


def _stops(sample: _Sample, renderer: Renderer) -> bool:
    """Whether the newest token has completed a stop string."""
    stop = sample.job.sampling.stop
    if not stop:
        return False
    # A token spells at least a byte, so a stop string reaches back so many tokens at most: decoding the whole
    # text for every token would take quadratic time.
    reach = max(len(text.encode()) for text in stop) + 1
    earlier = (*sample.job.ids[-4:], *sample.token_ids[:-reach])
    special = sample.job.sampling.special_tokens
    tail = renderer.continuation(earlier, sample.token_ids[-reach:], special=special)
    return any(text in tail for text in stop)


def _completion(sample: _Sample, renderer: Renderer, stop_ids: frozenset[int]) -> Completion:
    sampling = sample.job.sampling
    ended = sample.token_ids[-1] in stop_ids  # by a token that is no part of the text
    ids = sample.token_ids[:-1] if ended else sample.token_ids
    text = renderer.continuation(sample.job.ids, ids, special=sampling.special_tokens)
    stops = [at for stop in sampling.stop if (at := text.find(stop)) >= 0]
    completion = Completion(
        text=text[: min(stops)] if stops else text,
        token_ids=tuple(sample.token_ids),
        finish_reason=sample.finish,
        logprobs=tuple(sample.logprobs) if sampling.logprobs else None,
    )
    return renderer.with_token_texts(completion, sample.job.ids, sampling)
