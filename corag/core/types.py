"""The types that every layer uses: passages, questions, hits, answers, token usage."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import NamedTuple

from corag.core.errors import DataError
from corag.core.seeds import stable_hash

PAGE_LABELS = ("slide ", "sheet ", "row ")
"""What a place in a file begins with that is no page of it."""


@dataclass(frozen=True, slots=True)
class Passage:
    """One retrievable piece of text.

    ``source``: the file that it was cut from, relative to what was indexed; "" for a record of a corpus.
    ``page``: the page on which it begins, by its printed number or label ("iv"), or a place that is no page
    ("slide 3", "sheet Costs, row 12", "row 12"); 0 where there is none.
    """

    id: str
    title: str
    text: str
    source: str = ""
    page: int | str = 0

    @property
    def origin(self) -> str:
        """Where it was cut from, for a reader: "" if that is not known.

        >>> Passage("1", "Leave", "Thirty days.", "handbook.pdf", 3).origin
        'handbook.pdf, page 3'
        >>> Passage("1", "Leave", "Thirty days.", "talk.pptx", "slide 3").origin
        'talk.pptx, slide 3'
        """
        if not self.page:
            return self.source
        is_label = isinstance(self.page, str) and self.page.startswith(PAGE_LABELS)
        return f"{self.source}, {self.page}" if is_label else f"{self.source}, page {self.page}"

    @property
    def citation(self) -> str:
        """Title and origin, as far as they are known: how answers name their sources.

        >>> Passage("1", "Leave", "Thirty days.", "handbook.pdf", 3).citation
        'Leave (handbook.pdf, page 3)'
        """
        return f"{self.title} ({self.origin})" if self.title and self.origin else self.title or self.origin

    @property
    def place(self) -> dict[str, str | int]:
        """Source and page as records have them, as far as they are known: other records stay as they were."""
        known_fields: dict[str, str | int] = {"source": self.source, "page": self.page}
        return {name: value for name, value in known_fields.items() if value}

    @property
    def contents(self) -> str:
        """Title, newline, text: what encoders, rerankers, BM25's field and the look for answers read."""
        return f"{self.title}\n{self.text}" if self.title else self.text


def passage_id(title: str, text: str) -> str:
    """Derive an id from a passage's content, so that the same passage met twice gets the same id.

    >>> passage_id("Paris", "Capital of France.") == passage_id("Paris", "Capital of  France. ")
    True
    """
    content = " ".join(title.split()) + "\n" + " ".join(text.split())
    return stable_hash(content)


@dataclass(frozen=True, slots=True)
class Hit:
    """A passage that a search returned.

    Scores are comparable within one result list only; higher is better.
    """

    passage: Passage
    score: float

    @property
    def id(self) -> str:
        """The passage's."""
        return self.passage.id

    @property
    def title(self) -> str:
        """The passage's."""
        return self.passage.title

    @property
    def text(self) -> str:
        """The passage's."""
        return self.passage.text


@dataclass(frozen=True, slots=True)
class GoldHop:
    """One hop of a question's gold decomposition.

    ``passage_id`` is the passage that answers it ("" if unknown). ``says``: question and answer as one
    sentence, where the dataset has it ("" if not).
    """

    question: str
    answer: str
    passage_id: str = ""
    says: str = ""


@dataclass(frozen=True, slots=True)
class Question:
    """A question with everything that scoring needs.

    ``answers``: the gold answer first, then its aliases. ``supporting``: ids of the gold passages. ``kind``:
    the dataset's own type, such as "bridge". ``hops``: 0 when the dataset does not say. ``context_ids``:
    passages that were retrieved for the question beforehand, best first, as corag/multihopqa brings them.
    ``pages``: where gold passages are known by their page only (KILT), the sets of pages that each bear an
    answer out; ``supporting`` then holds page ids too. ``titles``: of the pages that gold passages are of,
    where the dataset names them, for corpora with other ids than ``supporting``. ``synthetic``: how a program
    made the question, "" if a person asked it. Raises :class:`DataError` if the text is blank.
    """

    id: str
    text: str
    answers: tuple[str, ...] = ()
    supporting: tuple[str, ...] = ()
    kind: str = ""
    hops: int = 0
    decomposition: tuple[GoldHop, ...] = ()
    context_ids: tuple[str, ...] = ()
    pages: tuple[tuple[str, ...], ...] = ()
    titles: tuple[str, ...] = ()
    synthetic: str = ""

    def __post_init__(self) -> None:
        if not self.text.strip():
            raise DataError(f"question '{self.id}' has no text: give a non-empty question.")


