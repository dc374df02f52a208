"""Passages as long as an encoder reads: how many words that is, and cutting what is longer even so."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice

from corag.core.language.words import count_words
from corag.core.types import Passage
from retrieval.corpora.passages import CorpusItem
from retrieval.dense.encoder import UNLIMITED, TextEncoder
from retrieval.documents.document import Block, Document
from retrieval.documents.passages import Cutting, cut

# English prose has 1.3 to 1.4 tokens a word, and titles stand before the text. What has more is cut again.
_WORDS_PER_TOKEN = 0.6
_AT_ONCE = 256


def fitting_words(encoder: TextEncoder, prompt: str) -> int:
    """Return of how many words a passage's text should be: of 180 at most, which is usual without an encoder.

    It depends on nothing but the encoder, so that an index stays the same when documents change.
    """
    if encoder.max_tokens == UNLIMITED:
        return Cutting.words
    room = encoder.max_tokens - encoder.count_tokens([prompt])[0]
    return max(1, min(Cutting.words, int(_WORDS_PER_TOKEN * room)))


def split_to_fit(items: Iterable[CorpusItem], encoder: TextEncoder, prompt: str) -> Iterator[CorpusItem]:
    """Yield what is in a file, passages that are longer than the encoder reads in several parts."""
    stream = iter(items)
    while some := list(islice(stream, _AT_ONCE)):
        counts = iter(
            encoder.count_tokens(prompt + each.contents for each in some if isinstance(each, Passage))
        )
        for item in some:
            if isinstance(item, Passage) and (tokens := next(counts)) > encoder.max_tokens:
                yield from _parts(item, encoder, prompt, tokens)
            else:
                yield item


def _parts(passage: Passage, encoder: TextEncoder, prompt: str, tokens: int) -> list[Passage]:
    """Cut a passage that is too long at the ends of sentences, into as few parts as fit.

    Where a single word is too long, or the title, it stays too long: that is counted before encoding.
    """
    document = Document(passage.title, (Block(passage.text, page=passage.page),))
    words = count_words(passage.text)
    parts = [passage]
    while tokens > encoder.max_tokens and words > 1:
        # Never less than a tenth fewer: the title's tokens do not get fewer.
        words = max(1, int(words * min(0.9, encoder.max_tokens / tokens)))
        parts = list(cut(document, passage.source, Cutting(words)))
        tokens = max(encoder.count_tokens(prompt + part.contents for part in parts))
    return parts
