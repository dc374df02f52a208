"""What every method's options have in common: which prompts and files its results depend on."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from core.prompting.template import Template
from core.protocols import Ability
from core.runs.rows import SavedRow
from core.types import CandidateAnswer


@dataclass(frozen=True)
class MethodConfig:
    """Base of the methods' options, which are frozen dataclasses.

    ``SEARCHES``: whether the method needs a retriever. ``PRESETS``, for options with a ``preset``: the values
    that each stands for. ``GROUPED_BY``: options that tell its runs apart as if they were different methods,
    so a plot gives each of their values a colour of its own. ``ALSO_CALLED``: names that others have for the
    method. ``LATER``: options that came after runs had been made, whose default does as was done before: only
    other values stand among a run's settings, so older runs keep their identity.
    ``LOG_ODDS``: of the rankers of its candidates those whose scores are log odds of being right.
    ``KEEPS_CANDIDATES``: how its runs come to keep the answers of all candidates, as a sentence.
    """

    SEARCHES: ClassVar[bool] = True
    ALSO_CALLED: ClassVar[tuple[str, ...]] = ()
    PRESETS: ClassVar[dict[str, dict[str, Any]]]
    GROUPED_BY: ClassVar[tuple[str, ...]] = ()
    LATER: ClassVar[tuple[str, ...]] = ()
    LOG_ODDS: ClassVar[tuple[str, ...]] = ()
    KEEPS_CANDIDATES: ClassVar[str] = ""

    @classmethod
    def of_preset(cls, preset: str, **options: Any) -> Self:
        """Build a configuration from a preset, as the command line does; ``options`` override it."""
        build: Callable[..., Self] = cls
        return build(preset=preset, **(cls.PRESETS[preset] | options))

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

    def shared_state(self, rows: Iterable[SavedRow]) -> object | None:
        """Return what the questions of one run share, for :attr:`core.tools.Tools.shared`; mostly nothing.

        ``rows``: what the run holds already, so that a resumed run goes on with it. They are read from disk
        only as far as they are looked at.
        """
        return None

    @classmethod
    def exchangeable_candidates(cls, options: Mapping[str, Any]) -> bool:
        """Whether a question's candidates are samples made alike, so that any k of them are k fresh ones.

        They are not if one was made because of what another answered or scored. ``options``: of the run, as
        its manifest has them.
        """
        return True

    @classmethod
    def about_candidates(cls, options: Mapping[str, Any]) -> str:
        """Say what a reader of figures of k candidates should know of how they are made; "" for nothing."""
        return ""

    @classmethod
    def candidates(cls, row: SavedRow, options: Mapping[str, Any]) -> tuple[CandidateAnswer, ...]:
        """Return the answers among which a method chose, in a fixed order, as far as its trace tells.

        Here those that the answer brings as a field ``candidates``. ``options``: of the run, as its manifest
        has them.
        """
        return tuple(
            CandidateAnswer(each["text"], each.get("path", ""), each.get("scores", {}))
            for each in row.further.get("candidates", ())
        )
