"""The parts of a question of two hops that need no model: answers, the template, and what is refused."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence

from corag.core.sentences import split_sentences
from corag.core.text import mentions
from corag.core.types import Passage
from retrieval.linked_pairs import LinkedPair, passage_name

_MONTH = r"(?:January|February|March|April|May|June|July|August|September|October|November|December)"
_NAME_PATTERN = r"[^\W\d_a-z][\w'’\-]*\w"
_ANSWERS = re.compile(
    rf"\b(?:\d{{1,2}} {_MONTH},? \d{{4}}|{_MONTH} \d{{1,2}}, \d{{4}}|{_MONTH} \d{{4}}|\d[\d,.]*\d|\d"
    rf"|{_NAME_PATTERN}(?: (?:(?:of|de|von|van|the) (?:the )?)?{_NAME_PATTERN}){{0,4}})(?![\w-])"
)
_SENTENCE_START = re.compile(r"(?:^|[.!?:;]|[\"\u201c])\s*$")  # where any word has a capital
_MOST_WORDS = 25  # of a sentence with a blank: more is cut off at its ends
_WORDS_BEFORE = 17  # of these, before the blank
_LEAST_TELLING = 3  # letters of a word of a name that gives the name away, beyond these
_PRONOUNS = frozenset(
    "it he she they this that these those his her its their there in on at as after before when while since "
    "during the an and but for from with by both other some many most all one two three under over "
    "january february march april may june july august september "
    "october november december monday tuesday wednesday thursday friday saturday sunday".split()
)
_KIND = re.compile(
    r"\b(?:is|was|are|were)\s+(?:an?|the|one of the)\s+(?P<words>(?:[^\W_][\w'’\-]*\s*){1,9})", re.UNICODE
)
_ENDS_KIND = frozenset(
    "that which who whom whose where when and or of in on at by from for to with as based about directed "
    "written produced released starring located situated published created made set known born best used "
    "held founded played formed featuring covering including containing consisting between near under over "
    "during".split()
)
_NO_KIND = frozenset(  # of what, it says after; or no noun
    "type kind form sort part group set pair number member name "
    "public private former late large small major new old so very".split()
)


def find_answers(pair: LinkedPair, seed: int) -> list[str]:
    """Return dates, numbers and names of the second passage that the first lacks, in an order drawn.

    They are the answers that questions are made for, as PAQ picks spans before it asks about them (Lewis et
    al., TACL 2021, section 3.2), there by a model, here by their form. None has a word of a title.
    """
    titles = {word for title in (pair.first.title, pair.second.title) for word in _words(title)}
    text = pair.second.text
    candidates = dict.fromkeys(
        match[0]
        for match in _ANSWERS.finditer(text)
        if " " in match[0] or match[0][0].isdigit() or not _SENTENCE_START.search(text[: match.start()])
    )
    usable = [
        each
        for each in candidates
        if not titles.intersection(_words(each))
        and _words(each)[0] not in _PRONOUNS
        and len(each) > 1
        and not any(each != other and mentions([other], [each]) for other in candidates)  # a part of it
        and not mentions([pair.first.contents], [each])
    ]
    random.Random(seed).shuffle(usable)
    return usable


def describe_kind(passage: Passage, name: str) -> str:
    """Return what sort of thing a passage is about, by its first sentence; "" if that does not show.

    >>> describe_kind(Passage("1", "Alien", "Alien is a 1979 horror film directed by Ridley Scott."), "Alien")
    'film'
    """
    first = next(iter(split_sentences(passage.text)), "")
    match = _KIND.search(first)
    words: list[str] = []
    for word in match["words"].split() if match else ():
        # An album recorded by ...; but a Thoroughbred horse, a large-sized dog, a privately held company.
        participle = words and word.islower() and word.endswith("ed") and "-" not in word
        if (word.lower() in _ENDS_KIND or participle) and not (words and words[-1].endswith("ly")):
            break
        words.append(word)
    kind = words[-1] if words else ""
    usable = (
        kind.isalpha() and kind.islower() and not kind.endswith(("ed", "est", "ly")) and kind not in _NO_KIND
    )
    return kind if usable and not mentions([kind], [name]) else ""


def blank_statement(pair: LinkedPair) -> str:
    """Return the sentence in which the first passage names the second, with a blank in the name's place."""
    text, position = pair.first.text, 0
    for sentence in split_sentences(text):
        begin = text.find(sentence, position)
        position = begin + len(sentence)
        if begin <= pair.start and pair.stop <= position:
            before, after = text[begin : pair.start], text[pair.stop : position]
            return _shorten(_blank_name(before, pair), _blank_name(after, pair))
    return ""


