"""What a method is: its function, the class of its options, and what commands need to know of it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Self

from corag.core.options.classes import Options
from corag.core.prompting.template import Template
from corag.core.protocols import Ability
from corag.core.runs.rows import SavedRow
from corag.core.types import Answer, CandidateAnswer


@dataclass(frozen=True)
class MethodConfig(Options):
    """Base of the methods' options, which are frozen dataclasses."""

    FOR_DOCUMENTS: ClassVar[Mapping[str, Any]] = {}
    """Values with which answers from somebody's documents are sentences that cite passages by number."""

    def for_documents(self) -> Self:
        """Return these options with the values for documents in the place of defaults and a preset's."""
        defaults = {**vars(type(self)()), **self.PRESETS.get(vars(self).get("preset", ""), {})}
        values = {
            name: value for name, value in self.FOR_DOCUMENTS.items() if vars(self)[name] == defaults[name]
        }
        return replace(self, **values)

    def templates(self) -> tuple[Template, ...]:
        """Every prompt that the method may use: their identities go into the run's manifest."""
        return ()

    def files(self) -> Mapping[str, str]:
        """Files that the method reads beside prompts: paths by the name that each was given.

        The manifest keeps name and hash.
        """
        return {}

    def check_files(self) -> None:
        """Load prompts and files, so that what is missing is found before minutes go into an engine."""
        self.templates()

    def needs(self) -> Mapping[Ability, str]:
        """Return what the model must be able to do beyond answering prompts, and the way out if it cannot.

        The way out is a sentence's end, such as "choose --corag.rank_by refusals"; "" if there is none.
        """
        return {}

    @property
    def cites(self) -> bool:
        """Whether answers cite passages by the numbers that a prompt gives them."""
        return any(template.cites for template in self.templates())

    @property
    def samples(self) -> bool:
        """Whether a temperature that it has as an option has an effect."""
        return True

    @property
    def chains_at_once(self) -> int:
        """How many chains of a question are with the engine at the same time."""
        return 1


@dataclass(frozen=True)
class Candidates:
    """The answers among which a method chose, as its runs keep them.

    ``options``, in what follows: of the run, as its manifest has them.

    Attributes:
        advice: how its runs come to keep the answers of all candidates, as a sentence; "" if they cannot.
    """

    advice: str = ""

    def load(self, row: SavedRow, options: Mapping[str, Any]) -> tuple[CandidateAnswer, ...]:
        """Return the candidates of a question in a fixed order, as far as its trace has them.

        Here those that the answer brings as a field ``candidates``.
        """
        return tuple(
            CandidateAnswer(each["text"], each.get("path", ""), each.get("scores", {}))
            for each in row.further.get("candidates", ())
        )

    def exchangeable(self, options: Mapping[str, Any]) -> bool:
        """Whether a question's candidates are samples made alike, so that any k of them are k fresh ones.

        They are not if one was made because of what another answered or scored.
        """
        return True

    def note(self, options: Mapping[str, Any]) -> str:
        """Return what to know of figures of k candidates, from how they are made; "" for nothing."""
        return ""


@dataclass(frozen=True)
class Method:
    """A way to answer questions. A shipped one is the ``METHOD`` of its module, where the registry finds it.

    Attributes:
        function: the algorithm, an async function of question, tools and options.
        config: the class of its options.
        summary: one line about it.
        published: year and month of its paper, such as "2022-12": lists are in this order.
        also_called: names that others have for it.
        searches: whether it searches, as far as it is known.
        grouped_by: options that tell its runs apart as if they were different methods, so a plot gives each
            of their values a colour of its own.
        candidates: how its runs keep the answers among which it chose.
        code: of a method of the user's own a digest of its source, so that a run is not resumed with other
            code; else "".
        training_difference: returns how what options ask differs from what a model was taught, by the
            settings in its training.json; "" if it does not. The words go on after the model's name.
    """

    function: Callable[..., Awaitable[Answer]]
    config: type[MethodConfig] = MethodConfig
    summary: str = ""
    published: str = ""
    also_called: tuple[str, ...] = ()
    searches: bool = True
    grouped_by: tuple[str, ...] = ()
    candidates: Candidates = field(default_factory=Candidates)
    code: str = ""
    training_difference: Callable[[Any, Mapping[str, Any]], str] = lambda options, training: ""

    @property
    def needs_index(self) -> bool:
        """Whether the method cannot do without an index.

        Of a function without options of its own nothing is known: its first search will tell.
        """
        return self.searches and self.config is not MethodConfig
