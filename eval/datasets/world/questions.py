"""Ask about a province: chains, comparisons and intersections.

Each is answered by executing its relations over the facts, so the gold answers and decompositions are right
by construction.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache

from corag.core.errors import DataError
from corag.core.types import GoldHop, Passage, Question
from eval.datasets.world.facts import Entity, Facts, value
from eval.datasets.world.passages import listing, sentence
from eval.datasets.world.relations import COMPARISONS, FILTERS, RELATIONS, ComparisonRule, Kind, relations_of

PLAN = (
    "bridge 2", "comparison", "bridge 3", "bridge 1", "intersection", "bridge 2", "comparison", "bridge 4",
    "bridge 2", "bridge 3", "comparison", "bridge 1", "bridge 2", "intersection", "bridge 3", "bridge 2",
    "comparison", "bridge 1", "bridge 4", "bridge 2",
)  # fmt: skip
"""The kinds of questions in turn, so that any twenty neighbours are a fair mixture."""

MAX_QUESTIONS = 200
"""Questions that every province can surely be asked."""

_TRIES = 5_000  # draws for one question: most break off or are asked already
_LONG_PHRASE = 7  # words: a longer phrase only fills a slot at the end of a question, where it stays readable


@dataclass(frozen=True, slots=True)
class RelationStep:
    """One executed step, from the subject's page: what the relation leads to from the subject.

    ``which`` is set when the step is asked the other way round: of which thing is this true? Then the subject
    is the answer.
    """

    subject: Entity
    relation: str
    objects: tuple[Entity, ...]
    which: str = ""

    @property
    def statement(self) -> str:
        """The step as a sentence."""
        return sentence(
            RELATIONS[self.relation].statement.format(s=self.subject.mention, o=listing(self.objects))
        )

    def gold(self, pages: Mapping[str, Passage]) -> GoldHop:
        """Return the step as a sub-question with its answer and passage."""
        ask = self.which or RELATIONS[self.relation].asks[0].format(self.subject.mention)
        targets = (self.subject,) if self.which else self.objects
        answer = targets[0].name if len(targets) == 1 else listing(targets)
        return GoldHop(ask, answer, pages[self.subject.name].id)


@dataclass(frozen=True, slots=True)
class WorldQuestion:
    """A question with its executed steps.

    ``verdict`` is the conclusion that no passage tells, if one is needed.
    """

    text: str
    kind: str
    answer: Entity
    hops: tuple[RelationStep, ...]
    verdict: str = ""

    @property
    def key(self) -> tuple[str, ...]:
        """What makes two questions the same whatever their wording."""
        return (self.kind, self.answer.name, *(f"{hop.subject.name}/{hop.relation}" for hop in self.hops))

    @property
    def thoughts(self) -> str:
        """The whole chain of thought: a sentence per hop that names the next hop's thing, then the answer."""
        verdict = [f"Thus, {self.verdict}."] if self.verdict else []
        return " ".join(
            [*(hop.statement for hop in self.hops), *verdict, f"So the answer is: {self.answer.name}."]
        )

    def question(self, name: str, pages: Mapping[str, Passage]) -> Question:
        """Return the question under this id, with the ids of the passages that tell its hops."""
        gold = tuple(hop.gold(pages) for hop in self.hops)
        return Question(
            id=name,
            text=self.text,
            answers=(self.answer.name, *self.answer.aliases),
            supporting=tuple(dict.fromkeys(hop.passage_id for hop in gold)),
            kind=self.kind,
            hops=len(gold),
            decomposition=gold,
        )


def state_fact(sub_question: str, answer: str, before: Sequence[str]) -> str:
    """Return the plain statement that answers a canonical sub-question of the world, "" for any other.

    ``before``: the answers to the hops before, among them the things of which one is asked for.

    >>> state_fact("Who wrote the Ballad?", "Mara Velden", [])
    'The author of the Ballad is Mara Velden.'
    """
    for members in before:  # asked the other way round: see ``RelationStep.which``
        _, which, clause = sub_question.partition(f"Which of {members} ")
        if which:
            return sentence(f"{answer} {clause.removesuffix('?')}.")
    for pattern, statement in _canonical():
        if match := pattern.fullmatch(sub_question):
            return sentence(statement.format(s=match[1], o=answer))
    return ""


@cache
def _canonical() -> list[tuple[re.Pattern[str], str]]:
    """How canonical sub-questions are asked and answered, the longest wording first."""
    asks = sorted(
        ((each.asks[0], each.statement) for each in RELATIONS.values()), key=lambda each: -len(each[0])
    )
    return [(re.compile(re.escape(ask).replace(r"\{\}", "(.+)")), statement) for ask, statement in asks]


