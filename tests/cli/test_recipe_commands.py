"""Each recipe's commands as bash gives them: options that exist, and files that an earlier one made."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, get_type_hints

import pytest

from corag.cli.commands import COMMANDS, load_command, split_command
from corag.core.options.command_line import parse
from eval.sweeps.cells import read_cells
from tests.cli.test_install import write_program

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]

# What stands in for corag and accelerate: it notes a command, fails if something that it names under
# results/ or indexes/ is not there, and makes what the command would make, empty.
NOTES = r"""
import json, pathlib, re, sys
words = sys.argv[1:]
with open("noted", "a") as file:
    file.write(json.dumps(words) + "\n")
places = [words.index(each) + 1 for each in ("--out", "--long_units") if each in words]
places = places or ([2] if words[1] == "world" else [])
out = words[places[0]] if places else ""
for each in places[1:]:
    pathlib.Path(words[each]).touch()
others = "\n".join(word for at, word in enumerate(words) if at not in places)
for each in re.findall(r"\b(?:results|indexes)/[^\s,']+", others):
    if not pathlib.Path(each).exists():
        sys.exit(f"{each} was not made before: {words}")
for made in {
    "world": ["train.jsonl", "dev.jsonl", "test.jsonl", "corpus.jsonl"],
    "run": ["corag/rows", "one_step/rows"],
    "rounds": ["warm-start/chains/rows", "round-1/chains/rows", "round-1/adapter/rows",
               "untuned/test/corag/rows", "warm-start/test/corag/rows", "round-1/test/corag/rows"],
    "sweep": ["cell/rows"],
}.get(words[1], ["rows"]):
    if out.endswith(".jsonl"):
        pathlib.Path(out).touch()
    elif out:
        file = pathlib.Path(out) / made
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("{}\n" * 700)
"""

# What stands in for the program that leaves held-out questions out: the files here hold none.
LEAVE_OUT = """
import pathlib, sys
folder = pathlib.Path(sys.argv[1])
folder.mkdir(parents=True)
for name in "questions", "corpus", "left":
    (folder / f"{name}.jsonl").touch()
"""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A repository with the recipes and all configurations, whose programs note what they are called with."""
    for folder in ("scripts/recipes", "scripts/configs", "training/configs", "eval/configs"):
        shutil.copytree(ROOT / folder, tmp_path / folder)
    (tmp_path / "notes.py").write_text(NOTES)
    for program in ("corag", "accelerate"):
        note = f'exec {sys.executable} -I {tmp_path}/notes.py {program} "$@"'
        write_program(tmp_path / ".venv/bin" / program, note)
    write_program(tmp_path / ".venv/bin/python", f'exec {sys.executable} -I "$@"')
    (tmp_path / "scripts/install.sh").write_text("exit 0\n")
    (tmp_path / "scripts/recipes/leave_out.py").write_text(LEAVE_OUT)
    (tmp_path / "scripts/recipes/as_multihopqa.py").write_text("import sys; open(sys.argv[2], 'w')")
    (tmp_path / "scripts/recipes/best_cell.py").write_text("")
    (tmp_path / "prompts-of-ircot/prompts").mkdir(parents=True)
    for folder in ("data/flashrag", "indexes/wiki18-e5"):  # in the place of downloads
        (tmp_path / folder).mkdir(parents=True)
    for name in ("nq", "triviaqa", "popqa", "hotpotqa", "2wikimultihopqa", "musique", "bamboogle"):
        question = {"id": "1", "question": "Who?", "golden_answers": ["A"]}
        (tmp_path / f"data/flashrag/{name}.jsonl").write_text(json.dumps(question))
    for name in ("train", "musique", "dev", "shots"):
        (tmp_path / f"{name}.json").write_text(json.dumps([{"number": number} for number in range(500)]))
    return tmp_path


def commands_of(root: Path, recipe: str, *words: str, **more: str) -> list[list[str]]:
    """Run a recipe, with more in its environment, and return what it called, program first."""
    command = ["bash", f"scripts/recipes/{recipe}.sh", *words]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("CORAG")}
    environment |= {"STAGES": "index choose test table"} | more
    done = subprocess.run(command, cwd=root, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in (root / "noted").read_text().splitlines()]


def read(words: Sequence[str]) -> Any:
    """Parse a command as its program would, cells included; raises ConfigError for what it does not know."""
    name, arguments = split_command(words[1:])
    command = COMMANDS[name]
    options, *_ = get_type_hints(load_command(name).main).values()
    config = parse(options, arguments, f"corag {name}", command.summary, command.positional)
    if name == "sweep":
        read_cells(config, config.cells, config.grid)
    return config


