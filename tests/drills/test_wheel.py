"""The wheel, installed by pip into an empty environment, beside a project with common names for its files.

What pip brings is light, advice is that of a pip installation, and after 'doctor --fetch' there are answers.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.generation.test_openai_server import HOSTED, StandIn

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
PACKAGES = ("corag", "eval", "ircot", "retrieval", "training")
LIMIT_MB = 600
HEAVY = ("torch", "transformers", "vllm", "sentence_transformers", "faiss", "datasets", "nvidia", "triton")
NOTES = [
    {"id": "1", "title": "Station 7", "text": "Station 7 has the valve VG-68."},
    {"id": "2", "title": "Station 8", "text": "Station 8 has the valve VG-70."},
]
# A user's program: own modules of names that are common, and a few lines of corag.
PROGRAM = """
import sys

import core
import scripts.own
import service.own
from corag import ask, build_index, one_step, open_index, open_model, run

build_index("notes.jsonl", out="indexes/notes")
model = open_model("scripted", backend="openai", urls=[sys.argv[1]])
with model, open_index("indexes/notes") as index:
    answer = ask("Which valve does station 7 have?", one_step, model, index)
    results = run("questions.jsonl", ["closed_book", "one_step"], model, index, out="runs")
print(answer.text, answer.passages[0].title, core.MINE + scripts.own.MINE + service.own.MINE)
print(results.compare(baseline="closed_book"))
"""


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    """The address of a model that gives one answer."""
    with StandIn(HOSTED, ("scripted",), max_model_len=4096) as model:
        model.reply = "VG-68"
        yield model.url


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment with the wheel and what it asks for, and nothing else."""
    folder = tmp_path_factory.mktemp("wheel")
    source = folder / "source"  # setuptools leaves its build folder beside what it builds
    source.mkdir()
    for each in (*PACKAGES, "pyproject.toml", "README.md", "LICENSE"):
        copy = shutil.copytree if (ROOT / each).is_dir() else shutil.copy
        copy(ROOT / each, source / each)
    subprocess.run([sys.executable, "-m", "venv", folder / "env"], check=True)
    pip = [folder / "env/bin/python", "-m", "pip", "--disable-pip-version-check"]
    for words in (
        ["wheel", "--no-deps", "--wheel-dir", folder, source],
        ["install", "--only-binary", ":all:"],
    ):
        wheels = list(folder.glob("corag-*.whl"))
        ended = subprocess.run([*pip, *words, *wheels], capture_output=True, text=True, check=False)
        if ended.returncode and "No matching distribution" in ended.stderr:
            pytest.skip("no package index can be reached")
        assert ended.returncode == 0, ended.stderr
    return folder / "env"


@pytest.fixture(scope="module")
def project(environment: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A user's project, in which 'corag doctor --fetch' has been performed."""
    folder = tmp_path_factory.mktemp("project")
    (folder / "core.py").write_text("MINE = 1\n")
    for package in ("service", "scripts"):
        (folder / package).mkdir()
        (folder / package / "own.py").write_text("MINE = 1\n")
    (folder / "program.py").write_text(PROGRAM)
    (folder / "notes.jsonl").write_text("".join(json.dumps(note) + "\n" for note in NOTES))
    question = {"id": "1", "question": "Which valve does station 7 have?", "answers": ["VG-68"]}
    (folder / "questions.jsonl").write_text(json.dumps(question) + "\n")
    ended = perform(environment, folder, "bin/corag", "index", "notes.jsonl", "--out", "indexes/early")
    assert ended.returncode == 1 and "`corag doctor --fetch`" in ended.stderr
    ended = perform(environment, folder, "bin/corag", "doctor", "--fetch")
    assert ended.returncode == 0, ended.stderr
    return folder


def perform(environment: Path, folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run a program of the environment as a user does who knows nothing of this one."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "VIRTUAL"))}
    return subprocess.run(
        [environment / words[0], *words[1:]],
        cwd=folder,
        env=kept | {"CORAG_CACHE": str(environment / "cache")},
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_base_is_light(environment: Path) -> None:
    (packages,) = (environment / "lib").glob("python3*/site-packages")
    assert [name for name in HEAVY if (packages / name).exists()] == []
    bytes_there = sum(file.stat().st_size for file in environment.rglob("*") if file.is_file())
    assert bytes_there / 1e6 < LIMIT_MB
    ended = perform(environment, environment, "bin/python", "-m", "pip", "check")
    assert ended.returncode == 0, ended.stdout


def test_a_program_with_its_own_core_service_and_scripts_gets_its_answers(
    environment: Path, project: Path, server: str
) -> None:
    ended = perform(environment, project, "bin/python", "program.py", server)
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.startswith("VG-68 Station 7 3\n")
    assert "one_step" in ended.stdout and "100.0" in ended.stdout


@pytest.mark.parametrize("name", ["eval.py", "training.py"])
def test_a_file_that_hides_a_package_is_named_when_corag_is_imported(
    environment: Path, project: Path, tmp_path: Path, name: str
) -> None:
    (tmp_path / name).write_text("MINE = 1\n")
    (tmp_path / "program.py").write_text("import corag\n")
    ended = perform(environment, tmp_path, "bin/python", "program.py")
    (last,) = ended.stderr.splitlines()[-1:]
    assert ended.returncode == 1 and last.startswith("ImportError: corag needs its package")
    assert str(tmp_path / name) in last and f"{name.removesuffix('.py')}/__init__.py" in last


def test_the_commands_of_the_base_work_and_no_advice_is_a_clones(
    environment: Path, project: Path, server: str
) -> None:
    index = ["index", "notes.jsonl", "--out", "indexes/shell"]
    model = ["--model.backend", "openai", "--model.urls", server, "--index", "indexes/shell"]
    ask = ["ask", "Which valve?", "--method", "one_step", *model]
    runs = [
        "run",
        "--questions",
        "questions.jsonl",
        "--method",
        "closed_book,one_step",
        "--out",
        "shell",
        *model,
    ]
    report = ["table", "shell/closed_book", "shell/one_step", "--report", "report.html"]
    check = ["serve", "answers", "--check", "--method", "one_step", *model]
    for words in (index, ask, runs, report, check, ["doctor"], ["list"], ["--version"]):
        ended = perform(environment, project, "bin/corag", *words)
        assert ended.returncode == 0, f"{words}: {ended.stdout}{ended.stderr}"
        assert "scripts/" not in ended.stdout + ended.stderr
    needing = {
        "corag[transformers]": ["ask", "Who?", "--method", "closed_book", "--model.backend", "transformers"],
        "corag[dense]": ["index", "notes.jsonl", "--kind", "dense", "--out", "indexes/dense"],
        "corag[train]": ["train", "--rows", "rows", "--out", "adapter"],
    }
    for extra, words in needing.items():
        ended = perform(environment, project, "bin/corag", *words)
        assert ended.returncode == 2 and len(ended.stderr.splitlines()) == 1, ended.stderr
        assert f"pip install '{extra} @ file:" in ended.stderr
