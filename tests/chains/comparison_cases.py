"""Comparison questions with an oracle that a person can check: what the rules of comparisons may say of them.

A case is put together from rows of comparison_rows.yaml, each of which says by its list whether it tells
something for sure. Only where every row does, an answer is right; what has another row in it is for the
model. The rows were written from 2WikiMultihopQA's templates, before the rules were read.
"""

from __future__ import annotations

import datetime
import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import yaml

from corag.chains.chain import Hop


def _rows(table: Any) -> Any:
    """Return a table's blocks of lines as lists of rows."""
    if isinstance(table, dict):
        return {name: _rows(rows) for name, rows in table.items()}
    return table.removesuffix("\n").split("\n") if isinstance(table, str) else table


ROWS = _rows(yaml.safe_load(Path(__file__).with_name("comparison_rows.yaml").read_text(encoding="utf-8")))
MONTHS = "January February March April May June July August September October November December".split()
# The same question in other clothes: it means what it meant.
CLOTHES: list[Callable[[str], str]] = [
    lambda question: question,
    lambda question: question.removesuffix("?"),
    lambda question: question.replace(", ", ": ", 1),
    lambda question: f"  {question.replace(' ', '  ', 3)} ",
    lambda question: question[0].lower() + question[1:],
    lambda question: f"Question: {question}",
]
# Questions for the model whose candidates can be asked for, in vain.
MAY_ASK = (
    "Who is older, {a} or the father of {b}?",
    "Who is older, {a} or {b}'s father?",
    "Who is older, the wife of {a} or the wife of {b}?",
    "Apart from {a}, who was born first, {c} or {b}?",
    "Are {a} and {b}'s wife of the same nationality?",
)


@dataclass(frozen=True)
class Case:
    """A question and its hops.

    ``right``: the only answer that may come; None: none may. ``plain``: nothing in it is odd, so a rule that
    leaves such cases to the model is of no use. ``silent``: the question itself is for the model, so nothing
    may be asked for it.
    """

    question: str
    hops: list[Hop]
    right: str | None
    plain: bool
    silent: bool


@dataclass(frozen=True)
class Value:
    """What hops tell of a candidate, for sure.

    ``date``: (year,), (year, month) or (year, month, day), a year before Christ negative. ``death``: the
    second date of a life. ``countries``: one of these. ``director``: the person that it is of, if any.
    """

    date: tuple[int, ...] = ()
    death: tuple[int, ...] = ()
    countries: frozenset[str] = frozenset()
    director: str = ""


class Teller:
    """Tells hops, and knows what it told. ``hostile``: how often it takes a row that is not plain."""

    def __init__(self, draw: random.Random, hostile: float) -> None:
        self.draw, self.hostile = draw, hostile
        self.hops: list[Hop] = []
        self.odd = False
        """Whether any row was not a plain one."""

    def tell(self, what: str, name: str, other: str) -> Value | None:
        """Add hops for ``what`` of ``name``; return its value, None where they do not tell it for sure."""
        if what == "life":
            birth = self.tell("birth", name, other)
            death = self.tell("death", name, other)
            return replace(birth, death=death.date) if birth and death else None
        if what.startswith("director "):
            return self._of_director(what.removeprefix("director "), name, other)
        sub_query = self.draw.choice(ROWS["asked"][what]).format(x=name)
        answer, value = self._answer(what, name, other)
        if self._chance(self.hostile / 4):  # a good answer to another question
            sub_query, value = self._other_question(what, name), None
        refused = self._chance(self.hostile / 10)
        self.hops.append(Hop(sub_query, answer, refused))
        if refused:
            return None
        if self._chance(self.hostile / 8):  # something else of the same one
            self.hops.append(Hop(self._other_question(what, name), self._answer(what, name, other)[0], False))
        if self._chance(self.hostile / 8):  # the same again, with another answer
            answer, again = self._answer(what, name, other)
            self.hops.append(Hop(sub_query, answer, False))
            return _both(value, again)
        return value

    def _of_director(self, what: str, film: str, other: str) -> Value | None:
        if self.draw.random() < 0.2:  # in one hop
            asked = self.draw.choice(ROWS["asked"][what][:2]).format(x=f"the director of {film}")
            answer, value = self._answer(what, f"The director of {film}", f"the director of {other}")
            self.hops.append(Hop(asked, answer, False))
            return value
        director = self.tell("director", film, other)
        name = director.director if director else self.draw.choice(ROWS["people"])
        value = self.tell(
            what, name, self.draw.choice([person for person in ROWS["people"] if person != name])
        )
        return replace(value, director=name) if director and value else None

    def _answer(self, what: str, name: str, other: str) -> tuple[str, Value | None]:
        """Return an answer for ``what`` of ``name`` and what it means."""
        table = (
            self.draw.choice(["not_told", "not_told", "told_among"]) if self._chance(self.hostile) else "told"
        )
        year, another = self.draw.sample(
            range(1880, 1990) if self.draw.random() < 0.7 else range(300, 2020), 2
        )
        month, day = self.draw.randint(1, 12), self.draw.randint(4, 28)
        words: dict[str, Any] = {"n": name, "o": other, "y": year, "z": another}
        words |= {"m": month, "M": MONTHS[month - 1], "d": day}
        kind = (
            "country"
            if what in ("nationality", "origin", "place")
            else "date"
            if what != "director"
            else what
        )
        value: Value | None = None
        if kind == "director":
            words["v"], words["w"] = self.draw.sample(ROWS["people"], 2)
            value = Value(director=words["v"])
        elif kind == "country":
            country = "US" if self.draw.random() < 0.4 else self.draw.choice(list(ROWS["countries"]))
            words["v"] = self.draw.choice(ROWS["countries"][country])
            words["u"] = self.draw.choice(
                [names[0] for key, names in ROWS["countries"].items() if key != country]
            )
            value = Value(countries=frozenset(country.split()))
            self.odd = self.odd or " " in country
        elif table != "told" and self._chance(0.1):
            row = self.draw.choice(list(ROWS["eras"]))
            return row.format(y=day * 10), Value(date=(ROWS["eras"][row] * day * 10,))
        general = [] if kind == what else ROWS[table].get(kind, [])
        row = self.draw.choice(general + 2 * ROWS[table][what])
        if table == "not_told":
            return row.format(**words), None
        if kind == "date":
            value = Value(
                date=(year, month, day) if "{d" in row else (year, month) if "{M" in row else (year,)
            )
        return row.format(**words), value

    def _other_question(self, what: str, name: str) -> str:
        return str(self.draw.choice(ROWS["not_asked"][what])).format(x=name)

    def _chance(self, share: float) -> bool:
        odd = self.draw.random() < share
        self.odd = self.odd or odd
        return odd