RECIPES = [
    ("train_loop", ["40"], ["world", "rounds", "table"]),
    ("four_methods", ["200"], ["world", "index", "sample", "rows", "train", "run", "table"]),
    (
        "another_model",
        ["default", "train.json", "musique.json", "dev.json", "200"],
        ["world", "index", "sample", "rows", "train", "sweep"],
    ),
    ("wikipedia_adapter", [".", "musique:dev.json"], ["index", "sample", "rows", "train"]),
    ("train_two_wiki", ["train.json", "dev.json", "100"], ["index", "rounds", "rows", "sweep", "table"]),
    ("encode_on_all_gpus", ["corpus.jsonl", "indexes/wiki", "--encoder_dtype", "bfloat16"], ["index"]),
    ("scaling_sweep", [], ["world", "index", "sweep"]),
    ("seven_sets", ["--batch_size", "64"], ["run", "table"]),
    (
        "paper_corag",
        ["index", "chains", "rows", "train", "decode", "table"],
        ["index", "sample", "rows", "train", "sweep", "sweep", "run", "table"],
    ),
    ("paper_ircot", ["musique", "dev.json", "train.json", "dev.json"], ["index", "sweep", "table"]),
    ("decoding_strategies", ["world", "40"], ["world", "sweep"]),
    ("decoding_strategies", ["hotpotqa", "16", "dev.json"], ["index", "sweep"]),
    ("pooled_distractor", ["hotpotqa", "dev.json", "shots.json", "100"], ["index", "run"]),
    ("method_matrix", ["musique", "dev.json", "shots.json", "100"], ["index", "sweep"]),
]


@pytest.mark.parametrize(("recipe", "words", "programs"), RECIPES)
def test_a_recipe_gives_commands_that_can_be_given(
    recipe: str, words: list[str], programs: list[str], root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    called = commands_of(root, recipe, *words)
    assert set(programs) <= {each[1] for each in called}
    monkeypatch.chdir(root)
    for each in called:
        read(each)


def test_the_papers_recipes_rehearse_their_own_commands(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With SMOKE=1 the programs and options are those of the whole road, but for sizes."""
    stages = "index", "chains", "rows", "train", "decode", "table"
    rehearsed = commands_of(root, "paper_corag", *stages, SMOKE="1")
    (root / "noted").unlink()
    whole = commands_of(root, "paper_corag", *stages, SETS="musique")
    assert [each[1] for each in rehearsed if each[1] not in ("world", "index")] == [
        each[1]
        for each in whole
        if each[1] != "index"
        # One training set stands for the three of the paper.
        and not any(f"--subset {name}" in " ".join(each) for name in ("hotpotqa", "2wikimultihopqa"))
    ]
    assert {"hub:corag/kilt-corpus", "intfloat/e5-large-v2"} <= {word for each in whole for word in each}
    monkeypatch.chdir(root)
    assert not any(getattr(read(each), "split", "") for each in rehearsed), "nothing is of the hub"


def test_ircots_recall_has_runs_of_its_own_and_every_choice_shows_the_first_set(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ["2wikimultihopqa", "dev.json", "train.json"]
    stages = "index choose test recall table"
    called = commands_of(root, "paper_ircot", *words, STAGES=stages, ALIASES="id_aliases.json")
    monkeypatch.chdir(root)
    configs = [read(each) for each in called if each[1] == "sweep"]
    choosing, test, recall_choosing, recall = (
        read_cells(config, config.cells, config.grid) for config in configs
    )
    first = next(each for each in test if each.name.endswith("set 1")).options.demonstration_ids
    assert all(each.options.demonstration_ids == first for each in (*choosing, *recall_choosing))
    assert first[0] == "228546780bdd11eba7f7acde48001122", "of this dataset"
    assert [config.metric for config in configs] == ["f1", "f1", "recall", "recall"]
    assert all(config.aliases == "id_aliases.json" for config in configs)
    assert {each.options.reader for each in (*choosing, *test)} == {"direct"}
    assert {each.options.reader for each in (*recall_choosing, *recall)} == {"none"}
    assert {each.method for each in recall} == {"ircot", "one_step"}
    assert {each.options.k for each in recall if each.method == "one_step"} == {15}


def run_recipe(
    recipe: str, folder: Path, environment: dict[str, str], timeout: float | None = None, words: str = ""
) -> subprocess.CompletedProcess[str]:
    """Run a recipe in a folder with the programs that run here, as if it had installed them."""
    for name in ("training", "eval", "benchmarks", "docs"):
        (folder / name).symlink_to(ROOT / name)
    shutil.copytree(ROOT / "scripts", folder / "scripts")
    (folder / "scripts/install.sh").write_text("exit 0\n")
    for program in ("corag", "python"):
        path = Path(sys.executable).parent / program
        write_program(folder / ".venv/bin" / program, f'exec {path} "$@"')
    return subprocess.run(
        ["bash", f"scripts/recipes/{recipe}.sh", *words.split()],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(ROOT)} | environment,
        capture_output=True,
        text=True,
        timeout=timeout,
    )


@pytest.mark.drill  # some minutes on one core
@pytest.mark.parametrize(
    ("recipe", "questions"), [("paper_corag", 12), ("paper_ircot", 6), ("seven_sets", "here")]
)
def test_a_rehearsal_ends_in_a_table(recipe: str, questions: int | str, tmp_path: Path) -> None:
    done = run_recipe(recipe, tmp_path, {"SMOKE": "1"})
    assert done.returncode == 0, done.stderr[-3000:]
    method = {"paper_corag": "corag", "paper_ircot": "ircot", "seven_sets": "search_r1"}[recipe]
    assert re.search(rf"{method}.*\b{questions}\b", done.stdout)
