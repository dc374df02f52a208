"""Raised and lowered text in one line of characters, so that no figure changes and no mark sticks to a word.

``10<sup>6</sup>`` is "10^6", ``H<sub>2</sub>O`` "H2O", ``town<sup>3</sup>`` and ``town<sup>[3]</sup>`` are
"town [3]". HTML, Word and formulas write through this module, so that the same text is the same passage
whatever it comes from.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_ORDINALS = frozenset("st nd rd th er re ère e è ème me nde o os a as º ª".split())
_ABBREVIATIONS = frozenset(
    "Mme Mmes Mlle Mlles Mr Mrs Mgr Dr Pr Jr Sr St Ste Cie Co Vve no nos No Nos".split()
)
_SYMBOLS = {"TM": "™", "SM": "℠", "(R)": "®", "(TM)": "™"}
_NOTE_SIGNS = re.compile(r"[*∗†‡§¶#]+")
_BRACKETS = re.compile(r"[\[(]\s*(.+?)\s*[\])]", re.DOTALL)
_SEVERAL = re.compile(r"\d+(?:\s*[,–-]\s*\d+)+")  # notes: 1,2 or 3–5
_SIMPLE = re.compile(r"[+−-]?(?:\d+(?:[.,]\d+)*|\w|\d*[+−-])")
_LAST_WORD = re.compile(r"[^\W\d_]+$")
_WORD_LENGTH = 4  # letters; x, km and mol are raised to a power, a longer word gets a note's number
_POWERS_OF_WORDS = re.compile(
    r"(?:kilo|centi|milli|deci)?met(?:er|re)s?|feet|foot|inch(?:es)?|miles?|yards?|sinh|cosh|tanh|arc\w+|kcal",
    re.IGNORECASE,
)
_AFTER_SENTENCE = tuple(".,;:!?%'\"”’»。、，")
_UNSPACED_LETTER = re.compile(r"[\u3040-\u30ff\u3400-\u9fff]$")
_ELEMENT = re.compile(r"[A-Z][a-z]?(?![a-z])")  # of chemistry: the number before it is an isotope's
_DEGREES = re.compile(r"\s?[CF]\b")
_LONG = 20  # characters; what is longer, or has three words, is a remark


@dataclass(frozen=True, slots=True)
class _Script:
    text: str
    is_raised: bool
    note: bool = False


class InlineText:
    """A line of text that is put together piece by piece."""

    def __init__(self) -> None:
        self._pieces: list[str | _Script] = []

    def add(self, text: str) -> None:
        """Add text as it stands."""
        self._pieces.append(text)

    def add_raised(self, text: str, *, note: bool = False) -> None:
        """Add text above the line. ``note``: it is known to be the mark of a note, not a power."""
        self._pieces.append(_Script(text.strip(), True, note))

    def add_lowered(self, text: str) -> None:
        """Add text below the line."""
        self._pieces.append(_Script(text.strip(), False))

    def clear(self) -> None:
        """Begin a new line."""
        self._pieces.clear()

    def __bool__(self) -> bool:
        return bool(self._pieces)

    def __str__(self) -> str:
        if all(isinstance(piece, str) for piece in self._pieces):
            return "".join(map(str, self._pieces))
        parts, before = [], ""  # what the next script stands behind: its end is enough
        for position, piece in enumerate(self._pieces):
            if isinstance(piece, str):
                part = piece
            elif not piece.text:
                continue
            else:
                following = self._pieces[position + 1 : position + 4]
                after = "".join(other if isinstance(other, str) else f" {other.text}" for other in following)
                if piece.is_raised:
                    part = _write_raised(before, piece.text, after, note=piece.note)
                else:
                    part = _write_lowered(before, piece.text, after)
            parts.append(part)
            before = (before + part[-_LONG:])[-_LONG:]
        return "".join(parts)


def note_mark(text: str) -> str:
    """Return the mark of a note in brackets, however it is written.

    >>> note_mark("3"), note_mark("[a]"), note_mark("*")
    ('[3]', '[a]', '[*]')
    """
    match = _BRACKETS.fullmatch(text.strip())
    return f"[{match[1] if match else text.strip()}]"


def group(text: str) -> str:
    """Return a part of a formula in parentheses unless it is a single number or name.

    >>> group("6"), group("n+1"), group("(a)")
    ('6', '(n+1)', '(a)')
    """
    text = text.strip()
    if _SIMPLE.fullmatch(text) or (text.isalnum() and (text.isalpha() or text.isdigit())):
        return text
    if text.startswith("(") and text.find(")") == len(text) - 1:
        return text
    return f"({text})"


def _write_raised(before: str, text: str, after: str, *, note: bool) -> str:
    if _is_note(before, text, after) or (note and len(text) <= _LONG and text[:1] not in _ELSEWHERE):
        space = " " if before[-1:].strip() else ""
        return f"{space}{note_mark(text)}{_space(']', after)}"
    symbol = _SYMBOLS.get(text)
    if symbol or (not any(map(str.isalnum, text)) and not set(text) & set("+−-")):
        return symbol or text
    if text.lower() in ("o", "0") and before[-1:].isdigit() and _DEGREES.match(after):
        return "°"
    word = _last_word(before)
    if not before[-1:].strip():
        # An isotope's number, or the end of a word that a space has come before.
        return text if _ELEMENT.match(after) else text + _space(text, after)
    if (before[-1].isdigit() and text.lower().rstrip(".") in _ORDINALS) or word + text in _ABBREVIATIONS:
        return text
    if len(text) > _LONG or len(text.split()) > 2 or (len(word) >= _WORD_LENGTH and text.isalpha()):
        return f" {text}{_space(text, after)}"
    power = f"^{group(text)}"
    return power + _space(power, after)


_ELSEWHERE = ("↩", "↑", "^")  # a note's way back


def _is_note(before: str, text: str, after: str) -> bool:
    """Tell a note's mark from a power by what it is and what it stands behind."""
    if (text.startswith("[") and _BRACKETS.fullmatch(text)) or _NOTE_SIGNS.fullmatch(text):
        return True
    word = _last_word(before)
    long_word = len(word) >= _WORD_LENGTH and not _POWERS_OF_WORDS.fullmatch(word)
    if text.isdigit():
        if not before[-1:].strip():
            return not _ELEMENT.match(after)
        return bool(long_word or before.endswith(_AFTER_SENTENCE) or _UNSPACED_LETTER.search(before))
    if _SEVERAL.fullmatch(text):
        return not before[-1:].isdigit()
    inner = text.strip("()")
    return long_word and ((len(inner) == 1 and inner.islower()) or (inner != text and inner.isdigit()))


def _last_word(text: str) -> str:
    return match[0] if (match := _LAST_WORD.search(text)) else ""


def _write_lowered(before: str, text: str, after: str) -> str:
    if not before[-1:].strip():
        return text
    if text.isdigit() and not before[-1].isdigit() and not after[:1].isdigit():
        return text
    if len(text) > _LONG or len(text.split()) > 2:
        return f" {text}{_space(text, after)}"
    index = f"_{group(text)}"
    return index + _space(index, after)


def _space(text: str, after: str) -> str:
    return " " if after[:1].isalnum() and (text[-1:].isalnum() or text.endswith("]")) else ""
