"""What can be said and asked about the world: kinds of things, relations between them, English for both.

This is a table: a new relation is an entry here and a line in ``facts`` that states it. ``{}`` is the thing a
question is about; in prose, ``{S}`` is the page's subject or a word for it, ``{P}`` its possessive, ``{p}``
the same in lower case, and ``{o}`` what the relation leads to.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Literal


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
    """One typed relation, told on the page of its ``domain`` thing.

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
    domain: Kind
    range: Kind
    statement: str
    prose: tuple[str, ...]
    asks: tuple[str, ...]
    nouns: tuple[str, ...] = ()
    member: str = ""


_RELATIONS = (
    Relation(
        "born_in", Kind.PERSON, Kind.TOWN, "{s} was born in {o}.",
        ("{S} was born in {o}.", "{S} came into the world in {o}.", "{S} was a native of {o}.",
         "{P} birthplace was {o}."),
        ("Where was {} born?", "In which town was {} born?", "What is the birthplace of {}?"),
        ("the town where {} was born", "the birthplace of {}"),
    ),
    Relation(
        "birth_year", Kind.PERSON, Kind.VALUE, "{s} was born in {o}.",
        ("{P} year of birth was {o}.",),
        ("In which year was {} born?", "When was {} born?", "What is the year of birth of {}?"),
    ),
    Relation(
        "profession", Kind.PERSON, Kind.VALUE, "{s} was a {o}.",
        ("{S} was a {o} by profession.", "{S} made a living as a {o}."),
        ("What was the profession of {}?", "What did {} do for a living?", "What was the occupation of {}?"),
    ),
    Relation(
        "employer", Kind.PERSON, Kind.COMPANY, "{s} worked for {o}.",
        ("{S} worked for {o}.", "{S} was employed by {o} for many years.",
         "{S} spent most of {p} career at {o}.",
         "{P} longest employment was with {o}."),
        ("Which company did {} work for?", "For which company did {} work?", "Which company employed {}?"),
        ("the company that employed {}", "the company for which {} worked", "the employer of {}"),
    ),
    Relation(
        "spouse", Kind.PERSON, Kind.PERSON, "{s} was married to {o}.",
        ("{S} was married to {o}.", "{S} married {o}.", "{S} found a companion for life in {o}."),
        ("Who was {} married to?", "Whom did {} marry?", "Who was the spouse of {}?"),
        ("the spouse of {}", "the person whom {} married"),
    ),
    Relation(
        "mentor", Kind.PERSON, Kind.PERSON, "{s} was taught by {o}.",
        ("{S} was taught by {o}.", "{S} studied under {o}.", "{S} learned the trade from {o}.",
         "{P} teacher was {o}."),
        ("Who taught {}?", "Under whom did {} study?", "Who was the teacher of {}?"),
        ("the person who taught {}", "the teacher of {}"),
    ),
    Relation(
        "author", Kind.BOOK, Kind.PERSON, "The author of {s} is {o}.",
        ("{S} was written by {o}.", "{P} author is {o}.", "{S} is the work of {o}."),
        ("Who wrote {}?", "Who is the author of {}?", "By whom was {} written?"),
        ("the author of {}", "the person who wrote {}", "the writer of {}"),
    ),
    Relation(
        "publisher", Kind.BOOK, Kind.COMPANY, "{s} was published by {o}.",
        ("{S} was published by {o}.", "{S} was brought out by {o}.", "{P} publisher was {o}."),
        ("Which company published {}?", "By which company was {} published?", "What is the publisher of {}?"),
        ("the company that published {}", "the publisher of {}"),
    ),
    Relation(
        "published", Kind.BOOK, Kind.VALUE, "{s} was published in {o}.",
        ("{S} first appeared in {o}.", "{S} was first printed in {o}."),
        ("In which year was {} published?", "When was {} first published?",
         "What is the year of publication of {}?"),
    ),
    Relation(
        "set_in", Kind.BOOK, Kind.TOWN, "{s} is set in {o}.",
        ("{S} is set in {o}.", "{P} story takes place in {o}.", "{P} plot unfolds in {o}."),
        ("In which town is {} set?", "Where does the story of {} take place?",
         "Which town is the setting of {}?"),
        ("the town where {} is set", "the setting of {}"),
    ),
    Relation(
        "founder", Kind.COMPANY, Kind.PERSON, "The founder of {s} is {o}.",
        ("{S} was founded by {o}.", "{P} founder was {o}.", "{S} was set up by {o}."),
        ("Who founded {}?", "By whom was {} founded?", "Who was the founder of {}?"),
        ("the founder of {}", "the person who founded {}"),
    ),
    Relation(
        "founded", Kind.COMPANY, Kind.VALUE, "{s} was founded in {o}.",
        ("{S} has existed since {o}.", "{S} opened for business in {o}.", "{S} dates from {o}."),
        ("In which year was {} founded?", "When was {} founded?", "What is the founding year of {}?"),
    ),
    Relation(
        "seat", Kind.COMPANY, Kind.TOWN, "{s} is based in {o}.",
        ("{S} is based in {o}.", "{S} has its head office in {o}.", "{P} headquarters are in {o}."),
        ("In which town is {} based?", "Where is {} based?", "Which town is home to {}?"),
        ("the town where {} is based", "the home town of {}"),
    ),
    Relation(
        "directors", Kind.COMPANY, Kind.PERSON, "The directors of {s} were {o}.",
        ("{P} directors have included {o}.", "{S} was directed over the years by {o}.",
         "Among {p} directors were {o}."),
        ("Who were the directors of {}?",),
        member="director of",
    ),
    Relation(
        "region", Kind.TOWN, Kind.REGION, "{s} lies in {o}.",
        ("{S} lies in {o}.", "{S} belongs to the region of {o}.", "{S} is part of {o}."),
        ("In which region is {}?", "Which region does {} belong to?", "What is the region of {}?"),
        ("the region of {}", "the region that includes {}"),
    ),
    Relation(
        "river", Kind.TOWN, Kind.RIVER, "The river that flows through {s} is {o}.",
        ("{S} stands on {o}.", "{S} grew up along {o}.", "{S} is crossed by {o}."),
        ("Which river flows through {}?", "On which river does {} stand?",
         "What is the name of the river in {}?"),
        ("the river that flows through {}", "the river on which {} stands"),
    ),
    Relation(
        "population", Kind.TOWN, Kind.VALUE, "{s} has {o} inhabitants.",
        ("{S} has {o} inhabitants.", "{S} has a population of {o}.", "{P} population is {o}."),
        ("How many inhabitants does {} have?", "How many people live in {}?",
         "What is the population of {}?"),
    ),
    Relation(
        "mayor", Kind.TOWN, Kind.PERSON, "The first mayor of {s} was {o}.",
        ("{P} first mayor was {o}.", "{S} chose {o} as its first mayor.", "{S} had {o} as its first mayor."),
        ("Who was the first mayor of {}?", "Who became the first mayor of {}?"),
        ("the first mayor of {}", "the person who became the first mayor of {}"),
    ),
    Relation(
        "capital", Kind.REGION, Kind.TOWN, "The capital of {s} is {o}.",
        ("{P} capital is {o}.", "{S} is governed from its capital, {o}.", "{S} has {o} as its capital."),
        ("What is the capital of {}?", "Which town is the capital of {}?"),
        ("the capital of {}", "the town that is the capital of {}"),
    ),
    Relation(
        "governor", Kind.REGION, Kind.PERSON, "The first governor of {s} was {o}.",
        ("{P} first governor was {o}.", "{S} had {o} as its first governor."),
        ("Who was the first governor of {}?", "Who became the first governor of {}?"),
        ("the first governor of {}", "the person who became the first governor of {}"),
    ),
    Relation(
        "product", Kind.REGION, Kind.VALUE, "{s} is known for its {o}.",
        ("{S} is known for its {o}.", "{S} is famous for its {o}."),
        ("What is {} known for?", "For what is {} famous?", "What is the best-known product of {}?"),
    ),
    Relation(
        "source", Kind.RIVER, Kind.VALUE, "{s} rises at {o}.",
        ("{S} rises at {o}.", "{P} source is at {o}.", "{S} springs from the rocks of {o}."),
        ("Where does {} rise?", "At which place does {} rise?", "What is the source of {}?"),
    ),
    Relation(
        "length", Kind.RIVER, Kind.VALUE, "{s} is {o} long.",
        ("{S} is {o} long.", "{S} has a length of {o}.", "{P} course measures {o}."),
        ("How long is {}?", "What is the length of {}?"),
    ),
    Relation(
        "mouth", Kind.RIVER, Kind.TOWN, "{s} reaches the sea at {o}.",
        ("{S} reaches the sea at {o}.", "{S} flows into the sea at {o}.",
         "{S} ends at {o}, where it meets the sea."),
        ("At which town does {} reach the sea?", "Where does {} reach the sea?",
         "Which town lies at the mouth of {}?"),
        ("the town at the mouth of {}", "the town where {} reaches the sea"),
    ),
    Relation(
        "held_in", Kind.FESTIVAL, Kind.TOWN, "{s} is held in {o}.",
        ("{S} is held in {o}.", "{S} takes place in {o}.", "{P} home is {o}."),
        ("In which town is {} held?", "Where is {} held?", "Which town hosts {}?"),
        ("the town where {} is held", "the town that hosts {}"),
    ),
    Relation(
        "first_held", Kind.FESTIVAL, Kind.VALUE, "{s} was first held in {o}.",
        ("{S} was first held in {o}.", "{S} goes back to {o}.", "{S} has been held since {o}."),
        ("In which year was {} first held?", "When was {} first held?", "What is the founding year of {}?"),
    ),
    Relation(
        "initiator", Kind.FESTIVAL, Kind.PERSON, "{s} was started by {o}.",
        ("{S} was started by {o}.", "{S} was the idea of {o}.", "{S} owes its existence to {o}."),
        ("Who started {}?", "Whose idea was {}?", "Who was the initiator of {}?"),
        ("the person who started {}", "the initiator of {}"),
    ),
    Relation(
        "winners", Kind.FESTIVAL, Kind.PERSON, "The winners of {s} were {o}.",
        ("{P} prize was won by {o}.", "{P} past winners are {o}.", "Among {p} prize winners were {o}."),
        ("Who were the winners of {}?",),
        member="winner of",
    ),
    Relation(
        "fought_near", Kind.BATTLE, Kind.TOWN, "{s} was fought near {o}.",
        ("{S} was fought near {o}.", "{S} took place outside {o}.", "{P} scene was the plain before {o}."),
        ("Near which town was {} fought?", "Where was {} fought?",
         "Which town is closest to the field of {}?"),
        ("the town near which {} was fought", "the town closest to the field of {}"),
    ),
    Relation(
        "fought", Kind.BATTLE, Kind.VALUE, "{s} was fought in {o}.",
        ("{S} was fought in {o}.", "{S} took place in {o}.", "{P} year was {o}."),
        ("In which year was {} fought?", "When was {} fought?", "What is the year of {}?"),
    ),
    Relation(
        "victor", Kind.BATTLE, Kind.PERSON, "{s} was won by {o}.",
        ("{S} was won by the troops of {o}.", "{S} ended in victory for {o}.", "{P} victor was {o}."),
        ("Who won {}?", "By whom was {} won?", "Who was the victor of {}?"),
        ("the victor of {}", "the person who won {}"),
    ),
)  # fmt: skip