def _both(value: Value | None, again: Value | None) -> Value | None:
    """Return what two answers to one question tell together; None: they disagree, or one is not sure."""
    if value is None or again is None:
        return None
    shorter, longer = sorted((value, again), key=lambda value: len(value.date))
    return longer if replace(longer, date=longer.date[: len(shorter.date)]) == shorter else None


def right_answer(kind: str, a: str, b: str, first: Value | None, second: Value | None) -> str | None:
    """Return which of ``a`` and ``b`` it is, or "yes" or "no", by their values; None: these do not tell."""
    if first is None or second is None:
        return None
    if kind == "same":
        if not first.countries & second.countries:
            return "no"
        return "yes" if first.countries == second.countries else None
    if first.director and first.director == second.director:
        return None
    if kind == "longer":
        (least, most), (least_too, most_too) = (_days_lived(value) for value in (first, second))
        if min(most, most_too) < 0 or max(least, least_too) > 110 * 365:
            return None  # no lives
        return a if least > most_too else b if least_too > most else None
    for one, two in zip(first.date, second.date, strict=False):
        if one != two:
            return a if (one < two) == (kind == "earlier") else b
    return None


def _days_lived(value: Value) -> tuple[float, float]:
    """Return how many days a life had, at least and at most, about."""

    def days(date: tuple[int, ...], rest: tuple[int, int]) -> float:
        year, month, day = (*date, *rest[len(date) - 1 :])
        return 365.25 * year + datetime.date(2000, month, day).timetuple().tm_yday

    (born, died), first, last = (value.date, value.death), (1, 1), (12, 28)
    return days(died, first) - days(born, last), days(died, last) - days(born, first)


def make_case(number: int) -> Case:
    """Return the case of this number."""
    draw = random.Random(number)
    means_else = draw.random() < 0.25
    table = ROWS["other_questions" if means_else else "questions"]
    group = draw.choice([group for group, rows in table.items() for _ in rows])
    question = draw.choice(table[group])
    what, kind = (group, "") if means_else else group.rsplit(" ", 1)
    films = what.split()[0] in ("release", "director", "origin")
    a, b, c, d = draw.sample(ROWS["places" if what == "place" else "films" if films else "people"], 4)
    teller = Teller(draw, draw.choice([0, 0, 0.3] if means_else else [0, 0.3, 0.6]))
    first, second = teller.tell(what, a, b), teller.tell(what, b, a)
    if draw.random() < 0.2:
        teller.hops.insert(
            draw.randrange(len(teller.hops) + 1), Hop("When was Nils Holm born?", "1950", False)
        )
    clothes = draw.choice([CLOTHES[0], CLOTHES[0], *CLOTHES])
    right = None if means_else else right_answer(kind, a, b, first, second)
    plain = right is not None and not teller.odd and clothes is CLOTHES[0]
    text = clothes(question).format(a=a, b=b, c=c, d=d)
    return Case(text, teller.hops, right, plain, means_else and question not in MAY_ASK)
