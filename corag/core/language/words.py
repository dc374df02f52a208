"""Words, in any script: counting them, and cutting a text between two of them.

Where words are set apart by spaces, a word is what stands between two spaces. Chinese, Japanese, Thai, Lao,
Khmer, Burmese, Tibetan and a few further scripts set none: there words are those of ICU's dictionaries
(Unicode Standard Annex 29), through icu4py.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

UNSPACED_LETTERS = (
    "\u0e01-\u0e3a\u0e40-\u0e4e"  # Thai
    "\u0e81-\u0ece\u0edc-\u0edf"  # Lao
    "\u0f00\u0f18-\u0f39\u0f40-\u0fbc"  # Tibetan
    "\u1000-\u103f\u1050-\u108f\u109a-\u109f\ua9e0-\ua9ef\ua9fa-\ua9fe\uaa60-\uaa7f"  # Burmese and its kin
    "\u1780-\u17d3\u17dd"  # Khmer
    "\u1950-\u1974\u1980-\u19c9\u1a20-\u1a7f\u1b00-\u1b4b\ua980-\ua9c0"  # Tai Le to Tai Tham, Bali, Java
    "\u2e80-\u2fd5\u3005-\u3007\u3021-\u3029\u3038-\u303b\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"  # Han
    "\U00020000-\U0003fffd"  # Han, rare
    "\u3041-\u3096\u3099-\u309f\u30a1-\u30fa\u30fc-\u30ff\u31f0-\u31ff\uff66-\uff9f"  # Japanese syllables
    "\u3105-\u312f\u31a0-\u31bf\ua000-\ua48c"  # Bopomofo, Yi
)
"""Letters and marks of the scripts that set no spaces between words, for a character class of ``re``."""

_UNSPACED_LETTER = re.compile(f"[{UNSPACED_LETTERS}]")
# The same with their punctuation, at a line's end and start; and of Chinese and Japanese alone.
_UNSPACED_END = re.compile(f"[{UNSPACED_LETTERS}\u3001-\u3003\u3008-\u301f\uff01-\uff0f\uff1a-\uff1f]$")
_UNSPACED_START = re.compile(f"[{UNSPACED_LETTERS}\u3001-\u3003\u3008-\u301f\uff01-\uff0f\uff1a-\uff1f]")
_WIDE = "\u2e80-\u2fd5\u3001-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\uff01-\uff9f\U00020000-\U0003fffd"
_BREAK_WITHIN = re.compile(rf"(?<=[{_WIDE}])[^\S\n]*\n\s*(?=[{_WIDE}])")
_SPACES = re.compile(r"\s+")
_CHUNK = re.compile(r"\S+")
# What belongs to the word behind it: opening brackets and quotation marks.
_OPENING = re.compile(r"[(\[{<“‘«‹„‚「『（［｛〈《【〔〖〘〚｢]+$")


def is_unspaced(text: str) -> bool:
    """Whether a text has letters of a script that sets no spaces between words.

    >>> is_unspaced("Oslo"), is_unspaced("Oslo, 奥斯陆")
    (False, True)
    """
    return not text.isascii() and _UNSPACED_LETTER.search(text) is not None


def count_words(text: str) -> int:
    """Count words; a punctuation mark by itself, where no spaces are set, is none.

    >>> count_words("Oslo, Norway"), count_words("长沙是湖南省的省会。"), count_words("เป็นเมืองหลวง")
    (2, 5, 3)
    """
    return sum(1 for _ in word_spans(text)) if is_unspaced(text) else len(text.split())


def word_spans(text: str) -> Iterator[tuple[int, int]]:
    """Yield (start, end) of each word with the punctuation that belongs to it, in order.

    They cover everything but white space.

    >>> [text[a:b] for text in ["He is in 长沙（湖南省）。"] for a, b in word_spans(text)]
    ['He', 'is', 'in', '长沙', '（湖南省）。']
    """
    if not is_unspaced(text):
        yield from (chunk.span() for chunk in _CHUNK.finditer(text))
        return
    for start, stop, words in _chunks(text):
        # Until the next word is known, what follows this one may be punctuation that belongs to it.
        end = start
        for word_start, word_end in words:
            if end > start:
                opening = _OPENING.search(text, end, word_start)
                border = opening.start() if opening else word_start
                yield start, border
                start = border
            end = word_end
        yield start, stop


def first_words(text: str, count: int) -> str:
    """Return a text's first ``count`` words, as they stand in it.

    >>> first_words("长沙是湖南省的省会。", 3)
    '长沙是湖南省'
    """
    for number, (_, end) in enumerate(word_spans(text), 1):
        if number == count:
            return text[:end]
    return text


def line_joint(before: str, after: str) -> str:
    """Return what stands for a line break between two parts of a text: a space, if their script sets any.

    >>> line_joint("a river", "in Norway"), line_joint("风景名", "胜。")
    (' ', '')
    """
    return "" if _UNSPACED_END.search(before) and _UNSPACED_START.match(after) else " "


def squeeze_spaces(text: str) -> str:
    r"""Make one space of all white space in a row, and none of a line break within Chinese or Japanese.

    As browsers do (CSS Text 4, segment break transformation).

    >>> squeeze_spaces("A  river\nin 湖南\n省")
    'A river in 湖南省'
    """
    if not text.isascii():
        text = _BREAK_WITHIN.sub("", text)
    return _SPACES.sub(" ", text)


def _chunks(text: str) -> Iterator[tuple[int, int, list[tuple[int, int]]]]:
    """Yield (start, end) of what stands between white space, with its words if it has unspaced letters.

    They are ICU's, and between them what is one elsewhere: "GPT-4" is a word, and "," is none.
    """
    from icu4py.breakers import WordBreaker  # here, since commands that cut nothing need not load it

    start, other, is_unspaced_chunk = 0, -1, False
    words: list[tuple[int, int]] = []
    # ICU's own spans count UTF-16 units, so the lengths are added up. Its dictionaries go by script,
    # whatever the language.
    end = 0
    for segment in WordBreaker(text, "en"):
        begin, end = end, end + len(segment)
        if segment[0].isspace():
            if begin > start:
                if other >= 0:
                    words.append((other, begin))
                yield start, begin, words if is_unspaced_chunk else []
            # A mark without a letter belongs to the space before it, by ICU's rules.
            start, other, is_unspaced_chunk, words = end - len(segment.lstrip()), -1, False, []
        elif _UNSPACED_LETTER.search(segment):
            if other >= 0:
                words.append((other, begin))
                other = -1
            words.append((begin, end))
            is_unspaced_chunk = True
        elif other < 0 and segment[0].isalnum():
            other = begin
    if end > start:
        if other >= 0:
            words.append((other, end))
        yield start, end, words if is_unspaced_chunk else []