RELATIONS = {relation.name: relation for relation in _RELATIONS}


def relations_of(kind: Kind) -> tuple[Relation, ...]:
    """Return the relations that pages of this kind tell, in the table's order."""
    return tuple(relation for relation in _RELATIONS if relation.domain is kind)


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

    path: tuple[str, ...]
    pick: Literal["least", "greatest", "same"]
    asks: tuple[str, ...]
    verdict: str
    otherwise: str = ""


COMPARISONS = (
    ComparisonRule(
        ("birth_year",), "least", ("Who was born earlier, {} or {}?", "Who is older, {} or {}?"),
        "{} was born earlier",
    ),
    ComparisonRule(("birth_year",), "greatest", ("Who was born later, {} or {}?",), "{} was born later"),
    ComparisonRule(
        ("published",), "least",
        ("Which book was published first, {} or {}?", "Which appeared earlier, {} or {}?"),
        "{} came first",
    ),
    ComparisonRule(
        ("founded",), "least", ("Which company was founded first, {} or {}?", "Which is older, {} or {}?"),
        "{} is older",
    ),
    ComparisonRule(
        ("population",), "greatest",
        ("Which town has more inhabitants, {} or {}?", "Which is larger, {} or {}?"), "{} is larger",
    ),
    ComparisonRule(("length",), "greatest", ("Which river is longer, {} or {}?",), "{} is longer"),
    ComparisonRule(
        ("author", "birth_year"), "least", ("Which book has the older author, {} or {}?",),
        "{} has the older author",
    ),
    ComparisonRule(
        ("founder", "birth_year"), "least", ("Which company had the older founder, {} or {}?",),
        "{} had the older founder",
    ),
    ComparisonRule(
        ("born_in",), "same", ("Were {} and {} born in the same town?",),
        "they were born in the same town", "they were not born in the same town",
    ),
    ComparisonRule(
        ("profession",), "same", ("Did {} and {} have the same profession?",),
        "they had the same profession", "they did not have the same profession",
    ),
    ComparisonRule(
        ("employer",), "same", ("Did {} and {} work for the same company?",),
        "they worked for the same company", "they did not work for the same company",
    ),
    ComparisonRule(
        ("publisher",), "same", ("Were {} and {} published by the same company?",),
        "they were published by the same company", "they were not published by the same company",
    ),
    ComparisonRule(
        ("river",), "same", ("Do {} and {} stand on the same river?",), "they stand on the same river",
        "they do not stand on the same river",
    ),
    ComparisonRule(
        ("born_in", "region"), "same", ("Were {} and {} born in the same region?",),
        "they were born in the same region", "they were not born in the same region",
    ),
    ComparisonRule(
        ("author", "born_in"), "same", ("Were the authors of {} and {} born in the same town?",),
        "they were born in the same town", "they were not born in the same town",
    ),
    ComparisonRule(
        ("seat", "region"), "same", ("Are {} and {} based in the same region?",),
        "they are based in the same region", "they are not based in the same region",
    ),
)  # fmt: skip

FILTERS = ("born_in", "employer", "mentor")
"""By which an intersection question picks one member of a set: "Which director of X was born in Y?"."""
