"""Training questions out of files that are no question set: ``leave_out.py`` reads them by these formats.

``nq_qed``: search-engine questions with a paragraph each (QED's rows of Natural Questions). ``squad_lines``:
SQuAD's questions, one a line. ``hotpotqa_chains``: a larger model's sub-questions of HotpotQA's training
questions; ``wrong_hops``: these questions with hops that are wrong or refused. ``facts``: what an
encyclopedia's abstracts state, by the patterns in ``facts.toml``; ``comparisons``: pairs of such facts, the
directors of films made up. Files may be compressed; several are joined by commas.
"""

from __future__ import annotations

import gzip
import json
import random
import re
import tomllib
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from corag.chains.config import CoRAGConfig
from corag.core.language.text import mentions
from corag.core.types import GoldHop, Passage, Question

Source = tuple[list[Question], list[Passage]]
_MOST_WORDS = 6  # of an answer: sub-answers are short
_MOST_OF_A_KIND = 220  # facts by one pattern
_COMPARISONS = 2600
_PIECE = 90  # words of a passage, by whole sentences
_LONGEST_PIECE = 150  # tables and casts have no sentences
_FACTS = tomllib.loads((Path(__file__).parent / "facts.toml").read_text(encoding="utf-8"))


def rows_of(files: str) -> Iterator[Any]:
    """Yield the objects of files of JSON lines."""
    for file in files.split(","):
        with (gzip.open if file.endswith(".gz") else open)(file, "rt", encoding="utf-8") as opened:
            yield from map(json.loads, opened)


def pieces(text: str) -> list[str]:
    """Return a paragraph in pieces as long as an index's passages."""
    made = [""]
    for sentence in re.split(r'(?<=[.!?]) (?=[A-Z"])', text):
        if made[-1] and len(f"{made[-1]} {sentence}".split()) > _PIECE:
            made.append("")
        made[-1] = f"{made[-1]} {sentence}".strip()
    parts = [each.split() for each in made]
    starts = [(words, at) for words in parts for at in range(0, len(words), _LONGEST_PIECE)]
    return [" ".join(words[at : at + _LONGEST_PIECE]) for words, at in starts]


def untokenised(text: str) -> str:
    """Return a text without the spaces that a tokenizer put around punctuation.

    >>> untokenised("It opened ( in 1981 ) , didn 't it ?")
    "It opened (in 1981), didn't it?"
    """
    text = (
        re.sub(r"`` ?(.*?) ?''", r'"\1"', text).replace(" -- ", " – ").replace("``", '"').replace("''", '"')
    )
    return re.sub(r"([(\[$£€]) ", r"\1", re.sub(r" ([,.;:!?%)\]]|'\w)", r"\1", text)).strip()


def one_hop(key: str, text: str, answer: str, passage: Passage, kind: str) -> Question:
    """Return a question of one hop."""
    hop = GoldHop(text, answer, passage.id)
    return Question(key, text, (answer,), (passage.id,), kind=kind, decomposition=(hop,))


def read_paragraphs(rows: Sequence[tuple[str, str, str, str, str]], kind: str) -> Source:
    """Return questions with paragraphs in pieces. ``rows``: id, title, paragraph, question, answer."""
    questions, passages = list[Question](), dict[str, Passage]()
    for key, title, paragraph, text, answer in rows:
        parts = pieces(paragraph)
        for each in parts:
            passages.setdefault(each, Passage(f"{kind}{len(passages)}", title, each))
        whole = re.compile(rf"(?<!\w){re.escape(answer)}(?!\w)")
        # Some answers lost a letter: one must be whole words of its paragraph.
        holding = [passages[each] for each in parts if answer and whole.search(each)]
        if holding and len(answer.split()) <= _MOST_WORDS:
            questions.append(one_hop(key, text, answer, holding[0], kind))
    return questions, list(passages.values())


def read_nq_qed(files: str) -> Source:
    """Read questions that people gave a search engine."""
    rows = [
        (
            f"nq{row['example_id']}",
            row["title_text"],
            untokenised(row["paragraph_text"]),
            row["question_text"],
            untokenised(row["answer_text"][0]),
        )
        for row in rows_of(files)
        if len(row["answer_text"]) == 1
    ]
    return read_paragraphs(rows, "nq")