def compose_by_template(second_question: str, pair: LinkedPair) -> str:
    """Return the question of two hops that needs nobody to word it, or "" if the names do not allow it.

    The first hop is a sentence of the first passage with a blank, the second the question about what fills
    it: ``"Aliens" says: "It is the sequel to ____." Who directed that film?``
    """
    statement = blank_statement(pair)
    kind = describe_kind(pair.second, pair.second_name)
    question = _name_pattern(pair.second_name).sub(
        f"that {kind}" if kind else "the one left out", second_question
    )
    # "Grönefeld" beside the blank of Anna-Lena Grönefeld: then nobody needs the first passage.
    names = {
        word
        for word in _words(f"{pair.second_name} {passage_name(pair.second)}")
        if len(word) > _LEAST_TELLING
    }
    if not statement or question == second_question or names & set(_words(statement)):
        return ""
    return f'"{pair.first_name}" says: "{statement}" {question[0].upper()}{question[1:]}'


def first_question(pair: LinkedPair) -> str:
    """Return the first hop as a question of its own."""
    return f'Which name is left out in this sentence of "{pair.first_name}": "{blank_statement(pair)}"?'


def clean_question(reply: str) -> str:
    """Return the question that a model wrote: the first line to its question mark; "" if it has none.

    >>> clean_question(" Who wrote it? Ida.")
    'Who wrote it?'
    """
    line = next((each.strip() for each in reply.splitlines() if each.strip()), "")
    question, mark, _ = line.removeprefix("Question:").strip().strip('"').partition("?")
    return f"{question}?" if mark and len(question.split()) > 2 else ""


def without_tags(question: str, passages: Sequence[Passage]) -> str:
    """Return a question without what tells a title from others that are alike, as nobody would say it.

    >>> without_tags("Who directed Air (2012 Film)?", [Passage("1", "Air (2012 film)", "...")])
    'Who directed Air?'
    """
    tags = [match[0] for each in passages if (match := re.search(r"\s+\([^()]+\)$", each.title))]
    for tag in tags:
        question = re.sub(re.escape(tag), "", question, flags=re.IGNORECASE)
    return question


def _blank_name(text: str, pair: LinkedPair) -> str:
    return _name_pattern(pair.second_name).sub("____", text)


def _shorten(before: str, after: str) -> str:
    first, last = before.split(), after.split()
    if len(first) + len(last) > _MOST_WORDS:
        first_count = min(len(first), max(_WORDS_BEFORE, _MOST_WORDS - len(last)))
        before = f"... {' '.join(first[-first_count:])} " if first_count < len(first) else before
        rest = _MOST_WORDS - first_count
        separator = "" if after[:1] not in (" ", "") else " "
        after = f"{separator}{' '.join(last[:rest])} ..." if rest < len(last) else after
    return " ".join(f"{before}____{after}".replace('"', "'").split())


def _name_pattern(name: str) -> re.Pattern[str]:
    bare = re.escape(re.sub(r"^the\s+", "", name, flags=re.IGNORECASE))
    return re.compile(rf"(?<!\w)(?:[\"'“‘]\s*)?(?:the\s+)?{bare}(?!\w)(?:\s*[\"”])?", re.IGNORECASE)


def _words(text: str) -> list[str]:
    return re.findall(r"\w+", text.lower()) or [""]
