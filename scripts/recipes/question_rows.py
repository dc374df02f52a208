"""Training rows for what `corag questions` asks of a model: to write a question, join two, and read passages.

    python scripts/recipes/question_rows.py OUT MODEL FORMAT:FILE ...
    corag train --rows OUT --model MODEL --out ADAPTER
    corag questions INDEX --out made.jsonl --model.name MODEL --model.adapter ADAPTER

A small model that follows no instructions learns it from questions with sub-questions: training files of
MuSiQue (musique:FILE), whose wording varies, then of 2WikiMultihopQA in the release that brings them
(2wikimultihopqa:FILE); 1,200 rows at most, the first file's first. MODEL is a folder, a name on the hub, or
"default". What it gave: docs/results/questions.md.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from corag.baselines.one_step import OneStepConfig
from corag.chains.config import CoRAGConfig
from corag.core.identity import identity_of
from corag.core.json_types import to_json_types
from corag.core.prompting.render import render_passages
from corag.core.prompting.template import load_prompt
from corag.core.reader import reader_prompt
from corag.core.text import mentions
from corag.core.types import Passage, Question
from corag.generation.models import model_folder
from corag.generation.rendering import Renderer
from eval.datasets.load import load_questions
from eval.datasets.paragraphs import read_pooled
from eval.datasets.registry import DATASETS
from eval.making.procedure import PROMPTS
from retrieval.linked_pairs import passage_name
from training import tables
from training.data import MadeRow, RowMaker, RowsConfig, TrainingRow
from training.row_source import TrainingExample
from training.rows import REPORT, RowsReport, rows_table

_QUESTION, _COMPOSITION = (load_prompt(name, name, PROMPTS) for name in ("question", "composed"))
_READER = OneStepConfig(max_answer_tokens=32)
_CONFIG = RowsConfig(tasks=("no_chain",), max_length=640)
_MOST = {"question": 500, "composed": 300, "one_step": 400}
_DISTRACTORS = 2  # other passages in the rows of reading two


class _Hop(NamedTuple):
    question: str
    answer: str
    passage: Passage | None
    is_worded: bool  # not only a relation, as some of MuSiQue's: "Hello Love >> performer"


def _hops(question: Question, by_id: Mapping[str, Passage], by_name: Mapping[str, Passage]) -> list[_Hop]:
    """Return the hops with earlier answers in place of #1, and the passages that they are about."""
    hops: list[_Hop] = []
    for hop in question.decomposition:
        text = hop.question
        for number, earlier in reversed(list(enumerate(hops, 1))):
            text = text.replace(f"#{number}", earlier.answer)
        text = " ".join(text.split())
        text = f"{text[0].upper()}{text[1:].rstrip('.?')}?"
        names = [name for name in by_name if mentions([text], [name])]
        passage = by_id.get(hop.passage_id) or (by_name[max(names, key=len)] if names else None)
        hops.append(_Hop(text, hop.answer, passage, ">>" not in text))
    return hops


def examples(
    question: Question, by_id: Mapping[str, Passage], by_name: Mapping[str, Passage], draw: random.Random
) -> Iterator[TrainingExample]:
    """Yield what is taught of a question: each hop written and read, both joined, and both read."""
    hops = _hops(question, by_id, by_name)
    for number, hop in enumerate(hops, 1):
        if hop.passage is None or not hop.is_worded or not mentions([hop.passage.contents], [hop.answer]):
            continue
        if mentions([hop.question], [passage_name(hop.passage)]) and not mentions(
            [hop.question], [hop.answer]
        ):
            paragraphs = render_passages([hop.passage], _QUESTION, _READER.max_shown_words, goes_first="last")
            prompt = _QUESTION.render({"paragraphs": paragraphs, "answer": hop.answer})
            yield TrainingExample(question.id, "question", number, prompt, hop.question)
        prompt = reader_prompt(Question("", hop.question), [hop.passage], _READER)
        yield TrainingExample(question.id, "one_step", number, prompt, hop.answer)
    if len(hops) != 2 or mentions([question.text], [each.answer for each in hops]):
        return
    first, second = hops
    if first.passage is None or second.passage is None or first.passage == second.passage:
        return
    if first.is_worded and second.is_worded and mentions([second.question], [first.answer]):
        values = {"first": first.question, "name": first.answer, "second": second.question}
        yield TrainingExample(question.id, "composed", 0, _COMPOSITION.render(values), question.text)
    both = [first.passage, second.passage]
    for passages in (
        both,
        draw.sample([*both, *draw.sample(list(by_id.values()), _DISTRACTORS)], 2 + _DISTRACTORS),
    ):
        prompt = reader_prompt(Question("", question.text), passages, _READER)
        yield TrainingExample(question.id, "one_step", 0, prompt, second.answer)


def _most(by_file: Sequence[Sequence[TrainingRow]], draw: random.Random) -> list[TrainingRow]:
    """Return as many rows of each task as are taught, those of the first file first."""
    kept_rows: list[TrainingRow] = []
    for task, most in _MOST.items():
        of_task = [row for rows in by_file for row in draw.sample(rows, len(rows)) if row.task == task]
        kept_rows += of_task[:most]
    return kept_rows


def main(out: str, model: str, *files: str) -> None:
    """Write the rows and print how many there are."""
    renderer = Renderer.load(model_folder(model, weights=False))
    maker, draw = RowMaker(renderer, _CONFIG, CoRAGConfig()), random.Random(0)
    by_file: list[list[TrainingRow]] = []
    for each in files:
        form, file = each.split(":", 1)
        paragraphs = DATASETS[form].paragraphs
        pool = read_pooled([file], paragraphs) if paragraphs else ()
        by_id = {passage.id: passage for passage in pool if isinstance(passage, Passage)}
        by_name = {name: passage for passage in by_id.values() if (name := passage_name(passage))}
        made_rows = (
            maker.make_row(example).row
            for question in load_questions(file, form)
            for example in examples(question, by_id, by_name, draw)
        )
        by_file.append([row for row in made_rows if row is not None])
    kept_rows = _most(by_file, draw)
    settings = {
        "chains": [],
        "files": list(files),
        "rows": identity_of(_CONFIG),
        "tokenizer": renderer.fingerprint,
    }
    prompts = {"one_step": [template.identity for template in _READER.templates()]}
    report = RowsReport(to_json_types(settings), files=list(files), trained_for=prompts)
    for row in kept_rows:
        report.add("train", MadeRow(row.task, row))
    tables.make_room(Path(out))
    tables.save(Path(out), {"train": [rows_table(kept_rows)], "validation": []}, REPORT, report)
    counts = ", ".join(f"{sum(row.task == task for row in kept_rows)} {task}" for task in _MOST)
    sys.stdout.write(f"{counts}: {report.tokens:,} tokens in {out}\n")


if __name__ == "__main__":
    if len(sys.argv) < 4:
        sys.exit(__doc__)
    main(*sys.argv[1:])
