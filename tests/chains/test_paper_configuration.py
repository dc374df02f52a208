"""What eval/configs/paper_corag.yaml asks on a file of the authors' form, beside what their code sends.

Their side is the preset "released_code", which test_released_code.py holds against their agent's 142 runs,
with prompts in their layout. What the shipped configuration does otherwise stands in docs/methods/corag.md.
"""

from __future__ import annotations

import functools
import json
import re
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from corag.chains.config import CoRAGConfig
from corag.core.options.command_line import parse
from corag.core.prompting.demonstrations import CHAIN_OF_THOUGHT, read_demonstrations
from corag.core.tools import SearchStep, Tools
from corag.core.types import Passage, Question
from eval.sweeps.cells import Cell, read_cells
from eval.sweeps.sweep import SweepConfig
from tests.chains.released import PROMPTS, Script, corpus
from tests.chains.test_released_code import Scripted

ROOT = Path(__file__).parents[2]
CONFIG = ROOT / "eval/configs/paper_corag.yaml"
TABLE_1 = ("--grid", "", "--cells", str(ROOT / "eval/configs/paper_corag_table1.yaml"))
WORLD = [Passage(str(at), title, text) for at, (title, text) in enumerate(corpus(8))]


def unordered(prompt: str) -> str:
    """Return a prompt with a hop's passages in no order: theirs have the best last, ours first."""
    passages = re.findall(r"^Title \d+\n.*\n\n", prompt, re.MULTILINE) if prompt.startswith("READ\n") else []
    return functools.reduce(lambda text, each: text.replace(each, "", 1), passages, prompt) + "".join(
        sorted(passages)
    )


class Found(Script):
    """A script whose every search finds passages, as an exact index's does, in whatever order they are read.

    It reads worked examples, too.
    """

    def reply(self, prompt: str, temperature: float, n: int) -> list[str]:
        return super().reply(unordered(prompt), temperature, n)

    def found(self, query: str, corpus: int) -> list[int]:
        found = super().found(query, corpus)
        return found or super().found(f"{query} again", corpus) or [7, 21, 3]

    def _one(self, kind: str, key: str) -> str:
        return super()._one(kind, key) if kind in ("NEXT", "READ", "FINAL") else "Issel"


@pytest.fixture
def files(tmp_path: Path) -> list[str]:
    """Options that name a question file of the authors' form and their layout of prompts."""
    question = Found(4).question
    record = {
        "query": question,
        "query_id": "q4",
        "answers": ["Issel"],
        "context_doc_ids": [str(place) for place in Found(4).found(question, len(WORLD))],
        "subqueries": ["who wrote it", "where is it"],
        "subanswers": ["Mara Velden", "No relevant information found"],
        "predictions": "Issel",
    }
    (tmp_path / "musique.jsonl").write_text(f"{json.dumps(record)}\n")
    for name, text in PROMPTS.items():
        (tmp_path / f"{name}.txt").write_text(f"version: 1\n{text}\n")
    prompts = [word for name in PROMPTS for word in (f"--corag.{name}", str(tmp_path / f"{name}.txt"))]
    local = ["--subset", "", "--split", "", "--questions", str(tmp_path / "musique.jsonl")]
    return [*local, *prompts]


def cells(*options: str) -> tuple[Question, list[Cell]]:
    config = parse(SweepConfig, ["--config", str(CONFIG), *options], "corag sweep", "")
    (question,) = config.load()
    return question, read_cells(config, config.cells, config.grid)


async def run(question: Question, cell: Cell, **options: Any) -> tuple[Scripted, Tools]:
    """Run a cell's method on the script."""
    model = Scripted(Found(4, plain=True), WORLD)
    tools = Tools(question, model, model)
    settings = replace(cell.options, **options)
    await cell.config.find_method(cell.method).function(question, tools, settings)
    return model, tools


def asked(model: Scripted) -> Counter[tuple[str, float, int]]:
    return Counter((unordered(prompt), temperature, n) for prompt, temperature, n in model.asked)


@pytest.mark.parametrize("options", [(), TABLE_1], ids=["sweep", "table 1"])
async def test_every_cell_of_chains_asks_what_the_authors_code_asks(files, options) -> None:
    question, shipped = cells(*files, *options)
    _, theirs = cells(*files, *options, "--corag.preset", "released_code")
    strategies = set()
    for ours, authors in zip(shipped, theirs, strict=True):
        if ours.method != "corag":
            continue
        config: CoRAGConfig = ours.options
        # The paper samples all chains, and trees keep rollouts: docs/methods/corag.md.
        named = {"first_chain_greedy": config.strategy == "best_of_n", "reuse": config.strategy == "greedy"}
        (model, tools), (sent, _) = await run(question, ours, **named), await run(question, authors)
        assert asked(model) == asked(sent), ours.name
        assert Counter(model.scored) == Counter(sent.scored)
        searches = [step.query for step in tools.steps if isinstance(step, SearchStep)]
        assert searches[0] == question.text, "the question is searched for, not given"
        strategies.add(config.strategy)
    assert strategies == {"greedy", "best_of_n", "tree"}


async def test_the_rows_without_chains_show_three_examples_and_twenty_passages(files) -> None:
    question, shipped = cells(*files)
    examples = read_demonstrations(str(CHAIN_OF_THOUGHT), 3)
    seen = {}
    for cell in shipped:
        if cell.method == "corag":
            continue
        model, tools = await run(question, cell)
        ((prompt, temperature, n),) = model.asked
        assert (temperature, n) == (0, 1) and prompt.endswith(f"Q: {question.text}\nA:")
        assert [prompt.count(f"Q: {each.question}\nA: {each.direct().answer}") for each in examples] == [
            1
        ] * 3
        seen[cell.method] = [(step.query, step.k) for step in tools.steps if isinstance(step, SearchStep)]
    assert seen == {"closed_book": [], "one_step": [(question.text, 20)]}
