"""Encoder-decoder models: Flan-T5 (Chung et al. 2022), which IRCoT's own tables have beside Codex.

The encoder reads the prompt, the decoder writes the reply. They answer greedily, by transformers' own
``generate``: IRCoT asks for no more. There is no chat template, and neither training nor adapters.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from corag.core.errors import ConfigError, RequestRefusedError
from corag.core.protocols import Ability, Completion, Sampling
from corag.generation.decoding import GenerateJob, pad_left
from corag.generation.rendering import Renderer

LACKS = frozenset({Ability.SCORES, Ability.LOGPROBS, Ability.TEMPERATURE, Ability.SAMPLING})
WINDOW = 512  # tokens that T5's encoder was trained on; its positions have no end
ABOUT = (
    f"its encoder reads {WINDOW} tokens of a prompt, as many as it was trained on; give it more by "
    "'model.max_context' (IRCoT's authors: 6000)."
)


def is_encoder_decoder(folder: str) -> bool:
    """Whether a model folder holds an encoder-decoder."""
    from transformers import AutoConfig

    try:
        return bool(AutoConfig.from_pretrained(folder).is_encoder_decoder)
    except ValueError:  # an architecture that transformers does not know
        return False


def refuse_encoder_decoder(folder: str, what: str) -> None:
    """Raise :class:`ConfigError` for an encoder-decoder. ``what``: such as "vLLM does not run one"."""
    if is_encoder_decoder(folder):
        raise ConfigError(
            f"'{folder}' is an encoder-decoder model, as T5 is, and {what}: such a model only answers, with "
            "model.backend=transformers and without an adapter. For all else choose another model."
        )


def check_greedy(sampling: Sampling) -> None:
    """Raise :class:`RequestRefusedError` for what is no greedy reply."""
    if sampling.temperature > 0 or sampling.logprobs or sampling.repetition_penalty != 1:
        raise RequestRefusedError(
            "an encoder-decoder model replies greedily and without log-probabilities: choose options that do "
            "without, or another model."
        )


def generate_apart(
    model: Any, renderer: Renderer, jobs: Sequence[GenerateJob], stop_ids: frozenset[int], pad: int
) -> list[tuple[Completion, ...]]:
    """Reply to each job's prompt, as :func:`corag.generation.decoding.generate` does."""
    import torch

    with torch.inference_mode():
        ids, mask = pad_left([job.ids for job in jobs], pad, model.device)
        longest = max(job.sampling.max_tokens for job in jobs)
        replies = model.generate(
            input_ids=ids, attention_mask=mask, do_sample=False, num_beams=1, max_new_tokens=longest
        )
    # The first token is the one with which the decoder begins.
    rows = zip(replies[:, 1:].tolist(), jobs, strict=True)
    return [(_completion(reply, job.sampling, renderer, stop_ids),) * job.sampling.n for reply, job in rows]


def _completion(
    reply: Sequence[int], sampling: Sampling, renderer: Renderer, stop_ids: frozenset[int]
) -> Completion:
    end = next((position for position, token in enumerate(reply) if token in stop_ids), len(reply))
    ids = reply[: min(end + 1, sampling.max_tokens)]
    text = renderer.continuation((), ids)
    stops = [at for stop in sampling.stop if (at := text.find(stop)) >= 0]
    finish = "stop" if stops or end < sampling.max_tokens else "length"
    return Completion(text[: min(stops, default=len(text))], tuple(ids), finish)
