"""Scoring by forced decoding, as a vLLM plug-in: pin what is generated, read its raw log-probabilities.

``log P(target | prompt)`` asked for with ``prompt_logprobs`` computes the whole prompt again, past the prefix
cache, and gathers a row of the vocabulary per prompt token. Forced to generate the target instead, the engine
finds the prompt in its cache and decodes only the target. vLLM reports log-probabilities from before any
logits processor runs, so they are those of the model itself.

vLLM loads the class by name, in process or as
``--logits-processors corag.generation.forced:ForcedDecoding``. Its
two model runners have two interfaces for such plug-ins; this class speaks both, so that the score does not
depend on which one vLLM picks.
"""

from __future__ import annotations

from typing import Any, Protocol

from corag.core.system.process import end_with_owner

PLUGIN = "corag.generation.forced:ForcedDecoding"
# The key of ``SamplingParams.extra_args`` (over HTTP: ``vllm_xargs``) that holds the token ids to generate.
FORCED_TOKENS = "forced_tokens"


class _Params(Protocol):
    """What is read of vLLM's ``SamplingParams``."""

    extra_args: dict[str, Any] | None
    max_tokens: int | None


class _ForcedDecoding:
    """Leave one possible token per step to the requests that ask for it, and every other request alone."""

    def __init__(self, vllm_config: object, state: Any, is_pin_memory: bool = False) -> None:
        """``state``: the requests' states in runner V2, the device in runner V1."""
        end_with_owner()  # a worker that was forked has not unpickled its configuration
        self._state = state
        # Then a request may own several rows, one for each draft token, and lengths are an upper bound.
        self._drafts = getattr(vllm_config, "speculative_config", None) is not None
        # Target and tokens generated so far (a list that vLLM keeps appending to) by row of the batch: runner
        # V1.
        self._rows: dict[int, tuple[list[int], list[int]]] = {}
        # Target by the slot that a request keeps for its lifetime: runner V2.
        self._slots: dict[int, list[int]] = {}

    @classmethod
    def validate_params(cls, sampling_params: _Params) -> None:
        """Raise ValueError, which refuses the request, unless there is one token id per token to generate."""
        tokens = (sampling_params.extra_args or {}).get(FORCED_TOKENS)
        if tokens is None:
            return
        if not isinstance(tokens, list) or not all(isinstance(token, int) and token >= 0 for token in tokens):
            raise ValueError(f"{FORCED_TOKENS} must be a list of token ids, but is {tokens!r}.")
        if len(tokens) != sampling_params.max_tokens:
            raise ValueError(
                f"{FORCED_TOKENS} has {len(tokens)} tokens, so max_tokens must be {len(tokens)} too."
            )

    def is_argmax_invariant(self) -> bool:
        """Return False: greedy requests are processed too, since the best token does not stay the best."""
        return False

    # Model runner V1: rows of the batch come, go and change places; vLLM tells what changed before each step.

    def update_state(self, batch_update: Any | None) -> None:
        """Follow the requests through the batch: removals, then arrivals, then moves, as vLLM prescribes."""
        if batch_update is None:
            return
        for row in batch_update.removed:
            self._rows.pop(row, None)
        for row, params, _, reply_ids in batch_update.added:
            self._rows.pop(row, None)
            if target := _target(params):
                self._rows[row] = (target, reply_ids)
        for source, goal, direction in batch_update.moved:
            moved_row, other = self._rows.pop(source, None), self._rows.pop(goal, None)
            if moved_row is not None:
                self._rows[goal] = moved_row
            if other is not None and direction.name == "SWAP":
                self._rows[source] = other

    # Model runner V2: a request keeps its slot, and each step says which slot each row of the batch belongs
    # to.

    def add_request(self, req_idx: int, sampling_params: _Params) -> bool:
        """Record a request that enters a slot, which may be another request's old one."""
        self._slots.pop(req_idx, None)
        if target := _target(sampling_params):
            self._slots[req_idx] = target
        return req_idx in self._slots

    def apply(self, logits: Any, ctx: Any | None = None) -> Any:
        """Make each forced row's next token infinitely likely.

        ``logits``: float32 [rows, vocabulary], changed in place.
        """
        if ctx is None:
            token_by_row = self._next_by_row()
        elif self._drafts or logits.shape[0] != len(ctx.idx_mapping_np):
            token_by_row = self._next_by_draft_row(ctx)
        else:
            token_by_row = self._next_by_slot(ctx)
        # A token outside the vocabulary must not take the engine down: the request's own reply shows that it
        # was not forced.
        token_by_row = {row: token for row, token in token_by_row.items() if token < logits.shape[-1]}
        if token_by_row:
            logits[list(token_by_row), list(token_by_row.values())] = float("inf")
        return logits

    def _next_by_row(self) -> dict[int, int]:
        # Placeholders stand for tokens that are still on their way, so the length is right under asynchronous
        # scheduling too.
        return {
            row: target[len(reply_ids)]
            for row, (target, reply_ids) in self._rows.items()
            if len(reply_ids) < len(target)
        }

    def _next_by_slot(self, ctx: Any) -> dict[int, int]:
        token_by_row: dict[int, int] = {}
        for row, slot in enumerate(ctx.idx_mapping_np.tolist() if self._slots else []):
            if (target := self._slots.get(slot)) is None:
                continue
            # Negative while a long prompt is still being read in chunks: what is sampled then is thrown away.
            position = int(ctx.seq_lens_upper_bound_np[row]) - int(self._state.prompt_len.np[slot])
            if 0 <= position < len(target):
                token_by_row[row] = target[position]
        return token_by_row

    def _next_by_draft_row(self, ctx: Any) -> dict[int, int]:
        # Each row is forced to the token of its own place, so a draft is accepted where it is that token, and
        # else replaced by it. The two copies from the device are made only where something is forced.
        token_by_row: dict[int, int] = {}
        if not any(slot in self._slots for slot in ctx.idx_mapping_np.tolist()):
            return token_by_row
        pairs = zip(ctx.expanded_idx_mapping.tolist(), ctx.pos.tolist(), strict=True)
        for row, (slot, position) in enumerate(pairs):
            if (target := self._slots.get(slot)) is None:
                continue
            place = position + 1 - int(self._state.prompt_len.np[slot])
            if 0 <= place < len(target):
                token_by_row[row] = target[place]
        return token_by_row


