"""The facts of one province: about a hundred things, named and related.

They are drawn from the seed and the province's number alone, and no relation leaves its province. So
provinces can be made in any order, in any process, and forgotten once written.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field

from corag.core.seeds import derive_seed
from eval.datasets.world import names
from eval.datasets.world.relations import WORLD, Kind

# How many of each a province has; NAMESAKES of the towns are called after another one. People share the names
# of FAMILIES.
REGIONS, RIVERS, TOWNS, NAMESAKES, PEOPLE, FAMILIES = 2, 3, 8, 2, 34, 14
COMPANIES, BOOKS, FESTIVALS, BATTLES = 10, 20, 5, 4
ENTITIES = REGIONS + RIVERS + TOWNS + PEOPLE + COMPANIES + BOOKS + FESTIVALS + BATTLES

_THINGS, _NAMES = WORLD["things"], WORLD["names"]


@dataclass(frozen=True, slots=True)
class Entity:
    """A thing of the world.

    ``gloss`` says what it is ("novel"); ``number`` is the number behind a value, for comparing.
    """

    kind: Kind
    name: str
    aliases: tuple[str, ...] = ()
    gloss: str = ""
    female: bool = False
    number: int = 0

    @property
    def mention(self) -> str:
        """The name as it stands in the middle of a sentence."""
        return f"the {self.name}" if self.kind in (Kind.RIVER, Kind.FESTIVAL, Kind.BATTLE) else self.name


@dataclass(slots=True)
class Facts:
    """The things of one province and what is true of them.

    ``about[name][relation]`` are the things that a relation leads to.
    """

    entities: list[Entity] = field(default_factory=list)
    about: dict[str, dict[str, tuple[Entity, ...]]] = field(default_factory=dict)

    def add(self, entities: Sequence[Entity]) -> Sequence[Entity]:
        """Add things of which nothing is known yet."""
        self.entities.extend(entities)
        self.about.update((entity.name, {}) for entity in entities)
        return entities

    def state(self, subject: Entity, relation: str, *objects: Entity) -> None:
        """State a fact."""
        self.about[subject.name][relation] = objects

    def follow(self, subject: Entity, relation: str) -> tuple[Entity, ...]:
        """Execute one step of a relation path: all things that the relation leads to, () if none."""
        return self.about[subject.name].get(relation, ())

    def year(self, subject: Entity, relation: str) -> int:
        """Return the year that a relation leads to."""
        return self.follow(subject, relation)[0].number

    def of_kind(self, kind: Kind) -> list[Entity]:
        """Return the things of a kind, in order."""
        return [entity for entity in self.entities if entity.kind is kind]


def value(text: str, number: int = 0, *aliases: str) -> Entity:
    """Make a value such as a year."""
    return Entity(Kind.VALUE, text, aliases, number=number)


def build(seed: int, number: int) -> Facts:
    """Return the facts of province ``number`` of the world ``seed``."""
    builder = _Builder(seed, number)
    builder.land()  # in an order in which all that a step needs is there: towns, then people, then the rest
    builder.people()
    builder.companies()
    builder.careers()
    builder.books()
    builder.gatherings()
    return builder.facts


class _Builder:
    """Draws a province step by step; each step relates its things to those of the steps before."""

    def __init__(self, seed: int, number: int) -> None:
        self.seed, self.number = seed, number
        self.rng = random.Random(derive_seed(seed, "province", number))
        self.facts = Facts()

    def take(self, pool: str, count: int) -> list[str]:
        """Take the province's own names from a pool."""
        return [names.POOLS[pool].name(self.number * count + i, self.seed) for i in range(count)]

    def any_of(self, kind: Kind) -> Entity:
        return self.rng.choice(self.facts.of_kind(kind))

    def state_year(self, subject: Entity, relation: str, after: Entity, earliest: int, latest: int) -> int:
        """State a year in which ``after`` was between so many years old."""
        year = self.facts.year(after, "birth_year") + self.rng.randrange(earliest, latest)
        self.facts.state(subject, relation, value(str(year), year))
        return year

    def land(self) -> None:
        facts, rng = self.facts, self.rng
        regions = facts.add([Entity(Kind.REGION, name) for name in self.take("region", REGIONS)])
        stems = self.take("river", RIVERS)
        rivers = facts.add([Entity(Kind.RIVER, f"River {stem}", (stem, f"{stem} River")) for stem in stems])
        plain = self.take("town", TOWNS - NAMESAKES)
        namesakes = [
            pattern.format(name)
            for pattern, name in zip(rng.sample(_THINGS["namesakes"], NAMESAKES), plain, strict=False)
        ]
        towns = facts.add([Entity(Kind.TOWN, name) for name in plain + namesakes])

        for i, (town, hundreds) in enumerate(zip(towns, rng.sample(range(9, 900), TOWNS), strict=True)):
            people = hundreds * 100 + rng.randrange(100)
            facts.state(town, "region", regions[i % REGIONS])
            facts.state(town, "river", rng.choice(rivers))
            facts.state(town, "population", value(f"{people:,}", people, str(people)))
        for i, (region, product) in enumerate(
            zip(regions, rng.sample(_THINGS["products"], REGIONS), strict=True)
        ):
            facts.state(region, "capital", rng.choice(towns[i::REGIONS]))
            facts.state(region, "product", value(product))
        sources = self.take("spring", RIVERS)
        for river, source, length in zip(rivers, sources, rng.sample(range(60, 900), RIVERS), strict=True):
            facts.state(river, "source", value(source))
            facts.state(river, "length", value(f"{length} kilometres", length, f"{length} km", str(length)))
            facts.state(river, "mouth", rng.choice(towns))

    def people(self) -> None:
        facts, rng = self.facts, self.rng
        families = self.take("family", FAMILIES)
        first_year = rng.randrange(1780, 1900)
        pool = [(name, True) for name in _NAMES["female"]] + [(name, False) for name in _NAMES["male"]]
        for i, (name, female) in enumerate(rng.sample(pool, PEOPLE)):
            middle = rng.choice([other for other in _NAMES["female" if female else "male"] if other != name])
            family = families[i % FAMILIES]
            full_name = f"{name} {middle} {family}"
            (person,) = facts.add([Entity(Kind.PERSON, f"{name} {family}", (full_name,), female=female)])
            year = first_year + rng.randrange(60)
            facts.state(person, "birth_year", value(str(year), year))
            facts.state(person, "born_in", self.any_of(Kind.TOWN))
            facts.state(person, "profession", value(rng.choice(_THINGS["professions"])))
        for town in facts.of_kind(Kind.TOWN):
            facts.state(town, "mayor", self.any_of(Kind.PERSON))
        for region in facts.of_kind(Kind.REGION):
            facts.state(region, "governor", self.any_of(Kind.PERSON))

    def grown_up_around(self, year: int) -> list[Entity]:
        """Choose three different people whose age fits a year best or nearly so: about 35 then."""
        people = self.facts.of_kind(Kind.PERSON)
        people.sort(key=lambda person: abs(year - 35 - self.facts.year(person, "birth_year")))
        return self.rng.sample(people[:12], 3)

    def companies(self) -> None:
        facts, rng = self.facts, self.rng
        trades = [*_THINGS["presses"], *rng.sample(_THINGS["trades"], COMPANIES - len(_THINGS["presses"]))]
        stems = self.take("company", COMPANIES)
        firms = [
            Entity(Kind.COMPANY, f"{stem} {noun}", (stem,), gloss)
            for stem, (noun, gloss) in zip(stems, trades, strict=True)
        ]
        founders = rng.sample(facts.of_kind(Kind.PERSON), COMPANIES)
        for company, founder in zip(facts.add(firms), founders, strict=True):
            facts.state(company, "founder", founder)
            year = self.state_year(company, "founded", founder, 22, 50)
            facts.state(company, "seat", self.any_of(Kind.TOWN))
            facts.state(company, "directors", *self.grown_up_around(year + 10))

    def careers(self) -> None:
        """Give people employers, teachers and spouses whose years fit.

        A marriage stands on one of the two pages only: that page alone answers the question.
        """
        facts, rng = self.facts, self.rng
        people = facts.of_kind(Kind.PERSON)
        born = {person.name: facts.year(person, "birth_year") for person in people}
        married_names: set[str] = set()
        for person in people:
            year = born[person.name]
            employers = [
                firm for firm in facts.of_kind(Kind.COMPANY) if facts.year(firm, "founded") <= year + 45
            ]
            teachers = [other for other in people if 12 <= year - born[other.name] <= 45]
            matches = [
                other
                for other in people
                if other.female != person.female
                and abs(born[other.name] - year) <= 10
                and other.name not in married_names
            ]
            if employers:
                facts.state(person, "employer", rng.choice(employers))
            if teachers:
                facts.state(person, "mentor", rng.choice(teachers))
            if matches and person.name not in married_names:
                spouse = rng.choice(matches)
                facts.state(person, "spouse", spouse)
                married_names |= {person.name, spouse.name}

    def books(self) -> None:
        facts, rng = self.facts, self.rng
        titles = [names.book_title(self.number * BOOKS + i, self.seed) for i in range(BOOKS)]
        presses = facts.of_kind(Kind.COMPANY)[: len(_THINGS["presses"])]
        for book in facts.add(
            [Entity(Kind.BOOK, title, gloss=rng.choice(_THINGS["genres"])) for title in titles]
        ):
            author = self.any_of(Kind.PERSON)
            facts.state(book, "author", author)
            year = self.state_year(book, "published", author, 24, 65)
            facts.state(book, "set_in", self.any_of(Kind.TOWN))
            publishers = [press for press in presses if facts.year(press, "founded") <= year]
            if publishers:
                facts.state(book, "publisher", rng.choice(publishers))

    def gatherings(self) -> None:
        facts, rng = self.facts, self.rng
        feasts = zip(
            self.take("fairground", FESTIVALS), rng.sample(_THINGS["feasts"], FESTIVALS), strict=True
        )
        festivals = [Entity(Kind.FESTIVAL, f"{site} {noun}", (), gloss) for site, (noun, gloss) in feasts]
        for festival in facts.add(festivals):
            initiator = self.any_of(Kind.PERSON)
            facts.state(festival, "initiator", initiator)
            year = self.state_year(festival, "first_held", initiator, 25, 50)
            facts.state(festival, "held_in", self.any_of(Kind.TOWN))
            facts.state(festival, "winners", *self.grown_up_around(year + 10))
        battles = [
            Entity(Kind.BATTLE, f"Battle of {site}", (site,)) for site in self.take("battlefield", BATTLES)
        ]
        for battle in facts.add(battles):
            victor = self.any_of(Kind.PERSON)
            facts.state(battle, "victor", victor)
            self.state_year(battle, "fought", victor, 28, 55)
            facts.state(battle, "fought_near", self.any_of(Kind.TOWN))
