"""Encoder-decoder models, such as Flan-T5 (Chung et al. 2022), which IRCoT's own tables have beside Codex.

The encoder reads the prompt, the decoder writes the reply: a text of its own, with a window of its own. Such
models have no chat template, are neither trained here nor given an adapter, and run on transformers alone.
What two prompts have in common is computed for each: an encoder reads a token in the light of all others.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from corag.core.errors import ConfigError, RequestRefusedError
from corag.core.protocols import Completion
from corag.generation.decoding import (
    GenerateJob,
    ScoreJob,
    completions_of,
    extend,
    samples_of,
    target_logprobs,
)
from corag.generation.rendering import Renderer

if TYPE_CHECKING:
    import torch

# Of T5, whose configuration may leave it out.
_TRAINED_ON = 512


@dataclass(frozen=True, slots=True)
class Windows:
    """How many tokens a model reads and writes.

    Attributes:
        prompt: the longest prompt; the longest prompt plus completion unless ``apart``.
        reply: the longest completion of its own window, if ``apart``.
        apart: whether an encoder reads the prompt, and the reply has the decoder's window.
        about: a sentence on it, "" if there is nothing to tell.
    """

    prompt: int
    reply: int = 0
    apart: bool = False
    about: str = ""

    @classmethod
    def of(cls, config: Any, max_context: int) -> Windows:
        """Return those of a model's configuration. ``max_context``: as the option, 0 for the model's own."""
        if not config.is_encoder_decoder:
            longest = int(config.get_text_config().max_position_embeddings)
            return cls(min(max_context or longest, longest))
        if getattr(config, "relative_attention_num_buckets", None):  # T5: positions without an end
            training_window = int(getattr(config, "n_positions", None) or _TRAINED_ON)
            window = max_context or training_window
            about = (
                ""
                if max_context
                else f"its encoder reads {window} tokens of a prompt, as many as it was trained on; give it "
                "more by 'model.max_context' (IRCoT's authors: 6000)."
            )
            return cls(window, window, True, about)
        reads, writes = (
            int(getattr(config, f"max_{part}_position_embeddings", 0) or config.max_position_embeddings)
            for part in ("encoder", "decoder")
        )
        return cls(min(max_context or reads, reads), writes, True)

    def room(self, reply: int) -> int:
        """Return how many tokens a prompt may have beside a reply of so many.

        Raises :class:`RequestRefusedError` if the decoder has no window for the reply.
        """
        if not self.apart:
            return self.prompt - reply
        if reply > self.reply:
            raise RequestRefusedError(
                f"{reply} tokens are to be generated or scored, but the decoder's window has {self.reply}: "
                "ask for fewer."
            )
        return self.prompt


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


def score_apart(model: Any, jobs: Sequence[ScoreJob], pad: int) -> list[tuple[float, ...]]:
    """Return log P of each target token by the decoder, each prompt read by the encoder."""
    import torch

    with torch.inference_mode():
        encoding, mask = _encode(model, [job.ids for job in jobs], pad)
        begin = _start_token(model)
        targets, _ = _pad_right([(begin, *job.target[:-1]) for job in jobs], pad, model.device)
        logits = model(
            encoder_outputs=encoding, attention_mask=mask, decoder_input_ids=targets, use_cache=False
        ).logits
        scores = []
        for row, job in zip(logits, jobs, strict=True):
            scores.append(target_logprobs(row[: len(job.target)], job.target))
        return scores


def generate_apart(
    model: Any, renderer: Renderer, jobs: Sequence[GenerateJob], stop_ids: frozenset[int], pad: int
) -> list[tuple[Completion, ...]]:
    """Reply to each job's prompt ``sampling.n`` times, as :func:`corag.generation.decoding.generate` does.

    A prompt is encoded once for all its samples; finished sequences leave the batch.
    """
    import torch
    from transformers import DynamicCache, EncoderDecoderCache

    samples = samples_of(jobs)
    with torch.inference_mode():
        encoding, mask = _encode(model, [job.ids for job in jobs], pad)
        rows = torch.tensor(
            [row for row, job in enumerate(jobs) for _ in range(job.sampling.n)], device=model.device
        )
        cache = EncoderDecoderCache(DynamicCache(), DynamicCache())
        tokens = rows.new_full((len(samples),), _start_token(model))
        encoding.last_hidden_state = encoding.last_hidden_state[rows]
        mask, active = mask[rows], samples
        while True:
            logits = model(
                encoder_outputs=encoding,
                attention_mask=mask,
                decoder_input_ids=tokens[:, None],
                past_key_values=cache,
                use_cache=True,
            ).logits[:, -1]
            tokens = extend(active, logits.float(), renderer, stop_ids)
            alive = [row for row, sample in enumerate(active) if not sample.finish]
            if not alive:
                break
            if len(alive) < len(active):
                rows = torch.tensor(alive, device=model.device)
                cache.reorder_cache(rows)
                encoding.last_hidden_state = encoding.last_hidden_state[rows]
                mask, tokens, active = mask[rows], tokens[rows], [active[row] for row in alive]
    return completions_of(samples, renderer, stop_ids)


def _encode(model: Any, prompts: Sequence[tuple[int, ...]], pad: int) -> tuple[Any, torch.Tensor]:
    """Return what the encoder makes of prompts, and their mask, int64 [prompts, longest]."""
    ids, mask = _pad_right(prompts, pad, model.device)
    return model.get_encoder()(input_ids=ids, attention_mask=mask), mask


def _pad_right(
    sequences: Sequence[tuple[int, ...]], pad: int, device: torch.device
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return ids and mask, int64 [sequences, longest], of sequences that begin in the first column."""
    import torch

    longest = max(map(len, sequences))
    ids = [[*sequence, *[pad] * (longest - len(sequence))] for sequence in sequences]
    mask = [[1] * len(sequence) + [0] * (longest - len(sequence)) for sequence in sequences]
    return torch.tensor(ids, device=device), torch.tensor(mask, device=device)


def _start_token(model: Any) -> int:
    """Return the token with which the decoder begins; T5's is its padding."""
    start = model.generation_config.decoder_start_token_id
    start = getattr(model.config, "decoder_start_token_id", None) if start is None else start
    return int(model.config.pad_token_id if start is None else start)
