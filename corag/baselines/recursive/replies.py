"""Reading what the model replies to recursive RAG's prompts, and what passages refer to.

Models put bullets, bold type and headings around the labels that they are asked for, so these are read
wherever they stand in a line. The tutorial reads them at the start of a line only.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from corag.core.language.sentences import first_sentence
from corag.core.language.text import normalize_answer, says_none

MARKS = r"[\s>*_`#•·–-]*"  # bullets, quotations, bold type and headings before a label, or around its colon


def clean(value: str) -> str:
    """Take off white space, marks and one pair of quotation marks around a value."""
    value = value.strip().strip("*_`").strip()
    has_quotes = len(value) >= 2 and value[0] + value[-1] in ('""', "''", "“”")
    return value[1:-1].strip() if has_quotes else value


# A judgement of what was found

_LABELS = {
    "enough": r"answerable|sufficient",
    "gap": r"missing|gaps?",
    "query": r"next[ _-]?quer(?:y|ies)|follow[ _-]?ups?(?:[ _-]?quer(?:y|ies))?",
}
_ANY_LABEL = "|".join(f"(?P<{name}>{pattern})" for name, pattern in _LABELS.items())
_LINE = re.compile(
    rf"^{MARKS}(?:\d+[.)]{MARKS})?(?:{_ANY_LABEL})[ _-]*\d*{MARKS}[:=](?P<value>.*)$", re.IGNORECASE
)
# Upper case only: "missing:" within a sentence is a word.
_LABEL_WITHIN_A_LINE = re.compile(
    r"\s+(?=(?:ANSWERABLE|MISSING|NEXT_QUERY|SUFFICIENT|GAPS?|FOLLOW_UP)\s*\d*\s*:)"
)
_ITEM = re.compile(r"^\s*(?:[-*•·–]|\d+[.)])\s+(?P<value>.*)$")
# What is sufficient in part is not sufficient.
_YES_OR_NO = re.compile(r"\W*(?:(?P<yes>yes|true)|no|not|false|partly|partially)\b", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Gaps:
    """What the model says about the passages, as far as it could be read.

    ``enough``: None if it says neither yes nor no.
    """

    enough: bool | None = None
    gaps: tuple[str, ...] = ()
    queries: tuple[str, ...] = ()


def parse_gaps(reply: str) -> Gaps:
    r"""Read a judgement: labels in any case, bulleted, bold, or several in a line; a list may follow one.

    Yes or no is the first word after the label. Items are separated by lines or semicolons, never by commas,
    which stand in names ("Paris, Texas").

    >>> parse_gaps("- **Sufficient:** no\nGAPS:\n- people of Paris, Texas\nFOLLOW_UP: none")
    Gaps(enough=False, gaps=('people of Paris, Texas',), queries=())
    """
    pairs: list[tuple[str, str]] = []
    for line in _LABEL_WITHIN_A_LINE.sub("\n", reply).splitlines():
        if match := _LINE.match(line):
            pairs.append((next(name for name in _LABELS if match[name]), clean(match["value"])))
        elif pairs and line.strip():
            item = _ITEM.match(line)
            # An item of the list under a label, or the value that its line lacked.
            if item or not pairs[-1][1]:
                pairs.append((pairs[-1][0], clean(item["value"] if item else line)))
    flags = [says_yes(value) for name, value in pairs if name == "enough"]
    return Gaps(
        next((word for word in flags if word is not None), None),
        _items(pairs, "gap"),
        _items(pairs, "query"),
    )


def _items(pairs: Sequence[tuple[str, str]], label: str) -> tuple[str, ...]:
    items = [clean(item) for name, value in pairs if name == label for item in value.split(";")]
    return tuple(item for item in items if not says_none(item) and normalize_answer(item) != "no")


def says_yes(value: str) -> bool | None:
    """Return whether a value begins with yes, None if it begins with neither yes nor no."""
    match = _YES_OR_NO.match(value)
    return None if match is None else match["yes"] is not None


# A plan of sub-questions that depend on each other: written as lines, checked as a graph

# "SUB2: ...", "Sub-question 2) ...", "**Q2.** ...", "2. ..."; not "2.5 million".
_PART = re.compile(
    rf"^{MARKS}(?P<label>sub(?:[ _-]?(?:question|query))?|q(?:uestion)?)?[ _#-]*(?P<number>\d{{1,2}})(?!\d)"
    rf"{MARKS}(?P<mark>[:)\]]|\.(?!\d))?(?P<text>.*)$",
    re.IGNORECASE,
)
_NEEDS = re.compile(rf"^{MARKS}depends(?:[ _]on)?{MARKS}[:=]?(?P<value>.*)$", re.IGNORECASE)
_PART_WITHIN_A_LINE = re.compile(
    r"[\s(\[;,]+(?=[*_]*(?:DEPENDS|depends)(?:[ _](?:ON|on))?[*_]*\s*:)|\s+(?=SUB ?\d{1,2}\s*:)"
)
_REFERENCE = re.compile(r"(?:#|\bSUB[ _-]?)(\d{1,2})\b")


@dataclass(frozen=True, slots=True)
class SubQuestion:
    """A sub-question.

    ``needs``: numbers of those whose answers it waits for, whether named in a list or, as "#1", in its text.
    A number in the text that is no other sub-question's is a word like others.
    """

    number: int
    text: str
    needs: tuple[int, ...] = ()

    def with_answers(self, answers: Mapping[int, str]) -> str:
        """Return the text with the answers that it needs where their numbers stand, the others in brackets.

        >>> SubQuestion(2, "Where was #1 born?", (1,)).with_answers({1: "Jane Austen"})
        'Where was Jane Austen born?'
        """
        numbers = set(mentioned_numbers(self.text)).intersection(self.needs)
        text = _REFERENCE.sub(
            lambda match: answers[int(match[1])] if int(match[1]) in numbers else match[0], self.text
        )
        others = [answers[number] for number in self.needs if number not in numbers]
        return f"{text} ({'; '.join(others)})" if others else text


@dataclass(frozen=True, slots=True)
class Plan:
    """Sub-questions in waves: each waits for earlier waves only, so those of one wave go at the same time.

    ``problem``: why the plan is refused, "malformed" (no sub-question), "unknown_reference" or "cycle"; then
    there are no waves. ``ignored``: lines that should have been a sub-question and were not.
    """

    waves: tuple[tuple[SubQuestion, ...], ...] = ()
    problem: str = ""
    ignored: int = 0

    @property
    def sub_questions(self) -> tuple[SubQuestion, ...]:
        """All sub-questions, wave by wave."""
        return tuple(each for wave in self.waves for each in wave)


def parse_plan(reply: str, limit: int) -> Plan:
    r"""Read "SUBn: question" lines, or a numbered list, each perhaps followed by "DEPENDS: SUB1, SUB2".

    A sub-question without text, a repeated number, and what comes after the first ``limit`` are ignored, and
    counted. A list may name what does not exist, and the plan is refused; a "#1" in a text then is a word
    ("the #1 single of 1985").

    >>> parse_plan("1. Who wrote Emma?\n2. Where was #1 born?", 5).waves[1]
    (SubQuestion(number=2, text='Where was #1 born?', needs=(1,)),)
    """
    parts: dict[int, SubQuestion] = {}
    newest: int | None = None  # the one that a line of dependencies belongs to; None after an ignored one
    ignored_lines = 0
    for line in _PART_WITHIN_A_LINE.sub("\n", reply).splitlines():
        if match := _NEEDS.match(line):
            if newest is not None:
                numbers = tuple(map(int, re.findall(r"\d+", match["value"])))
                parts[newest] = replace(parts[newest], needs=(*parts[newest].needs, *numbers))
        elif (match := _PART.match(line)) and (
            match["mark"] or (match["label"] or "").lower().startswith("sub")
        ):
            number, text = int(match["number"]), clean(match["text"])
            newest = None
            if says_none(text) or number in parts or len(parts) >= limit:
                ignored_lines += 1
                continue
            newest = number
            parts[number] = SubQuestion(number, text)
    complete = []
    for part in parts.values():
        others = (
            number for number in mentioned_numbers(part.text) if number in parts and number != part.number
        )
        complete.append(replace(part, needs=tuple(dict.fromkeys((*part.needs, *others)))))
    return replace(in_waves(complete), ignored=ignored_lines)


def mentioned_numbers(text: str) -> tuple[int, ...]:
    """Return the numbers that stand in a text as those of sub-questions do, "#1" or "SUB1"."""
    return tuple(int(number) for number in _REFERENCE.findall(text))


def in_waves(parts: Sequence[SubQuestion]) -> Plan:
    """Sort sub-questions by what they wait for (Kahn's algorithm, layer by layer), or return the problem."""
    if not parts:
        return Plan(problem="malformed")
    numbers = {part.number for part in parts}
    if any(need not in numbers for part in parts for need in part.needs):
        return Plan(problem="unknown_reference")
    waves: list[tuple[SubQuestion, ...]] = []
    earlier: set[int] = set()
    waiting = list(parts)
    while waiting:
        wave = tuple(part for part in waiting if earlier.issuperset(part.needs))
        if not wave:
            return Plan(problem="cycle")
        waves.append(wave)
        earlier.update(part.number for part in wave)
        waiting = [part for part in waiting if part.number not in earlier]
    return Plan(tuple(waves))


# What passages refer to

# Markdown, not images; an address may hold one pair of brackets, as Wikipedia's do.
_LINK = re.compile(r"(?<!!)\[(?P<text>[^\[\]\n]+)\]\((?:[^()\s]|\([^()\s]*\))*(?:\s[^()]*)?\)")
_PHRASE = re.compile(
    r"\b(?:for (?:more |further )?(?:information|details?),?\s+(?:please\s+)?(?:see|read)(?:\s+also)?"
    r"|see also|refer(?:s|ring)?\s+to|as described in)\b\s*:?\s*",
    re.IGNORECASE,
)
_BREAK = re.compile(r"[;\n]")
_SHORTEST = 4  # characters; the tutorial drops references of three or less


def find_references(text: str) -> list[tuple[str, str]]:
    """Return what a text refers to, in order of appearance, without repeats.

    That is what follows "see also", "refer to", "as described in" or "for more information see" up to the end
    of the sentence, and the texts of Markdown links; where links follow such words, they alone count. Less
    than four characters is no reference. Each comes with the words that make it one, or "link".

    >>> find_references("A ([film](f.md)). See also Mara Velden. For details, see the list of U.S. towns.")
    [('film', 'link'), ('Mara Velden', 'see also'), ('the list of U.S. towns', 'for details, see')]
    """
    references = [(link.start(), link["text"], "link") for link in _LINK.finditer(text)]
    for phrase in _PHRASE.finditer(text):
        phrase_text = first_sentence(_BREAK.split(text[phrase.end() :], maxsplit=1)[0])
        if not _LINK.search(phrase_text):
            references.append((phrase.start(), phrase_text, " ".join(phrase[0].lower().split()).rstrip(" :")))
    references_by_text: dict[str, str] = {}
    for _, reference, words in sorted(references):
        references_by_text.setdefault(" ".join(reference.split()).strip(" *_`\"'“”:,").rstrip(".!?"), words)
    return [
        (reference, words) for reference, words in references_by_text.items() if len(reference) >= _SHORTEST
    ]
