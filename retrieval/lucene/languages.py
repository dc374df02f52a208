"""Lucene's analysers by language: how passages and queries become the terms that BM25 counts."""

from __future__ import annotations

import unicodedata
from typing import Any

from corag.core.errors import ConfigError, nearest
from corag.core.language.words import word_spans
from retrieval.lucene.java import java_class, java_error

ENGLISH = "en"

_BY_ANSERINI = "ar bn da de es fa fi fr hi hu id it ja ko nl no pl pt ru sv te th tr uk zh"
_BY_LUCENE = {
    "bg": "bg.BulgarianAnalyzer",
    "ca": "ca.CatalanAnalyzer",
    "ckb": "ckb.SoraniAnalyzer",
    "cs": "cz.CzechAnalyzer",
    "el": "el.GreekAnalyzer",
    "et": "et.EstonianAnalyzer",
    "eu": "eu.BasqueAnalyzer",
    "ga": "ga.IrishAnalyzer",
    "gl": "gl.GalicianAnalyzer",
    "hy": "hy.ArmenianAnalyzer",
    "lt": "lt.LithuanianAnalyzer",
    "lv": "lv.LatvianAnalyzer",
    "ne": "ne.NepaliAnalyzer",
    "ro": "ro.RomanianAnalyzer",
    "sr": "sr.SerbianAnalyzer",
    "ta": "ta.TamilAnalyzer",
}
_SEGMENTED = ("bo", "km", "lo", "my")  # whose words are found by ICU before Lucene sees them
LANGUAGES = (
    {ENGLISH: ""}
    | dict.fromkeys(_BY_ANSERINI.split(), "")
    | _BY_LUCENE
    | dict.fromkeys([*_SEGMENTED, "standard"], "standard.StandardAnalyzer")
)
"""By the code that ``--language`` takes: Lucene's class below ``org.apache.lucene.analysis``, "" where
Anserini knows it by itself."""


def check_language(code: str) -> None:
    """Raise :class:`ConfigError` for a code without an analyser."""
    if code not in LANGUAGES:
        raise ConfigError(f"there is no analyser for the language '{code}': {nearest(code, LANGUAGES)}")


def open_analyzer(code: str) -> Any:
    """Return a language's analyser, which Anserini's indexer then knows by the code, too.

    Raises :class:`ConfigError` if this Java lacks what the analyser needs.
    """
    analyzers = java_class("io.anserini.analysis.AnalyzerMap")
    if name := LANGUAGES[code]:
        analyzers.analyzerMap.put(code, f"org.apache.lucene.analysis.{name}")
    try:
        # Thai words come from a dictionary of Java's own, which a cut-down Java may lack.
        analyzer = analyzers.getLanguageSpecificAnalyzer(code)
        java_class("io.anserini.analysis.AnalyzerUtils").analyze(analyzer, code)
        return analyzer
    except java_error() as error:
        raise ConfigError(
            f"the analyser for '{code}' does not work with this Java ({error}): set "
            "CORAG_JAVA_HOME to a complete JDK, or index with language=standard."
        ) from None


def prepare(text: str, code: str) -> str:
    """Return a text as Lucene is to see it, of a passage or a query.

    Characters are composed (NFC), so that both sides spell alike; where Lucene has no analyser that finds a
    language's words, ICU's stand apart.
    """
    nfc_text = text if text.isascii() else unicodedata.normalize("NFC", text)
    if code not in _SEGMENTED:
        return nfc_text
    return " ".join(nfc_text[start:end] for start, end in word_spans(nfc_text))