def read_squad_lines(files: str) -> Source:
    """Read SQuAD's questions."""
    rows = [
        (
            row["id"],
            row["title"].replace("_", " "),
            row["context"],
            row["question"].strip(),
            row["answers"][0]["text"],
        )
        for row in rows_of(files)
    ]
    return read_paragraphs(rows, "squad")


def read_hotpotqa_chains(files: str) -> Source:
    """Read chains, questions with paragraphs and the corpus of these, in this order.

    The chain is taken of bridge questions whose first answer stands in a gold paragraph and that end right.
    """
    chains, questions_file, corpus = files.split(",")
    passages = [
        Passage(f"hotpotqa-{at}", row["title"], row["text"]) for at, row in enumerate(rows_of(corpus))
    ]
    by_title = {each.title: each for each in passages}
    chain_of = {row["id"]: row for row in rows_of(chains)}
    questions = []
    for row in rows_of(questions_file):
        titles = dict.fromkeys(each["title"] for each in row["paragraphs"] if each["is_gold"])
        golds = [by_title[each] for each in titles if each in by_title]
        question = Question(
            row["id"], row["question"], (row["answer"],), tuple(each.id for each in golds), kind=row["type"]
        )
        hops = _hops(chain_of.get(row["id"], {}), question.text, golds)
        questions.append(replace(question, decomposition=hops))
    return questions, passages


def _hops(row: dict[str, Any], text: str, golds: Sequence[Passage]) -> tuple[GoldHop, ...]:
    first, answer, second = row.get("sub_q1"), row.get("hop1_answer"), row.get("sub_q2")
    if not (first and answer and second and row["em"]) or row["type"] != "bridge" or "(" in second:
        return ()
    is_copy = second.lower().strip() in {first.lower().strip(), text.lower().strip()}
    if is_copy or len(answer.split()) > _MOST_WORDS or len(golds) != 2:
        return ()
    holds = any(mentions([each.contents], [answer]) for each in golds)
    return (GoldHop(first, answer), GoldHop(second, row["gold"])) if holds else ()


def read_wrong_hops(files: str) -> Source:
    """Read questions whose hops are about a passage of theirs and wrong, or refused: final answers alone."""
    questions, passages = read_hotpotqa_chains(files)
    by_id, draw, made = {each.id: each for each in passages}, random.Random(3), []
    for question in questions:
        golds = [by_id[each] for each in question.supporting]
        if not mentions([each.contents for each in golds], question.answers):
            continue
        hops = []
        for passage in (golds * 2)[: draw.choice((1, 2, 2, 3))]:
            names = re.findall(r"[A-Z][\w'’-]+(?: [A-Z][\w'’-]+)+", passage.text) or [passage.title]
            ways = ("What is S?", "Who is S?", "Where is S located?", "When was S born?")
            answer = CoRAGConfig().refusal if draw.random() < 0.25 else draw.choice(names)
            hops.append(GoldHop(_fill(draw.choice(ways), S=passage.title), answer))
        made.append(replace(question, id=f"wrong-{question.id}", decomposition=tuple(hops)))
    return made, passages


# ---- facts of abstracts


def _fill(form: str, **names: str) -> str:
    return re.sub(rf"\b[{''.join(names)}]\b", lambda found: names[found[0]], form)


def _patterns() -> dict[str, tuple[str, list[str]]]:
    names, patterns = _FACTS["names"], {}
    for kind, (pattern, *forms) in _FACTS["facts"].items():
        while found := re.search(r"<([A-Z]+)>", pattern):
            pattern = pattern.replace(found[0], names[found[1]].strip())
        patterns[kind] = pattern, forms
    return patterns


PATTERNS = _patterns()


def plain_title(passage: Passage) -> str:
    """Return a title without what tells it from others of its name."""
    return re.sub(r" \(.*?\)$", "", passage.title)


def facts_of(passage: Passage) -> Iterator[tuple[str, str, str, str]]:
    """Yield kind, subject, question and answer of what an abstract states in a form that is known."""
    title = plain_title(passage)
    lands = _FACTS["names"]["LAND"]
    for kind, (pattern, forms) in PATTERNS.items():
        own = pattern.replace(r"\bS ", rf"\b{re.escape(title)} (?:\([^)]*\) )?")
        if (found := re.search(own, passage.text)) is None:
            continue
        groups = found.groupdict()
        values = groups.get("a") or title, groups.get("s") or title, groups.get("r") or ""
        answer, subject, role = (each.rstrip(".,'’- ") for each in values)
        is_land = re.fullmatch(lands, answer) is not None
        if (is_land and not kind.endswith("land")) or "War" in subject or len(answer.split()) > _MOST_WORDS:
            continue
        if mentions([subject], [answer]) or mentions([answer], [subject]):
            continue
        form = random.Random(f"{passage.id} {kind}").choice(forms)
        yield kind, subject, _fill(form, S=title, O=subject, R=role), answer


