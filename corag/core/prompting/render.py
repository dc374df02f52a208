"""Passages and worked examples as a prompt shows them: one function for each, used by all methods."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal

from corag.core.language.words import first_words, is_unspaced
from corag.core.prompting.demonstrations import Demonstration
from corag.core.prompting.prompt import Segment
from corag.core.prompting.template import INLINE, Piece, Template, load_template
from corag.core.types import Passage

PROMPTS = Path(__file__).parent / "prompts"
NUMBERED: tuple[Piece, str] = ("passage", "[{number}] {title}\n{text}\n")


def load_layout(source: str, folder: Path = PROMPTS, needs: Sequence[str] = ()) -> Template:
    """Load a prompt as :func:`load_template` does.

    What it does not say about writing lists is as in IRCoT's, ``layout``; a prompt given as text without
    worked examples, which are written so, gets numbered passages. Raises :class:`ConfigError` also if
    it lacks one of the fields that it ``needs``.
    """
    layout = load_template("layout", PROMPTS)
    if source == "layout":
        return layout
    prompt = load_template(source, folder)
    prompt.require(needs)
    prompt.require_as(replace(layout, sections=()))
    numbered = prompt.name == INLINE and "demonstrations" not in prompt.fields
    return prompt.with_missing_pieces(replace(layout, pieces=(NUMBERED,)) if numbered else layout)


def render_passages(
    passages: Iterable[Passage],
    template: Template,
    max_words: int | None = None,
    *,
    goes_first: Literal["first", "last"],
) -> list[Segment]:
    """Write passages in this order, each cut to ``max_words`` words.

    ``goes_first``: at which end a prompt that is too long loses them: the "last" where the best stands first;
    the "first" where it stands last, and by IRCoT's rule (released code).
    """
    items = passage_items(passages, max_words)
    return template.items(
        "passage", items, range(len(items)) if goes_first == "first" else range(len(items), 0, -1)
    )


def passage_items(passages: Iterable[Passage], max_words: int | None = None) -> list[dict[str, str]]:
    """Return passages as :meth:`Template.items` takes them, for a method with a drop order of its own."""
    return [
        {
            "title": passage.title,
            "text": clip_words(passage.text.strip(), max_words),
            "source": passage.origin,
        }
        for passage in passages
    ]


def render_demonstrations(demonstrations: Iterable[Demonstration], template: Template) -> list[Segment]:
    """Write worked examples. In a prompt that is too long the first go first (IRCoT, released code)."""
    return template.items(
        "demonstration",
        [
            {
                "passages": demonstration.context,
                "query": demonstration.question,
                "answer": demonstration.answer,
            }
            for demonstration in demonstrations
        ],
    )


def clip_words(text: str, max_words: int | None) -> str:
    """Keep the first ``max_words`` space-separated words, all without a limit.

    Where a script sets no spaces, its words are counted (:mod:`corag.core.language.words`).

    >>> clip_words("one two three", 2)
    'one two'
    """
    if max_words is not None and is_unspaced(text):
        return first_words(text, max_words)
    words = text.split(" ")
    return text if max_words is None or len(words) <= max_words else " ".join(words[:max_words])