class QuestionWriter:
    """Draws questions about one province."""

    def __init__(self, facts: Facts, rng: random.Random) -> None:
        self.facts, self.rng = facts, rng
        self.by_kind: dict[str, list[Entity]] = {
            kind: entities for kind in Kind if (entities := facts.of_kind(kind))
        }

    def ask(self, count: int, first: int) -> Iterator[WorldQuestion]:
        """Yield ``count`` different questions, following :data:`PLAN` from place ``first`` on."""
        texts = set()
        for number in range(first, first + count):
            kind, _, hops = PLAN[number % len(PLAN)].partition(" ")
            for _ in range(_TRIES):
                question = self.draw(kind, int(hops or 0))
                if question and question.key not in texts:
                    break
            else:
                raise DataError(
                    f"a province of the world cannot be asked {count} questions: ask fewer or enlarge the "
                    "world."
                )
            texts.add(question.key)
            yield question

    def draw(self, kind: str, hops: int) -> WorldQuestion | None:
        """Try once to make a question of this kind."""
        if kind == "bridge":
            return self.bridge(hops)
        return self.comparison(self.rng.choice(COMPARISONS)) if kind == "comparison" else self.intersection()

    def bridge(self, length: int) -> WorldQuestion | None:
        """Walk from one thing along relations that lead to one thing each.

        The question names only the first.
        """
        anchor = self.rng.choice(self.by_kind[self.rng.choice(list(self.by_kind))])
        hops: list[RelationStep] = []
        subject = anchor
        for depth in range(length, 0, -1):
            fits = [
                relation
                for relation in relations_of(subject.kind)
                if not relation.member and (relation.nouns or depth == 1)
            ]
            name = self.rng.choice(fits).name
            objects = self.facts.follow(subject, name)
            if len(objects) != 1:
                return None
            hops.append(RelationStep(subject, name, objects))
            subject = objects[0]
        if not self._needs_every_hop(anchor, hops):
            return None
        phrase = anchor.mention
        for hop in hops[:-1]:
            phrase = self._fill(RELATIONS[hop.relation].nouns, phrase, "{}")
        text = sentence(self._fill(RELATIONS[hops[-1].relation].asks, phrase, "{}?"))
        return WorldQuestion(text, "bridge" if length > 1 else "single", subject, tuple(hops))

    def _needs_every_hop(self, anchor: Entity, hops: list[RelationStep]) -> bool:
        """Whether no hop can be skipped.

        Nothing is visited twice, the answer is not in the question, and no later page names the anchor.
        """
        subjects = [hop.subject.name for hop in hops]
        answer = hops[-1].objects[0]
        named_later = [
            entity.name
            for name in subjects[1:]
            for entities in self.facts.about[name].values()
            for entity in entities
        ] + subjects[1:]
        return (
            len(set(subjects)) == len(subjects)
            and answer.name not in subjects
            and answer.name not in anchor.name
            and not any(anchor.name in name for name in named_later)
        )

    def _fill(self, templates: Sequence[str], phrase: str, at_end: str) -> str:
        """Put a phrase into one of the templates: a long one into one that ends with it."""
        fits = [text for text in templates if len(phrase.split()) <= _LONG_PHRASE or text.endswith(at_end)]
        return self.rng.choice(fits).format(phrase)

    def _chain(self, subject: Entity, path: Sequence[str]) -> tuple[RelationStep, ...]:
        """Execute a path; () if it breaks off."""
        hops: list[RelationStep] = []
        for name in path:
            objects = self.facts.follow(subject, name)
            if len(objects) != 1:
                return ()
            hops.append(RelationStep(subject, name, objects))
            subject = objects[0]
        return tuple(hops)

    def comparison(self, rule: ComparisonRule) -> WorldQuestion | None:
        """Compare two things of a kind by what the rule's path leads to; yes and no are equally frequent."""
        entities = self.by_kind[RELATIONS[rule.path[0]].domain]
        wants_equal = rule.pick == "same" and self.rng.random() < 0.5
        for _ in range(50):  # "yes" is rare among random pairs: a few draws bring it about
            pair = self.rng.sample(entities, 2)
            chains = [self._chain(entity, rule.path) for entity in pair]
            hops = (*chains[0], *chains[1])
            if not all(chains) or len({hop.subject.name for hop in hops}) < len(hops):
                continue
            first, second = (chain[-1].objects[0] for chain in chains)
            if (first == second) == wants_equal and (rule.pick == "same" or first.number != second.number):
                break
        else:
            return None
        text = sentence(self.rng.choice(rule.asks).format(*(entity.mention for entity in pair)))
        if rule.pick == "same":
            return WorldQuestion(
                text,
                "comparison",
                value("yes" if wants_equal else "no"),
                hops,
                rule.verdict if wants_equal else rule.otherwise,
            )
        answer = pair[(first.number < second.number) == (rule.pick == "greatest")]
        return WorldQuestion(text, "comparison", answer, hops, rule.verdict.format(answer.mention))

    def intersection(self) -> WorldQuestion | None:
        """Ask for the one member of a set of which something else is true."""
        owner = self.rng.choice(self.by_kind[self.rng.choice((Kind.COMPANY, Kind.FESTIVAL))])
        group = next(relation for relation in relations_of(owner.kind) if relation.member)
        members = self.facts.follow(owner, group.name)
        condition = RELATIONS[self.rng.choice(FILTERS)]
        member = self.rng.choice(members)
        value = self.facts.follow(member, condition.name)
        # The condition must pick one member, and no more: else the question had several answers.
        if not value or [m for m in members if self.facts.follow(m, condition.name) == value] != [member]:
            return None
        clause = condition.statement.format(s="", o=listing(value)).strip(" .")
        ask = self.rng.choice(
            ("Which {m} {w} {c}?", "Who {c} and was a {m} {w}?", "Which person was a {m} {w} and {c}?")
        )
        text = sentence(ask.format(m=group.member, w=owner.mention, c=clause))
        which = f"Which of {listing(members)} {clause}?"
        hops = RelationStep(owner, group.name, members), RelationStep(member, condition.name, value, which)
        return WorldQuestion(text, "intersection", member, hops)