@dataclass(frozen=True, slots=True)
class TokenUsage:
    """What a request cost, in tokens. Values add.

    ``prompt`` and ``generated`` are what CoRAG's paper counts (section 4.2): every prompt token and every
    generated token, cached or not; a request for n samples counts its prompt once. ``computed_prompt`` and
    ``computed_generated`` are what the engine really worked through: prefix-cache hits and remembered replies
    are left out. ``estimated``: tokens among ``prompt`` and ``generated`` that were not counted, but
    estimated from the length of the text.
    """

    calls: int = 0
    prompt: int = 0
    generated: int = 0
    computed_prompt: int = 0
    computed_generated: int = 0
    estimated: int = 0

    @property
    def total(self) -> int:
        """Prompt plus generated tokens, the unit of token budgets."""
        return self.prompt + self.generated

    @property
    def cached(self) -> int:
        """Prompt tokens that were found in a cache."""
        return self.prompt - self.computed_prompt

    @property
    def computed(self) -> int:
        """Tokens that the engine really worked through."""
        return self.computed_prompt + self.computed_generated

    def __add__(self, other: TokenUsage) -> TokenUsage:
        return TokenUsage(
            self.calls + other.calls,
            self.prompt + other.prompt,
            self.generated + other.generated,
            self.computed_prompt + other.computed_prompt,
            self.computed_generated + other.computed_generated,
            self.estimated + other.estimated,
        )

    def to_json(self) -> dict[str, int]:
        """Return the fields as rows have them: ``estimated`` only where something was."""
        return {name: value for name, value in asdict(self).items() if value or name != "estimated"}

    def remembered(self) -> TokenUsage:
        """Return the cost of giving the same reply again from memory: counted in full, not computed."""
        return TokenUsage(self.calls, self.prompt, self.generated, 0, 0, self.estimated)


NOTHING_SPENT = TokenUsage()

THINKING = "thinking"
"""The role of what models write for themselves before a reply, whatever the reply is for."""

MEASURING = "measure"
"""The role of what is asked only to be measured, and no answer depends on."""


def sum_usage(ledger: Mapping[str, TokenUsage]) -> TokenUsage:
    """Add up what answering cost, all roles together: what was only measured is no part of it.

    >>> sum_usage({"final": TokenUsage(1, 9, 2), MEASURING: TokenUsage(5, 50, 5)})
    TokenUsage(calls=1, prompt=9, generated=2, computed_prompt=0, computed_generated=0, estimated=0)
    """
    return sum((usage for role, usage in ledger.items() if role != MEASURING), TokenUsage())


@dataclass(frozen=True, slots=True)
class CandidateAnswer:
    """An answer that a method might have given: of several chains or samples, one each.

    ``path``: its place in the method, as in the steps. ``scores``: what rankers say of it, by their names,
    higher is better; a ranker that says nothing of it is left out.
    """

    text: str
    path: str = ""
    scores: Mapping[str, float] = field(default_factory=dict)


class Branch(NamedTuple):
    """The branch of a method that led to an answer, among several of one question.

    ``path``: its place in the method, as in the steps; ``paths``: those of all branches. ``hops``: its
    sub-queries, each with its sub-answer, "" where the passages did not tell.
    """

    path: str
    paths: Sequence[str]
    hops: Sequence[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class Answer:
    """What a method returns for one question. Methods with more to tell subclass it with further fields.

    ``passage_ids``: every passage that the method collected, in order of collection (recall is measured on
    these). ``steps``: reasoning steps or hops taken. ``stopped``: why the method stopped, one of a few words
    that its docstring lists.
    """

    text: str
    passage_ids: tuple[str, ...] = ()
    steps: int = 0
    stopped: str = ""

    @property
    def shown_ids(self) -> tuple[str, ...]:
        """The passages of the final prompt by their numbers there, from 1 on, where it has numbers."""
        return self.passage_ids

    def branch(self) -> Branch | None:
        """Return the branch that led to it; None where nothing was chosen among several."""
        return None


@dataclass(frozen=True, slots=True)
class ReadAnswer(Answer):
    """An answer whose final prompt may have shown fewer passages than were collected.

    ``context_ids``: those that it showed, in its order where it numbers them.
    """

    context_ids: tuple[str, ...] = ()

    @property
    def shown_ids(self) -> tuple[str, ...]:
        """The passages of the final prompt by their numbers there."""
        return self.context_ids
