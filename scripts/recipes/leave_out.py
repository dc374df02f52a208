"""Training questions without what stands in other question files, in our own format.

    python scripts/recipes/leave_out.py OUT FORMAT TRAIN FORMAT:FILE ...

Writes OUT/questions.jsonl, OUT/corpus.jsonl (the paragraphs that are left) and OUT/left.jsonl (questions with
a gold paragraph, or a question, that stands in one of the files: good for choosing among settings). A
paragraph is left out for its title or the first 200 characters of its text, whatever their punctuation.
FORMAT: of a dataset, or one of ``reading_sources.py``. Of more questions than $MOST some are drawn.
"""

from __future__ import annotations

import json
import os
import random
import re
import sys
from pathlib import Path

from reading_sources import READERS

from corag.core.json_types import to_json_types
from corag.core.types import Passage, Question
from eval.datasets.load import load_questions
from eval.datasets.paragraphs import read_pooled
from eval.datasets.registry import DATASETS
from retrieval.corpora.passages import Reading


def normalise(text: str) -> str:
    """Return a text in lower case with its words alone."""
    return re.sub(r"\W+", " ", text.lower()).strip()


def read(form: str, file: str) -> tuple[list[Question], list[Passage]]:
    """Read questions and paragraphs of a file."""
    if form in READERS:
        return READERS[form](file)
    paragraphs = DATASETS[form].paragraphs
    pool = read_pooled([file], Reading(), paragraphs, DATASETS[form].read_file) if paragraphs else ()
    return list(load_questions(file, form)), [each for each in pool if isinstance(each, Passage)]


def main(out: str, form: str, train: str, *held_out: str) -> None:
    """Write the three files and print what was left out."""
    titles, texts, question_texts = set(), set(), set()
    for name in held_out:
        others, paragraphs = read(*name.split(":", 1))
        titles |= {normalise(each.title) for each in paragraphs}
        texts |= {normalise(each.text)[:200] for each in paragraphs}
        question_texts |= {normalise(each.text) for each in others}
        question_texts |= {normalise(hop.question) for each in others for hop in each.decomposition}
    questions, passages = read(form, train)
    kept_passages = [
        each
        for each in passages
        if normalise(each.title) not in titles and normalise(each.text)[:200] not in texts
    ]
    ids = {each.id for each in kept_passages}
    fits = [
        normalise(each.text) not in question_texts and ids.issuperset(each.supporting) for each in questions
    ]
    learn = [each for each, fit in zip(questions, fits, strict=True) if fit]
    most = int(os.environ.get("MOST", 0))
    if 0 < most < len(learn):
        learn = random.Random(0).sample(learn, most)
    folder = Path(out)
    folder.mkdir(parents=True, exist_ok=True)
    left_out = [each for each, fit in zip(questions, fits, strict=True) if not fit]
    for name, rows in ("questions", learn), ("left", left_out), ("corpus", kept_passages):
        lines = [json.dumps(_record(each)) + "\n" for each in rows]
        (folder / f"{name}.jsonl").write_text("".join(lines))
    sys.stdout.write(
        f"{out}: {len(learn)} questions of {len(questions)}, {len(left_out)} left out; "
        f"{len(kept_passages)} paragraphs of {len(passages)}\n"
    )


def _record(each: Question | Passage) -> dict[str, object]:
    if isinstance(each, Passage):
        return {"id": each.id, "title": each.title, "text": each.text}
    hops = [{"question": hop.question, "answer": hop.answer} for hop in each.decomposition]
    answers, supporting = to_json_types(each.answers), to_json_types(each.supporting)
    return {
        "id": each.id, "question": each.text, "answers": answers, "supporting": supporting,
        "type": each.kind, "decomposition": hops,
    }  # fmt: skip


if __name__ == "__main__":
    main(*sys.argv[1:])