def forced_sampling(target: list[int], *, replay: bool) -> dict[str, Any]:
    """Return what of vLLM's ``SamplingParams`` makes a request generate these token ids.

    ``replay``: by vLLM's own trace replay instead of the plug-in, for an engine that was started with
    ``enable_trace_replay``. It writes the tokens on the GPU, behind the sampler, so no step waits for a copy
    from the host; it exists in vLLM's second model runner only, and not over HTTP.
    """
    return {"trace_decode_token_ids": target} if replay else {"extra_args": {FORCED_TOKENS: target}}


def _target(params: _Params) -> list[int] | None:
    return (params.extra_args or {}).get(FORCED_TOKENS)


def __getattr__(name: str) -> type:
    """Make ``ForcedDecoding`` a child of vLLM's classes when asked for: importing this must not load vLLM."""
    if name != "ForcedDecoding":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from vllm.v1.sample.logits_processor import LogitsProcessor

    bases: tuple[type, ...] = (_ForcedDecoding, LogitsProcessor)
    try:
        from vllm.v1.worker.gpu.sample.logits_processor import LogitsProcessor as LogitsProcessorV2
    except ImportError:  # a vLLM that has only the first model runner
        pass
    else:
        bases += (LogitsProcessorV2,)
    plugin = globals()[name] = type(name, bases, {"__module__": __name__})
    return plugin
