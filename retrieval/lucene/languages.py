"""Lucene's analysers by language: how passages and queries become the terms that BM25 counts."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from corag.core.errors import ConfigError
from corag.core.types import Passage
from corag.core.words import word_spans
from retrieval.lucene.java import java_class, java_error

ENGLISH = "en"

_STANDARD = "standard.StandardAnalyzer"


@dataclass(frozen=True)
class Language:
    """A language that a Lucene index can be analysed by.

    Attributes:
        name: in English.
        scripts: that it is written in, by the first words of their letters' Unicode names.
        analyzer: Lucene's class below ``org.apache.lucene.analysis``; "" where Anserini knows it by itself.
        segmented: whether its words are found by ICU before Lucene sees them.
    """

    name: str
    scripts: tuple[str, ...] = ("LATIN",)
    analyzer: str = ""
    segmented: bool = False


_CHINESE = ("CJK", "BOPOMOFO")
_JAPANESE = ("CJK", "HIRAGANA", "KATAKANA", "KATAKANA-HIRAGANA")
_KOREAN = ("HANGUL", "CJK")
_LATIN = ("LATIN",)

LANGUAGES = {
    ENGLISH: Language("English"),
    "ar": Language("Arabic", ("ARABIC",)),
    "bg": Language("Bulgarian", ("CYRILLIC",), "bg.BulgarianAnalyzer"),
    "bn": Language("Bengali", ("BENGALI",)),
    "bo": Language("Tibetan", ("TIBETAN",), _STANDARD, segmented=True),
    "ca": Language("Catalan", _LATIN, "ca.CatalanAnalyzer"),
    "ckb": Language("Sorani Kurdish", ("ARABIC",), "ckb.SoraniAnalyzer"),
    "cs": Language("Czech", _LATIN, "cz.CzechAnalyzer"),
    "da": Language("Danish"),
    "de": Language("German"),
    "el": Language("Greek", ("GREEK",), "el.GreekAnalyzer"),
    "es": Language("Spanish"),
    "et": Language("Estonian", _LATIN, "et.EstonianAnalyzer"),
    "eu": Language("Basque", _LATIN, "eu.BasqueAnalyzer"),
    "fa": Language("Persian", ("ARABIC",)),
    "fi": Language("Finnish"),
    "fr": Language("French"),
    "ga": Language("Irish", _LATIN, "ga.IrishAnalyzer"),
    "gl": Language("Galician", _LATIN, "gl.GalicianAnalyzer"),
    "hi": Language("Hindi", ("DEVANAGARI",)),
    "hu": Language("Hungarian"),
    "hy": Language("Armenian", ("ARMENIAN",), "hy.ArmenianAnalyzer"),
    "id": Language("Indonesian"),
    "it": Language("Italian"),
    "ja": Language("Japanese", _JAPANESE),
    "km": Language("Khmer", ("KHMER",), _STANDARD, segmented=True),
    "ko": Language("Korean", _KOREAN),
    "lo": Language("Lao", ("LAO",), _STANDARD, segmented=True),
    "lt": Language("Lithuanian", _LATIN, "lt.LithuanianAnalyzer"),
    "lv": Language("Latvian", _LATIN, "lv.LatvianAnalyzer"),
    "my": Language("Burmese", ("MYANMAR",), _STANDARD, segmented=True),
    "ne": Language("Nepali", ("DEVANAGARI",), "ne.NepaliAnalyzer"),
    "nl": Language("Dutch"),
    "no": Language("Norwegian"),
    "pl": Language("Polish"),
    "pt": Language("Portuguese"),
    "ro": Language("Romanian", _LATIN, "ro.RomanianAnalyzer"),
    "ru": Language("Russian", ("CYRILLIC",)),
    "sr": Language("Serbian", ("CYRILLIC", "LATIN"), "sr.SerbianAnalyzer"),
    "sv": Language("Swedish"),
    "ta": Language("Tamil", ("TAMIL",), "ta.TamilAnalyzer"),
    "te": Language("Telugu", ("TELUGU",)),
    "th": Language("Thai", ("THAI",)),
    "tr": Language("Turkish"),
    "uk": Language("Ukrainian", ("CYRILLIC",)),
    "zh": Language("Chinese", _CHINESE),
    "standard": Language("any language, its words as they stand", (), _STANDARD),
}
"""By the code that ``--language`` takes."""

_PACKAGE = "org.apache.lucene.analysis."
_FULL_SAMPLE = 2_000  # passages whose letters are all counted; of further ones every hundredth
_STRIDE = 100
_LOOKED_AT = 500  # characters of such a passage
_FOREIGN = 0.2  # the share of letters that an analyser is not for, from which on it is said
_NO_LETTER = re.compile(r"[\W\d_]+")


def check_language(code: str) -> None:
    """Raise :class:`ConfigError` for a code without an analyser."""
    if code not in LANGUAGES:
        codes = ", ".join(f"{each} ({language.name})" for each, language in LANGUAGES.items())
        raise ConfigError(f"there is no analyser for the language '{code}'. Known: {codes}.")


def open_analyzer(code: str) -> Any:
    """Return a language's analyser, which Anserini's indexer then knows by the code, too.

    Raises :class:`ConfigError` if this Java lacks what the analyser needs.
    """
    analyzers = java_class("io.anserini.analysis.AnalyzerMap")
    if LANGUAGES[code].analyzer:
        analyzers.analyzerMap.put(code, _PACKAGE + LANGUAGES[code].analyzer)
    try:
        # Thai words come from a dictionary of Java's own, which a cut-down Java may lack.
        analyzer = analyzers.getLanguageSpecificAnalyzer(code)
        count_terms(analyzer, LANGUAGES[code].name)
        return analyzer
    except java_error() as error:
        raise ConfigError(
            f"the analyser for {LANGUAGES[code].name} does not work with this Java ({error}): set "
            "CORAG_JAVA_HOME to a complete JDK, or index with language=standard."
        ) from None


def count_terms(analyzer: Any, text: str) -> int:
    """Return how many different terms a text has for an analyser."""
    terms = java_class("io.anserini.analysis.AnalyzerUtils").analyze(analyzer, text)
    return int(java_class("java.util.HashSet")(terms).size())


def prepare(text: str, code: str) -> str:
    """Return a text as Lucene is to see it, of a passage or a query.

    Characters are composed (NFC), so that both sides spell alike; where Lucene has no analyser that finds a
    language's words, ICU's stand apart.
    """
    nfc_text = text if text.isascii() else unicodedata.normalize("NFC", text)
    if not LANGUAGES[code].segmented:
        return nfc_text
    return " ".join(nfc_text[start:end] for start, end in word_spans(nfc_text))


class ScriptCounter:
    """Counts the letters of passages that stream by, by script: of a sample, if they are many."""

    def __init__(self) -> None:
        self._characters: Counter[str] = Counter()

    def watch(self, passages: Iterable[Passage]) -> Iterator[Passage]:
        """Pass passages on."""
        for number, passage in enumerate(passages):
            if number < _FULL_SAMPLE or number % _STRIDE == 0:
                self._characters.update(_NO_LETTER.sub("", passage.text[:_LOOKED_AT]))
            yield passage

    def analyzer_note(self, code: str) -> str:
        """Return a sentence if a fifth of the letters are of scripts that an analyser is not for, else ""."""
        scripts = LANGUAGES[code].scripts
        share, foreign = self._foreign(scripts) if scripts else (0.0, [])
        if share < _FOREIGN:
            return ""
        return (
            f"{share:.0%} of the letters are {_list_scripts(foreign)}, but the analyser is for "
            f"{LANGUAGES[code].name}: index with language={_fitting(foreign)}."
        )

    def encoder_note(self) -> str:
        """Return a sentence if a fifth of the letters are not those of the default encoder's English."""
        share, foreign = self._foreign(("LATIN",))
        if share < _FOREIGN:
            return ""
        return (
            f"{share:.0%} of the letters are {_list_scripts(foreign)}, but the default encoder knows English "
            "alone: name a multilingual one ('encoder')."
        )

    def _foreign(self, known_scripts: Collection[str]) -> tuple[float, list[str]]:
        """Return the share of letters of other scripts than these, and the scripts, most frequent first."""
        scripts: Counter[str] = Counter()
        for character, count in self._characters.items():
            if name := _script(character):
                scripts[name] += count
        foreign = Counter({name: count for name, count in scripts.items() if name not in known_scripts})
        return foreign.total() / max(1, scripts.total()), [name for name, _ in foreign.most_common()]


def _list_scripts(names: Sequence[str]) -> str:
    return ", ".join("Chinese characters" if name == "CJK" else name.capitalize() for name in names[:3])


def _fitting(foreign: Sequence[str]) -> str:
    """Return the languages that are written in a corpus's scripts, as a user may choose one."""
    if foreign[0] == "LATIN":
        return "and the code of their language, such as en"
    script = "HIRAGANA" if "HIRAGANA" in foreign[:3] else foreign[0]
    codes = [code for code, each in LANGUAGES.items() if script in each.scripts]
    codes.sort(key=lambda code: (LANGUAGES[code].scripts.index(script), len(LANGUAGES[code].scripts)))
    return (
        " or ".join(f"{code} ({LANGUAGES[code].name})" for code in codes)
        or "standard (the words as they stand)"
    )


@lru_cache(maxsize=10_000)
def _script(character: str) -> str:
    """Return the first word of a letter's Unicode name, its script's for all but a few; "" for no letter.

    >>> _script("я"), _script("漢"), _script("1")
    ('CYRILLIC', 'CJK', '')
    """
    if not character.isalpha():
        return ""
    return unicodedata.name(unicodedata.normalize("NFKC", character)[0], "").split(" ")[0]
