"""Invented names that cannot repeat: a pool's n-th name is a number written in syllables instead of digits.

A pool is every way of taking one piece from each of its lists. Multiplying by a constant without a common
factor with the pool's size visits all of them once, far apart. So a million names are unique, and none has
to be remembered. They are invented so that no model knows an answer by heart.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from math import gcd, prod

from corag.core.errors import DataError
from corag.core.seeds import derive_seed
from eval.datasets.world.relations import WORLD

_NAMES = WORLD["names"]
_STEMS = tuple(tuple(_NAMES[each]) for each in ("onsets", "vowels", "codas", "middles"))


@lru_cache
def _stride(size: int, seed: int) -> int:
    """Return a step without a common factor with ``size``, different for most seeds."""
    # Near the golden section, so that neighbours, which share a province, get names that look unlike.
    start = int(size * 0.6) + derive_seed(seed, "stride") % (size // 20 + 1)
    return next(step for step in range(start, 2 * size) if gcd(step, size) == 1)


@dataclass(frozen=True, slots=True)
class Pool:
    """Every string that takes one piece from each list in turn, numbered."""

    label: str
    pieces: tuple[tuple[str, ...], ...]

    @property
    def size(self) -> int:
        """How many names the pool holds."""
        return prod(len(choices) for choices in self.pieces)

    def take(self, number: int, seed: int = 0) -> tuple[str, ...]:
        """Return one piece of each list. Different numbers below :attr:`size` take different pieces."""
        if not 0 <= number < self.size:
            raise DataError(
                f"the world needs {self.label} name number {number:,} but has only {self.size:,} of them."
            )
        rest = (number * _stride(self.size, seed) + derive_seed(seed, self.label)) % self.size
        pairs = []
        for choices in reversed(self.pieces):
            rest, digit = divmod(rest, len(choices))
            pairs.append(choices[digit])
        return tuple(reversed(pairs))

    def name(self, number: int, seed: int = 0) -> str:
        """Return the pieces as one word, with a capital letter."""
        return "".join(self.take(number, seed)).capitalize()


POOLS = {kind: Pool(kind, (*_STEMS, tuple(endings))) for kind, endings in _NAMES["endings"].items()}
"""Of single words, by what is called so, such as "town"."""
TITLES = Pool("book", tuple(tuple(_NAMES[each]) for each in ("frames", "adjectives", "nouns")))


def book_title(number: int, seed: int = 0) -> str:
    """Return a book's title, such as "The Secret of the Glass Orchard"."""
    frame, adjective, noun = TITLES.take(number, seed)
    return frame.format(f"{adjective} {noun}")
