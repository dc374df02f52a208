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

# Pieces chosen so that a name can be cut in one way only: consonants, vowel, consonants, vowel (and
# consonants), ending.
_ONSETS = "b br d dr f fr g gr h j k kr l m n p r s st t th tr v w".split()
_VOWELS = "a e i o u".split()
_CODAS = "l n r m nd rk st lm ld sk rv th ck nt rn ss v d g t".split()
_MIDDLES = "a e o er en el in ing ar es".split()

FEMALE = (
    "Mara Ilsa Tovia Edda Lisbet Oriel Sunna Petra Wenna Alira Branka Celia Dorith Elka Fenja Gerda Halla "
    "Imke Jorun Kaia Linnet Mirel Nessa Odile Perrin Rosalin Sefa Tilde Ulla Verena Ysolde Zora Adela "
    "Bettina Corisa Delphine Estrid Frida Ginevra Hedda"
).split()
MALE = (
    "Tomas Orrin Aldo Bastian Corvin Dorian Emeric Falk Gregor Hadrian Ivo Jasper Kester Lorenz Matthis "
    "Niklas Osric Pavel Quill Rurik Silas Tobias Ulrich Viktor Wendel Yorick Anselm Bertram Cyprian Dietmar "
    "Edmund Florian Gideon Henrik Isidor Joren Konrad Leander Magnus Norbert"
).split()

_ADJECTIVES = (
    "Glass Silent Crooked Amber Hidden Winter Hollow Burning Distant Broken Painted Patient Scarlet Silver "
    "Forgotten Restless Quiet Golden Drowned Wandering Paper Copper Blue Borrowed Empty Endless Faithful "
    "Gentle Honest Iron Ivory Last Lonely Lost Marble Midnight Narrow Northern Pale Sleeping Small Southern "
    "Stolen Stone Sunken Tall Velvet Weary White Wild Wooden Young Bitter Bright Clever Cold Dark Early "
    "Green Unfinished"
).split()
_NOUNS = (
    "Orchard Lantern Harbour Staircase Garden Mirror Sparrow Clock Bridge Letter Meadow Tower Violin Window "
    "Island Ladder Kingdom Compass Cathedral Feather Forest Candle Anchor Archive Bell Carpet Circus Cloud "
    "Country Crown Daughter Door Dream Fountain Gate Guest Hour House Hunter Journey Key Lake Library Map "
    "Market Miller Mountain Museum Needle Night Ocean Palace Piano Pilot Promise River Road Room Sailor "
    "School Season Shadow Shepherd Ship Shore Soldier Song Spring Stranger Street Summer Table Theatre "
    "Thief Train Traveller Valley Village Voice Wall Watchmaker Weaver Well Winter Witness Wolf"
).split()
_FRAMES = (
    "The {} | Beneath the {} | Letters from the {} | The {} at Dawn | Song of the {} | Beyond the {} | "
    "Return to the {} | The {} in Autumn | A History of the {} | The Road to the {} | Farewell to the {} | "
    "The {} and the Sea | In Search of the {} | The Secret of the {} | The {} in the Rain | The Year of the "
    "{} | Tales of the {} | Under the {} | The Keeper of the {} | The {} by Moonlight | Waiting for the {} "
    "| The House of the {} | The {} of My Father | Notes on the {} | The Children of the {} | Before the {} "
    "| The Ballad of the {} | The {} without a Name | After the {} | The Shadow of the {} | Leaving the {} "
    "| The {} on the Hill | Voices from the {} | The Riddle of the {} | The {} across the Water | Finding "
    "the {} | The Garden of the {} | The Death of the {} | The {} under Snow | Dreams of the {}"
).split(" | ")


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


def _name_pool(label: str, endings: str) -> Pool:
    return Pool(label, tuple(map(tuple, (_ONSETS, _VOWELS, _CODAS, _MIDDLES, endings.split()))))


SURNAMES = _name_pool(
    "family", "den sen rick man low by kin son lund berg vik mar dahl quist gar win mont stern hart nov"
)
TOWNS = _name_pool(
    "town", "ford wick mere ton stead ham bury gate haven port field moor brook well combe holm thorpe dale"
)
REGIONS = _name_pool("region", "mark land shire gard wold reach march vale")
RIVERS = _name_pool("river", "sel vern mel ler wen vey dow tis ra")
FIRMS = _name_pool("company", "dex tor lin vex ron max bol com fix dan")
SOURCES = _name_pool("spring", "fell crag ridge hollow cliff")
GROUNDS = _name_pool("fairground", "green bank water yard grove")
FIELDS = _name_pool("battlefield", "hill heath moss down plain")
TITLES = Pool("book", (tuple(_FRAMES), tuple(_ADJECTIVES), tuple(_NOUNS)))


def book_title(number: int, seed: int = 0) -> str:
    """Return a book's title, such as "The Secret of the Glass Orchard"."""
    frame, adjective, noun = TITLES.take(number, seed)
    return frame.format(f"{adjective} {noun}")
