"""Batched decoding by hand: each sequence with sampling settings and a seed of its own.

``model.generate`` would take one sampling setting and one seed for a whole batch. Here what a request gets
does not depend on what happens to be beside it.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from corag.core.protocols import Completion, Sampling
from corag.generation.rendering import Renderer

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, slots=True)
class GenerateJob:
    """Continue a prompt, unless ``given_up``: then nothing waits for the reply any more.

    ``watch``: is called, in the worker's thread, with the text so far.
    """

    ids: tuple[int, ...]
    sampling: Sampling
    watch: Callable[[str], None] | None = field(default=None, compare=False)
    given_up: threading.Event = field(default_factory=threading.Event, compare=False)

    @property
    def length(self) -> int:
        """Tokens that the first forward pass reads."""
        return len(self.ids)


@dataclass(frozen=True, slots=True)
class ScoreJob:
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

    job: GenerateJob
    chance: random.Random
    token_ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    finish: str = ""


def score(model: Any, jobs: Sequence[ScoreJob], pad: int) -> list[tuple[float, ...]]:
    """Return log P of each target token: one plain forward pass, the oracle of all scoring here."""
    import torch

    with torch.inference_mode():
        ids, mask = pad_left([job.ids + job.target for job in jobs], pad, model.device)
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
            targets = torch.tensor(job.target, device=logits.device)
            logprobs = logits[row, -len(job.target) - 1 : -1].float().log_softmax(-1)
            scores.append(tuple(logprobs.gather(1, targets[:, None])[:, 0].tolist()))
        return scores


def generate(
    model: Any, renderer: Renderer, jobs: Sequence[GenerateJob], stop_ids: frozenset[int], pad: int
) -> list[tuple[Completion, ...]]:
    """Continue each job's prompt ``sampling.n`` times.

    Prompts are read once; finished sequences leave the batch.
    """
    import torch
    from transformers import DynamicCache

    samples = [_Sample(job, _chance(job.sampling, n)) for job in jobs for n in range(job.sampling.n)]
    with torch.inference_mode():
        ids, mask = pad_left([job.ids for job in jobs], pad, model.device)
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
    by_job: dict[int, list[Completion]] = {}
    for sample in samples:
        by_job.setdefault(id(sample.job), []).append(_completion(sample, renderer, stop_ids))
    return [tuple(each) for each in by_job.values()]


def _chance(sampling: Sampling, n: int) -> random.Random:
    return random.Random() if sampling.seed is None else random.Random(f"{sampling.seed}/{n}")


def pad_left(
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
    """Append each sample's next token, from float32 logits [samples, vocabulary]; mark ended ones."""
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
        elif sample.job.watch is not None:
            text = renderer.continuation(sample.job.ids, sample.token_ids)
            sample.job.watch(text.rstrip("\ufffd"))  # a character that has not all of its tokens
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
    sorted_logits, ids = (logits[warm] / heat).sort(-1, descending=True)
    rank = torch.arange(sorted_logits.shape[1], device=logits.device)
    sorted_logits = sorted_logits.masked_fill(
        rank >= column([settings[row].top_k or sorted_logits.shape[1] for row in warm]), -torch.inf
    )
    probs = sorted_logits.softmax(-1)
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
    has_end_token = sample.token_ids[-1] in stop_ids  # by a token that is no part of the text
    ids = sample.token_ids[:-1] if has_end_token else sample.token_ids
    text = renderer.continuation(sample.job.ids, ids, special=sampling.special_tokens)
    stops = [at for stop in sampling.stop if (at := text.find(stop)) >= 0]
    completion = Completion(
        text=text[: min(stops)] if stops else text,
        token_ids=tuple(sample.token_ids),
        finish_reason=sample.finish,
        logprobs=tuple(sample.logprobs) if sampling.logprobs else None,
    )
    return renderer.with_token_texts(completion, sample.job.ids, sampling)
