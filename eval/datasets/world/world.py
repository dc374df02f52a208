"""A fictional universe, province by province: streamed, and by its seed the same on every machine."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass

from corag.core.errors import DataError
from corag.core.seeds import derive_seed
from corag.core.types import Passage, Question
from eval.datasets.world.facts import Facts, build
from eval.datasets.world.passages import PASSAGES, write_passages
from eval.datasets.world.questions import MAX_QUESTIONS, QuestionWriter, WorldQuestion

VERSION = 1
"""Raised whenever the same seed and sizes give other files than before."""

MIN_PASSAGES, MAX_PASSAGES = 500, 1_000_000


@dataclass(frozen=True, slots=True)
class Province:
    """One province in words. All its questions belong to one split ("" if it has none)."""

    number: int
    facts: Facts
    pages: dict[str, Passage]
    passages: tuple[Passage, ...]
    split: str
    drafts: tuple[WorldQuestion, ...]
    questions: tuple[Question, ...]


@dataclass(frozen=True, slots=True)
class _Share:
    """A split's part: ``questions`` spread evenly over ``provinces``, the ``first`` and those after it."""

    split: str
    questions: int
    first: int
    provinces: int

    def range(self, number: int) -> tuple[int, int]:
        """Return the numbers, from and up to, of the questions that the province at this place is asked."""
        index = number - self.first
        return self.questions * index // self.provinces, self.questions * (index + 1) // self.provinces


def generate(
    *,
    seed: int = 0,
    passages: int = 2000,
    train: int = 500,
    dev: int = 100,
    test: int = 200,
    references: bool = False,
) -> Iterator[Province]:
    """Yield the provinces of a world with exactly so many passages and questions.

    Every province is written from (seed, its number) alone and forgotten afterwards, so memory does not grow
    with the world. If ``passages`` is no multiple of 100, the last province is cut short and nothing is asked
    about it. ``references``: pages refer to each other ("See also ..."). Raises :class:`DataError` if the
    world would be too small, too large, or cannot hold so many
    questions.
    """
    shares = _share_out(passages, {"train": train, "dev": dev, "test": test})
    return (
        _province(seed, number, shares, passages, references) for number in range(-(-passages // PASSAGES))
    )


def _share_out(passages: int, sizes: dict[str, int]) -> list[_Share]:
    """Give every split provinces of its own, as few as it needs and then in proportion to its questions.

    Splits share no province, so no test question is about a thing that a train question is about.
    """
    if not MIN_PASSAGES <= passages <= MAX_PASSAGES:
        raise DataError(
            f"a world has {MIN_PASSAGES} to {MAX_PASSAGES:,} passages: choose a size between, not "
            f"{passages:,}."
        )
    if min(sizes.values()) < 0:
        raise DataError(
            f"numbers of questions cannot be negative: give 0 for a split that is not wanted, not {sizes}."
        )
    provinces = passages // PASSAGES
    provinces_needed = {split: -(-count // MAX_QUESTIONS) for split, count in sizes.items()}
    if sum(provinces_needed.values()) > provinces:
        counts = ", ".join(f"{count:,} {split}" for split, count in sizes.items())
        raise DataError(
            f"a world of {passages:,} passages cannot hold {counts} questions about things that no other "
            "split asks about: ask for fewer questions, or for at least "
            f"{sum(provinces_needed.values()) * PASSAGES:,} passages."
        )
    spare, total = provinces - sum(provinces_needed.values()), max(1, sum(sizes.values()))
    shares, first = [], 0
    for split, count in sizes.items():
        size = min(count, provinces_needed[split] + spare * count // total)
        shares.append(_Share(split, count, first, size))
        first += size
    return shares


def _province(seed: int, number: int, shares: list[_Share], passages: int, references: bool) -> Province:
    facts = build(seed, number)
    pages, distractors = write_passages(facts, random.Random(derive_seed(seed, "prose", number)), references)
    shuffled_pages = [*pages.values(), *distractors]
    rng = random.Random(derive_seed(seed, "questions", number))
    rng.shuffle(shuffled_pages)  # else a passage's place in the corpus would tell what kind of page it is
    share = next((share for share in shares if share.first <= number < share.first + share.provinces), None)
    start, end = share.range(number) if share else (0, 0)
    drafts = tuple(QuestionWriter(facts, rng).ask(end - start, start))
    split = share.split if share else ""
    return Province(
        number,
        facts,
        pages,
        tuple(shuffled_pages[: passages - number * PASSAGES]),
        split,
        drafts,
        tuple(one.question(f"world{seed}-{split}-{start + i}", pages) for i, one in enumerate(drafts)),
    )
