"""What can be said and asked about the world, read from ``world.toml``: names, kinds, relations, English.

A new relation is an entry there and a line in ``facts`` that states it.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, Literal

WORLD: Mapping[str, Any] = tomllib.loads(Path(__file__).with_name("world.toml").read_text(encoding="utf-8"))
"""The file: by section, lists of words and templates."""


class Kind(StrEnum):
    """Kinds of things. A value (a year, a number, a profession) has no page of its own."""

    PERSON = "person"
    TOWN = "town"
    REGION = "region"
    RIVER = "river"
    COMPANY = "company"
    BOOK = "book"
    FESTIVAL = "festival"
    BATTLE = "battle"
    VALUE = "value"


@dataclass(frozen=True, slots=True)
class Relation:
    """One typed relation, which stands on the page of its ``domain`` thing.

    Attributes:
        name: what facts and paths call it.
        domain: the kind of thing that it starts from.
        range: the kind that it leads to.
        statement: the plain statement used in reasoning.
        prose: paraphrases in passages, so that words alone do not find them.
        asks: questions for what it leads to; the first is the canonical sub-question.
        nouns: descriptions of what it leads to, for nesting in longer questions.
        member: for relations that lead to several things, what one of them is called ("director of"); ""
            means exactly one.
    """

    name: str
    domain: str
    range: str
    statement: str
    prose: Sequence[str]
    asks: Sequence[str]
    nouns: Sequence[str] = ()
    member: str = ""


RELATIONS = {each["name"]: Relation(**each) for each in WORLD["relations"]}


def relations_of(kind: Kind) -> tuple[Relation, ...]:
    """Return the relations that pages of this kind tell, in the table's order."""
    return tuple(relation for relation in RELATIONS.values() if relation.domain == kind)


@dataclass(frozen=True, slots=True)
class ComparisonRule:
    """A question about two things of one kind, by what the path leads to from each.

    Attributes:
        path: relations to follow from each of the two things.
        pick: for "least" and "greatest" the answer is one of the two things, for "same" it is yes or no.
        asks: ways to ask.
        verdict: the conclusion in words; ``{}`` is the answer.
        otherwise: the conclusion if the answer is no.
    """

    path: Sequence[str]
    pick: Literal["least", "greatest", "same"]
    asks: Sequence[str]
    verdict: str
    otherwise: str = ""


COMPARISONS = [ComparisonRule(**each) for each in WORLD["comparisons"]]

FILTERS = ("born_in", "employer", "mentor")
"""By which an intersection question picks one member of a set: "Which director of X was born in Y?"."""
