"""What eval/configs/paper_ircot.yaml asks, from files of the authors' form, beside what their code sends."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from corag.core.options.command_line import parse
from corag.core.runs.manifest import Manifest
from corag.core.system.files import file_digest
from corag.core.tools import Tools
from corag.core.types import Question
from eval.experiment.run import method_settings
from eval.sweeps.cells import Cell, read_cells
from eval.sweeps.sweep import SweepConfig
from eval.tables.conditions import describe_conditions
from tests.eval.runs import make_run
from tests.ircot.released import PREFIXES, found
from tests.ircot.test_released_code import Scripted

ROOT = Path(__file__).parents[2]
SETS = ROOT / "eval/configs/paper_ircot_sets/hotpotqa.yaml"
IDS = {name: cell.popitem()[1] for name, cell in yaml.safe_load(SETS.read_text()).items()}
SEED, QUESTION = 4, "Which river is of book 4?"


def example(file: str, qid: str) -> str:
    """An example as the authors' files have it, whose distractor tells the file."""
    kind = "cot" if "_cot_" in file else "direct"
    passages = f"Wikipedia Title: P{qid}\nText.\n\nWikipedia Title: Of {file}\nText.\n\n"
    shown = "" if file.startswith("no_context") else passages
    reply = f"By {qid}. So the answer is: {qid}." if kind == "cot" else qid
    return f"{shown}Q: {PREFIXES[kind]}Who made {qid}?\nA: {reply}"


@pytest.fixture
def authors_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The folder of the authors' prompts, with more examples than a set has, in another order."""
    ids = sorted({qid for chosen in IDS.values() for qid in chosen})
    folder = tmp_path / "prompts-of-ircot/prompts/hotpotqa"
    folder.mkdir(parents=True)
    contexts = ["no_context", *(f"gold_with_{number}_distractors_context" for number in (1, 2, 3))]
    for file in (f"{context}_{kind}_qa_flan_t5.txt" for context in contexts for kind in PREFIXES):
        blocks = [f'# METADATA: {{"qid": "{qid}"}}\n{example(file, qid)}' for qid in ids]
        (folder / file).write_text("\n\n\n".join(blocks) + "\n")
    monkeypatch.chdir(tmp_path)


def cells(*options: str) -> list[Cell]:
    argv = ["--config", str(ROOT / "eval/configs/paper_ircot.yaml"), "--questions", "q.jsonl", *options]
    config = parse(SweepConfig, argv, "corag sweep", "")
    return read_cells(config, config.cells, config.grid)


async def asked(cell: Cell) -> list[str]:
    """Run a cell's method on the script and return its prompts."""
    model = Scripted(SEED)
    question = Question("q", QUESTION, ())
    tools = Tools(question, model, model)
    await cell.config.find_method(cell.method).function(question, tools, cell.options)
    return model.prompts


@pytest.mark.usefixtures("authors_files")
@pytest.mark.parametrize("options", [(), ("--grid", "", "--cells", str(SETS))], ids=["choose", "test"])
async def test_every_cell_asks_as_the_authors_code_does(options: tuple[str, ...]) -> None:
    asked_by = set()
    for cell in cells(*options):
        cell.options.check_files()
        ids = IDS[cell.name] if options else IDS["one_step set 1"]
        thinking = Path(cell.options.demonstrations).name
        *thoughts, reader = await asked(cell)
        assert bool(thoughts) == (cell.method == "ircot")
        for kind, sent in (("cot", thoughts), ("direct", [reader])):
            shown = "\n\n\n".join(example(thinking.replace("_cot_", f"_{kind}_"), qid) for qid in ids)
            for prompt in sent:
                assert prompt.startswith(f"{shown}\n\n\n")
                *passages, query = prompt.removeprefix(f"{shown}\n\n\n").split("\n\n")
                assert query.startswith(f"Q: {PREFIXES[kind]}{QUESTION}\nA:")
                assert all(passage.startswith("Wikipedia Title: Page ") for passage in passages)
        if cell.method == "one_step":
            assert len(passages) == len(found(SEED, "river of book 4?", cell.options.k)) > 0
        asked_by.add(cell.method)
    assert asked_by == ({"ircot", "one_step", "closed_book"} if options else {"ircot", "one_step"})


@pytest.mark.usefixtures("authors_files")
def test_manifest_and_notes_name_the_readers_own_file_for_every_method(tmp_path: Path) -> None:
    first = cells("--grid", "", "--cells", str(SETS))[:3]
    runs = {
        each.method: make_run(tmp_path / each.method, [], method_settings(each.config, each.method))
        for each in first
    }
    notes = describe_conditions({name: Manifest.read(run) for name, run in runs.items()}).lines_by_run
    for cell in first:
        thinking = cell.options.demonstrations
        for file in (thinking, thinking.replace("_cot_", "_direct_")):
            assert f"{file} ({file_digest(file)[:8]})" in notes[cell.method]
