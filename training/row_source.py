"""What rows are made of: a question with its chains or thoughts, and a request of decoding with its reply."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from corag.chains.chain import Chain
from corag.chains.config import CoRAGConfig
from corag.chains.final_answer import Context
from corag.chains.prompting import continuation
from corag.core.errors import DataError
from corag.core.prompting.prompt import Prompt
from corag.core.types import Hit, Passage
from ircot.method import IRCoTConfig
from training.chains import ChainRow
from training.sampling import SampledChain


@dataclass(frozen=True, slots=True)
class TrainingExample:
    """A request of decoding and what should be replied.

    Attributes:
        hop: counted from 1; 0 for tasks asked once per question.
        prompt: as decoding writes it.
        reply: what the model should say.
        is_cut: the reply is not taught, since decoding does not give it whole. A sampled one was cut off at
            its limit of tokens, as its engine said; an annotated one is longer than that limit. Gold answers
            and stops are taught whatever their length.
        rests_on: what the prompt has to show, "" for nothing in particular: if passages that were left out
            for want of room had it alone, a model would learn to make it up.
        ends: the reply is taught to end the turn. A thought does not: decoding keeps its first sentence, and
            asks for the next one right behind it, so what follows a sentence must be the next, not the end.
        privileged: returns the same request to a teacher that knows more, for distillation; None where it
            knows no more.
    """

    question_id: str
    task: str
    hop: int
    prompt: Prompt
    reply: str
    is_cut: bool = False
    rests_on: str = ""
    ends: bool = True
    privileged: Callable[[], Prompt | None] = field(default=lambda: None, compare=False)

    @property
    def name(self) -> str:
        """What to call the row in a message."""
        return f"{self.task} of question '{self.question_id}'" + (f", hop {self.hop}" if self.hop else "")


@dataclass(frozen=True)
class RowSource:
    """One question with its sampled chains, and what its rows are made with.

    Attributes:
        row: the question with its candidates.
        passages: by id; all that the tasks show.
        count: counts the tokens of a text.
        corag: prompts, passages and limits, as in decoding.
        ircot: the same for thoughts; None without them.
        is_taught: whether the kept chain is taught.
    """

    row: ChainRow
    passages: Mapping[str, Passage]
    count: Callable[[str], int]
    corag: CoRAGConfig
    ircot: IRCoTConfig | None = None
    is_taught: bool = True

    @cached_property
    def chain(self) -> Chain | None:
        """The kept chain with its passages, if it is taught."""
        return self.rebuild(self.row.chain) if self.is_taught and self.row.chain is not None else None

    @cached_property
    def context(self) -> Context:
        """What a search for the question itself found."""
        return Context(self.hits(self.row.context_ids))

    def rebuild(self, candidate: SampledChain) -> Chain:
        """Rebuild a candidate with its passages. Raises :class:`DataError` if a passage is missing."""
        return Chain(candidate.hops, hits=tuple(self.hits(hop.passage_ids) for hop in candidate.hops))

    def hits(self, ids: Sequence[str]) -> tuple[Hit, ...]:
        """Return passages as a search returns them. Raises :class:`DataError` if one is missing."""
        missing = [name for name in ids if name not in self.passages]
        if missing:
            raise DataError(
                f"the chains of question '{self.row.question.id}' read passage '{missing[0]}', which the "
                "index does not have: give the index that they were sampled with."
            )
        return tuple(Hit(self.passages[name], 1 / rank) for rank, name in enumerate(ids, 1))

    def is_cut(self, prompt: Prompt, reply: str, limit: int, *, when_sampled: bool) -> bool:
        """Whether decoding would not give a reply whole. ``when_sampled``: whether its engine cut it off."""
        # Annotated replies had no engine, so their tokens are counted.
        return self.count(continuation(prompt, reply)) > limit if self.row.is_annotated else when_sampled