def read_abstracts(files: str) -> list[Passage]:
    """Return the abstracts that say something."""
    return [
        Passage(f"abstract-{row.get('_id') or row['id']}", row["title"], row["text"])
        for row in rows_of(files)
        if len(row["text"].split()) > 12
    ]


def read_facts(files: str) -> Source:
    """Ask of abstracts what they state, one fact each, of the kind that has the fewest."""
    passages = read_abstracts(files)
    counts, questions = Counter[str](), []
    for passage in random.Random(0).sample(passages, len(passages)):
        for kind, _, text, answer in sorted(facts_of(passage), key=lambda each: counts[each[0]])[:1]:
            if counts[kind] < _MOST_OF_A_KIND:
                counts[kind] += 1
                questions.append(one_hop(f"fact-{passage.id}", text, answer, passage, kind))
    return questions, passages


# ---- comparisons of them


def read_comparisons(files: str) -> Source:
    """Make comparisons of dates and of countries."""
    passages = read_abstracts(files)
    facts, films = defaultdict[str, list[tuple[str, str]]](list), list[str]()
    for passage in passages:
        title = plain_title(passage)
        found = {kind: answer for kind, _, _, answer in facts_of(passage)}
        year = re.search(r"is an? (\d{4}) [^.]*film", passage.text)
        values = {
            "born": found.get("birth") or found.get("life"),
            "died": found.get("death"),
            "land": found.get("land") if "birth" in found or "life" in found else None,
            "film": year and year[1],
            "founded": found.get("founded"),
        }
        for kind, value in values.items():
            facts[kind] += [(title, value)] if value else []
        films += [title] if year else []
    draw = random.Random(1)
    made = (_comparison(number, facts, films, draw) for number in range(_COMPARISONS))
    return [each for each in made if each is not None], passages


def _comparison(
    number: int, facts: dict[str, list[tuple[str, str]]], films: Sequence[str], draw: random.Random
) -> Question | None:
    kinds = [kind for kind in _FACTS["comparisons"] if len(facts[kind]) > 1]
    kind = draw.choice(kinds)
    forms = _FACTS["comparisons"][kind]
    (one, value), (other, second) = draw.sample(facts[kind], 2)
    way = draw.choice([each for each in forms if each != "hops"])
    if kind == "land" and draw.random() < 0.45:
        other, second = draw.choice([each for each in facts[kind] if each[1] == value])
    # A tie has no answer, and a year alone says nothing of the day.
    if one == other or (kind != "land" and _date(value)[0] == _date(second)[0]):
        return None
    asked, hops = (one, other), list[GoldHop]()
    if way.startswith("director"):
        asked = draw.choice(films), draw.choice(films)
        pairs = zip(asked, (one, other), strict=True)
        hops = [GoldHop(f"Who is the director of {film}?", director) for film, director in pairs]
    form = draw.choice(forms["hops"])
    hops += [GoldHop(_fill(form, S=one), value), GoldHop(_fill(form, S=other), second)]
    if kind == "land":
        answer = "yes" if value == second else "no"
    else:
        answer = asked[(_date(value) < _date(second)) != way.endswith("first")]
    text = _fill(draw.choice(forms[way]), A=asked[0], B=asked[1])
    name = f"comparison-{number}"
    return Question(
        name, text, (answer,), kind=kind, decomposition=tuple(hops), synthetic="made of abstracts"
    )


def _date(text: str) -> tuple[int, int, int]:
    months = re.search(_FACTS["names"]["MONTH"], text)
    names = _FACTS["names"]["MONTH"].strip("(?:)").split("|")
    day = re.search(r"\b\d{1,2}\b", text)
    year = re.search(r"\d{4}", text)
    return int(year[0]) if year else 0, names.index(months[0]) if months else 0, int(day[0]) if day else 0


READERS = {
    "nq_qed": read_nq_qed,
    "squad_lines": read_squad_lines,
    "hotpotqa_chains": read_hotpotqa_chains,
    "wrong_hops": read_wrong_hops,
    "facts": read_facts,
    "comparisons": read_comparisons,
}
