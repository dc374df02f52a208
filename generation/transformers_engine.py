"""The transformers back end: slow and plain on one machine, and the oracle that the fast ones are checked
against.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias, cast

from core.batching import MicroBatcher
from core.errors import BackendError
from core.protocols import Completion, GenerateRequest, Generation, Score, ScoreRequest
from core.types import TokenUsage
from generation.adapters import adapter_folder, with_adapter
from generation.config import ModelConfig
from generation.decoding import GenerateJob, ScoreJob, generate, score
from generation.models import folder_digest, model_folder
from generation.rendering import Renderer

_Job: TypeAlias = GenerateJob | ScoreJob
_Result: TypeAlias = tuple[Completion, ...] | tuple[float, ...]

_MAX_BATCH_TOKENS = 32_768
"""Most tokens, padding included, in one forward pass: bounds the memory of attention masks and
activations.
"""


class TransformersGenerator:
    """A :class:`core.protocols.Generator` on a transformers model.

    Batches form from what arrives while the model is busy.
    """

    def __init__(
        self, model: Any, renderer: Renderer, window: int, batch_size: int, fingerprint: str
    ) -> None:
        """``window``: longest prompt plus completion in tokens. ``batch_size``: most sequences at once."""
        self._model = model
        self._renderer = renderer
        self._window = window
        self._fingerprint = fingerprint
        ends = model.generation_config.eos_token_id
        ends = ends if isinstance(ends, list) else [ends]
        self._stop_ids = frozenset(token for token in [*ends, renderer.eos] if token is not None)
        self._pad = min(self._stop_ids, default=0)  # any id would do: padding is masked
        self._batcher: MicroBatcher[_Job, _Result] = MicroBatcher(
            self._work, max_batch=batch_size, name="transformers"
        )
        self._batch_size = batch_size

    @classmethod
    def open(cls, config: ModelConfig) -> TransformersGenerator:
        """Load model, adapter and tokenizer.

        Raises :class:`ConfigError` or :class:`BackendError` with what is missing.
        """
        import torch
        from transformers import AutoModelForCausalLM
        from transformers.utils import logging

        logging.disable_progress_bar()
        folder = model_folder(config.name)
        renderer = Renderer.load(folder, config.chat)
        device = config.device if config.device != "auto" else "cuda" if torch.cuda.is_available() else "cpu"
        dtype = config.dtype if config.dtype != "auto" else "float32" if device == "cpu" else "bfloat16"
        try:
            model = (
                AutoModelForCausalLM.from_pretrained(folder, dtype=getattr(torch, dtype)).to(device).eval()
            )
        except (OSError, ValueError, RuntimeError) as error:
            raise BackendError(
                f"transformers cannot load the model in '{folder}' on {device}: {error}"
            ) from error
        identity = f"transformers:{folder_digest(folder)}:{dtype}"
        if config.adapter:
            adapter = adapter_folder(config.adapter)
            model = with_adapter(model, adapter, folder)
            identity += f":{folder_digest(adapter)}"
        longest = int(model.config.get_text_config().max_position_embeddings)
        window = min(config.max_context or longest, longest)
        return cls(model, renderer, window, config.batch_size, f"{identity}:{window}:chat={renderer.chat}")

    @property
    def fingerprint(self) -> str:
        """Identify model, adapter, precision and engine."""
        return self._fingerprint

    def count_tokens(self, text: str) -> int:
        """Return the number of tokens of a text, without special tokens."""
        return self._renderer.count(text)

    async def generate(self, request: GenerateRequest) -> Generation:
        """Continue a prompt."""
        ids, shortening = self._renderer.fit(request.prompt, self._window - request.sampling.max_tokens)
        result = await self._batcher.submit(GenerateJob(tuple(ids), request.sampling), request.priority)
        completions = cast("tuple[Completion, ...]", result)
        generated = sum(len(completion.token_ids) for completion in completions)
        return Generation(completions, TokenUsage(1, len(ids), generated, len(ids), generated), shortening)

    async def score(self, request: ScoreRequest) -> Score:
        """Return the log-likelihood of a given continuation, whose tokens count as generated."""
        target = tuple(self._renderer.target_ids(request))
        ids, shortening = self._renderer.fit(request.prompt, self._window - len(target))
        result = await self._batcher.submit(ScoreJob(tuple(ids), target), request.priority)
        usage = TokenUsage(1, len(ids), len(target), len(ids), len(target))
        return Score(target, cast("tuple[float, ...]", result), usage, shortening)

    async def close(self) -> None:
        """Stop taking requests. The model's memory goes with the object."""
        self._batcher.close()

    def _work(self, jobs: Sequence[_Job]) -> list[_Result]:
        """Serve a batch in the worker thread: sequences of one kind and similar length share a forward
        pass.
        """
        results: dict[int, _Result] = {}
        for rows in _alike(jobs, self._batch_size):
            to_score = [job for row in rows if isinstance(job := jobs[row], ScoreJob)]
            to_generate = [job for row in rows if isinstance(job := jobs[row], GenerateJob)]
            done: Sequence[_Result]
            try:
                if to_score:
                    done = score(self._model, to_score, self._pad)
                else:
                    done = generate(self._model, self._renderer, to_generate, self._stop_ids, self._pad)
            except RuntimeError as error:
                raise BackendError(
                    f"transformers failed on a batch of {len(rows)} sequences of up to "
                    f"{jobs[rows[-1]].length} tokens: {error}. If memory ran out, choose a smaller "
                    "batch_size or max_context."
                ) from error
            results.update(zip(rows, done, strict=True))
        return [results[row] for row in range(len(jobs))]


def _alike(jobs: Sequence[_Job], batch_size: int) -> list[list[int]]:
    """Group positions of jobs of one kind, within a quarter of each other's length, by rising length."""
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
