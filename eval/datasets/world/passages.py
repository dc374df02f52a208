"""Write the passages of a province: every thing's page with its facts, and some that answer nothing."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from string import Formatter

from corag.core.types import Passage, passage_id
from eval.datasets.world.facts import ENTITIES, Entity, Facts
from eval.datasets.world.relations import RELATIONS, WORLD, Kind

PASSAGES = 100
"""Passages per province."""

LEAST_WORDS, MOST_WORDS = 42, 62
"""A page is filled up to a length drawn from this range; facts may carry it a few words further."""


def listing(entities: Sequence[Entity]) -> str:
    """Return "A", "A and B" or "A, B and C"."""
    *front, last = (entity.mention for entity in entities)
    return f"{', '.join(front)} and {last}" if front else last


def sentence(text: str) -> str:
    """Begin with a capital letter and write "an" before a vowel."""
    text = re.sub(r"\b([Aa]) (?=[aeiou])", r"\1n ", text)
    return text[0].upper() + text[1:]


@cache
def _fields(template: str) -> set[str]:
    return {name for _, name, _, _ in Formatter().parse(template) if name}


def _possessive(word: str) -> str:
    return {"she": "her", "he": "his", "it": "its"}.get(word) or (
        f"{word}'" if word.endswith("s") else f"{word}'s"
    )


class _Writer:
    """Writes the pages of one province."""

    def __init__(self, facts: Facts, rng: random.Random, references: bool) -> None:
        self.facts, self.rng, self.references = facts, rng, references

    def words(self) -> dict[str, str]:
        """Choose the small words of one passage."""
        return {word: self.rng.choice(choices) for word, choices in WORLD["words"].items()}

    def page(self, entity: Entity) -> Passage:
        about = self.facts.about[entity.name]
        slots = {relation: listing(objects) for relation, objects in about.items()}
        opening = self.rng.choice(
            [text for text in WORLD["openings"][entity.kind] if _fields(text) <= {"name", "gloss", *slots}]
        )
        rest = [relation for relation in about if relation not in _fields(opening)]
        self.rng.shuffle(rest)
        clauses = [
            self.rng.choice(RELATIONS[relation].prose).replace("{o}", slots[relation]) for relation in rest
        ]

        # People are called in full once, at the beginning, and by their usual name on other pages.
        full_name = entity.aliases[0] if entity.kind is Kind.PERSON else entity.mention
        text = opening.format(name=full_name, gloss=entity.gloss, **slots)
        body = self.join(clauses)
        length = self.rng.randint(LEAST_WORDS, MOST_WORDS)
        colour = WORLD["colour"][entity.kind]
        fillers = self.rng.sample(colour, len(colour))
        while len(" ".join([text, *body]).split()) < length:
            body.insert(self.rng.randint(min(1, len(body)), len(body)), fillers.pop())
        further = self.see_also(about) if self.references else []
        return _passage(entity.name, " ".join([sentence(text), *self.refer(entity, body), *further]))

    def see_also(self, about: Mapping[str, Sequence[Entity]]) -> list[str]:
        """Refer to the pages of the things that a page tells of, in a sentence."""
        mentioned_first = dict.fromkeys(
            each.mention for mentions in about.values() for each in mentions if self.has_page(each)
        )
        return [sentence("; ".join(f"see also {name}" for name in mentioned_first)) + "."] * bool(
            mentioned_first
        )

    def has_page(self, entity: Entity) -> bool:
        """Whether a thing is more than a value."""
        return entity.name in self.facts.about

    def join(self, clauses: Sequence[str]) -> list[str]:
        """Sometimes make one sentence of two that have the same subject."""
        sentences: list[str] = []
        for clause in clauses:
            mergeable = (
                sentences
                and sentences[-1].startswith("{S}")
                and clause.startswith("{S}")
                and " and " not in sentences[-1]
            )
            if mergeable and self.rng.random() < 0.4:  # often enough that a fact is not always a sentence
                sentences[-1] = sentences[-1][:-1] + clause.replace("{S}", " and", 1)
            else:
                sentences.append(clause)
        return sentences

    def refer(self, entity: Entity, clauses: Sequence[str]) -> Iterator[str]:
        """Fill in words for the subject: mostly a pronoun, sometimes a noun or the name.

        Two sentences in a row may begin with the pronoun, never with the same noun.
        """
        pronoun = ("she" if entity.female else "he") if entity.kind is Kind.PERSON else "it"
        noun = WORLD["nouns"].get(entity.kind) or entity.name.split()[-1]
        choices, before, words = [pronoun, pronoun, noun, entity.mention], entity.mention, self.words()
        for clause in clauses:
            before = self.rng.choice([word for word in choices if word == pronoun or word != before])
            owner = noun if before == entity.mention else before
            possessive = _possessive(owner if clause.startswith("{P}") else pronoun)
            yield sentence(clause.format(S=before, P=possessive, p=_possessive(pronoun), **words))

    def landmark(self, entity: Entity) -> Passage:
        landmark = self.rng.choice(WORLD["landmarks"][entity.kind])
        text = self.rng.choice(landmark["texts"]).format(name=entity.name, gloss=entity.gloss, **self.words())
        return _passage(landmark["title"].format(name=entity.name), text)

    def family(self, name: str, bearers: Sequence[Entity]) -> Passage:
        text = (
            f"{name} is a family name. People who have borne it include {listing(bearers)}. The name is said "
            "to come from a word for a seller of {thing}; others derive it from an old name of the "
            "{animal}. It is often misspelt in church books."
        )
        return _passage(f"{name} (family name)", text.format(**self.words()))


def _passage(title: str, text: str) -> Passage:
    text = sentence(text)
    return Passage(passage_id(title, text), title, text)


def write_passages(
    facts: Facts, rng: random.Random, references: bool = False
) -> tuple[dict[str, Passage], list[Passage]]:
    """Return the pages of a province's things by name, and its distractors: :data:`PASSAGES` in all.

    ``references``: pages end in "See also ..." with the things that they tell of; all else is the same.
    """
    writer = _Writer(facts, rng, references)
    pages = {entity.name: writer.page(entity) for entity in facts.entities}
    families: dict[str, list[Entity]] = {}
    for person in facts.of_kind(Kind.PERSON):
        families.setdefault(person.name.split()[-1], []).append(person)
    counts = {Kind.TOWN: 4, Kind.PERSON: 3, Kind.BOOK: 3}
    landmark_entities = [
        entity for kind, count in counts.items() for entity in rng.sample(facts.of_kind(kind), count)
    ]
    distractors = [writer.landmark(entity) for entity in landmark_entities]
    surnames = rng.sample(list(families), PASSAGES - ENTITIES - len(distractors))
    return pages, distractors + [writer.family(name, families[name]) for name in surnames]
