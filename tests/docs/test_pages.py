"""The README is short, links of pages lead somewhere, and their commands and programs are what there is.

A comment before a block of code says what is done with it here:

    <!-- run -->                executed, one after another, in a folder that has what the quickstart makes
    <!-- file: NAME -->         a file of that name, which the page's commands read
    <!-- not run here: WHY -->  needs what tests do not have

Commands of all blocks are parsed with the real options, and all programs are compiled.
"""

from __future__ import annotations

import ast
import importlib
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import get_type_hints

import pytest
import yaml

import corag
from corag.cli.commands import COMMANDS, load_command, split_command
from corag.core.errors import ConfigError
from corag.core.options.command_line import parse
from corag.core.options.names import options_of, sections_of
from tests.serving import OPTIONS, SERVER
from training.config import SftConfig
from training.distill import DistillConfig

ROOT = Path(__file__).parents[2]
README = ROOT / "README.md"
GUIDES = [README, *sorted(ROOT.glob("docs/guides/*.md"))]
RESULTS = sorted(ROOT.glob("docs/results/*.md"))
METHODS = sorted(ROOT.glob("docs/methods/*.md"))
HELP = sorted(ROOT.glob("docs/help/*.md")) + sorted(ROOT.glob("docs/reference/*.md"))
PAGES = [*GUIDES, *sorted(ROOT.glob("docs/*.md")), *RESULTS, *METHODS, *HELP]

LINES, COLUMNS, PARAGRAPH = 120, 110, 5
# What else pages call: noted, so that nothing of it is performed.
PROGRAMS: dict[str, type | None] = {
    "training/sft.py": SftConfig,
    "training/distill.py": DistillConfig,
    "examples/grpo_search_agent.py": None,  # its options are TRL's
}
OTHERS = tuple(
    "source vllm sbatch export cd git hf pip uv docling ocrmypdf".split()
    + "docker podman useradd install sudo systemctl curl".split()
)
# Further options that pages name: of every command, of other programs, of a method that a page makes.
FOREIGN = set(
    "--cpu --multi_gpu --config_file --no-deps --help --print_config --config --json --my_method.k "
    "--no-enable-chunked-prefill --quick --all --cpus-per-task --mem --add-host --array --gpu "
    "--served-model-name --output_dir --torch-backend".split()
)


@dataclass(frozen=True)
class Block:
    """A fenced block: where it begins, its language, what the comment before it says, and its text."""

    line: int
    language: str
    comment: str
    text: str

    @property
    def file(self) -> str:
        """The file that it is, "" if it is none."""
        return self.comment.removeprefix("file: ") if self.comment.startswith("file: ") else ""


def blocks(page: Path) -> Iterator[Block]:
    """Yield the fenced blocks of a page."""
    fence = r"(?:^<!-- (?P<comment>.*?) -->\n)?^```(?P<language>\w*)\n(?P<text>.*?)^```$"
    text = page.read_text()
    for found in re.finditer(fence, text, re.MULTILINE | re.DOTALL):
        line = text.count("\n", 0, found.start("text")) + 1
        yield Block(line, found["language"], found["comment"] or "", found["text"])


def prose(page: Path) -> str:
    """Return a page's text without its blocks, which leave their lines empty."""
    block = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
    return block.sub(lambda found: "\n" * found[0].count("\n"), page.read_text())


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


def every(pages: list[Path]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("page", pages, ids=name_of)


# --- what a page looks like


def test_the_readme_fits_on_three_screens():
    lines = README.read_text().splitlines()
    assert len(lines) <= LINES
    assert [line for line in lines if len(line) > COLUMNS] == []


@every([page for page in GUIDES if page != README])
def test_a_guide_begins_with_a_command_that_works(page: Path):
    first = next(block for block in blocks(page) if not block.file)
    assert first.comment == "run"
    before = page.read_text().split(first.text)[0]
    before = re.sub(r"^```.*?^```$", "", before, flags=re.MULTILINE | re.DOTALL)  # files that it reads
    words = re.sub(r"^(#|<!--|```).*$", "", before, flags=re.MULTILINE).strip()
    assert 1 <= len([line for line in words.splitlines() if line]) <= PARAGRAPH, "what for, then a command"


def anchors(page: Path) -> set[str]:
    """Return the anchors that GitHub makes of a page's headings."""
    headings = re.findall(r"^#+ (.*)$", prose(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@every(PAGES)
def test_links_lead_somewhere(page: Path):
    broken = []
    for link in re.findall(r"\]\(([^)\s]+)\)", prose(page)):
        if link.startswith("http"):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        if not target.exists() or (anchor and anchor not in anchors(target)):
            broken.append(link)
    assert broken == []


def test_the_reference_in_the_repository_names_every_command_and_name():
    commands, names = ((ROOT / f"docs/reference/{each}.md").read_text() for each in ("commands", "python"))
    assert [name for name in COMMANDS if f"| `corag {name}` |" not in commands] == []
    assert [name for name in corag.__all__ if f"`{name}`" not in names and "Config" not in name] == []


# --- what a page says to type


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with what pages expect of the repository's root, in which commands may write."""
    monkeypatch.chdir(tmp_path)
    return like_the_root(tmp_path)


def like_the_root(folder: Path) -> Path:
    for each in ("README.md", "docs", "examples", "eval", "scripts", "training"):
        if (ROOT / each).exists():
            (folder / each).symlink_to(ROOT / each)
    return folder


def write_files(page: Path, folder: Path) -> None:
    """Write the blocks that are files."""
    for block in blocks(page):
        if block.file:
            (folder / block.file).write_text(block.text)


def commands(script: str, folder: Path) -> list[list[str]]:
    """Return the commands that a shell makes of a script, without performing any."""
    noted = ("corag", "accelerate", "bash", "python", *OTHERS)
    functions = "".join(
        f"{name}() {{ printf '%s\\x1f' {name} \"$@\" >&3; printf '\\x1e' >&3; }}\n" for name in noted
    )
    script = script.replace(".venv/bin/corag", "corag")
    (folder / "noted").unlink(missing_ok=True)
    done = subprocess.run(
        ["/bin/bash", "-euc", f"exec 3>noted\n{functions}{script}"],
        capture_output=True,
        text=True,
        cwd=folder,
        env={"PATH": "/nowhere"},
    )
    assert done.returncode == 0, f"{done.stderr}\nin\n{script}"
    return [each.split("\x1f")[:-1] for each in (folder / "noted").read_text().split("\x1e")[:-1]]


def check_command(words: list[str]) -> None:
    """Parse a command with the options that it has. Nothing is read but its configuration files."""
    program, *arguments = words
    if program == "corag":
        name, arguments = split_command(arguments)
        command = COMMANDS[name]
        module = load_command(name)
        (options,) = (kind for at, kind in get_type_hints(module.main).items() if at != "return")
        given = [word for word in arguments if word != "--json"]  # which every command takes
        parse(options, given, "", "", command.positional)
    elif program == "accelerate":
        at, kind = next((at, PROGRAMS[word]) for at, word in enumerate(arguments) if word in PROGRAMS)
        if kind is not None:
            parse(kind, arguments[at + 1 :], "", "")
    elif words[:2] == ["python", "-m"]:
        # The command that tests/serving.py runs, so it is known to start.
        assert arguments[: len(SERVER)] == SERVER and arguments[len(SERVER)] == "--model"
        assert arguments[len(SERVER) + 2 :] == OPTIONS
    elif program in ("bash", "python"):
        assert (ROOT / arguments[0]).is_file(), f"there is no {arguments[0]}"


@every([*GUIDES, *METHODS, *HELP])
def test_commands_parse(page: Path, folder: Path):
    write_files(page, folder)
    for block in blocks(page):
        if block.language != "bash":
            continue
        for words in commands(block.text, folder):
            try:
                with suppress(SystemExit):  # as --help ends
                    check_command(words)
            except (ConfigError, KeyError) as error:
                pytest.fail(f"{name_of(page)}, line {block.line}: {' '.join(words)}\n{error}")


def known_options() -> set[str]:
    """Return every option of every command, by all its names."""
    known = set[str]()
    kinds: list[type] = [*filter(None, PROGRAMS.values())]
    for name in COMMANDS:
        hints = get_type_hints(load_command(name).main)
        kinds += [kind for at, kind in hints.items() if at != "return"]
    for kind in kinds:
        known |= {f"--{name}" for name, _ in options_of(kind)}
        for prefix, section in sections_of(kind):
            known |= {f"--{prefix.removesuffix('.')}"}
            known |= {f"--{prefix}{alias}" for alias in section.ALIASES}
    return known


@every(PAGES)
def test_options_and_commands_that_are_named_exist(page: Path):
    if page.name in ("log.md", "log_training.md", "traps.md") or page in RESULTS:
        pytest.skip("it tells of what was, or of others")
    spans = re.findall(r"`([^`]+)`", prose(page).replace("\n", " "))
    ours = [span for span in spans if not span.startswith(("vllm", "accelerate", "sbatch", "---"))]
    options = {name for span in ours for name in re.findall(r"(?:^|\s)(--[a-z][\w.-]*)", span)}
    assert options - FOREIGN - known_options() == set()
    named = {span.split()[1] for span in spans if re.match(r"corag [a-z]", span)}
    assert named - {name.split()[0] for name in COMMANDS} == set()


@every(GUIDES)
def test_programs_compile_and_their_imports_are_there(page: Path, folder: Path, monkeypatch):
    monkeypatch.syspath_prepend(str(folder))
    write_files(page, folder)
    for block in blocks(page):
        if block.language == "python":
            for node in ast.walk(ast.parse(block.text)):
                if isinstance(node, ast.ImportFrom) and node.module != "__future__":
                    module = importlib.import_module(str(node.module))
                    missing = [alias.name for alias in node.names if not hasattr(module, alias.name)]
                    assert missing == [], f"{name_of(page)}, line {block.line}: {node.module} lacks {missing}"
        elif block.language == "yaml":
            assert yaml.safe_load(block.text)
        elif block.language == "json":
            assert all(json.loads(line) for line in block.text.splitlines())


# --- and what happens then


@pytest.fixture(scope="session")
def quickstart(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with what the quickstart leaves behind."""
    folder = like_the_root(tmp_path_factory.mktemp("pages"))
    said = perform("corag quickstart --limit 2", folder)
    assert said.stdout.count("First answer after ") == said.stdout.count("Done after ") == 1
    assert "hop 1 " in said.stdout, "the first answer's chain is drawn"
    assert said.stderr.count("model default with adapter default (vllm) is open") == 1, "one engine"
    # A slow machine has a further line every half minute while something opens.
    assert sum("still " not in line for line in said.stderr.splitlines()) <= 25
    assert (folder / "quickstart/report.html").stat().st_size > 50_000
    return folder


def perform(script: str, folder: Path, language: str = "bash") -> subprocess.CompletedProcess[str]:
    """Run a block in a folder."""
    search = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    programs = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    words = ["bash", "-euo", "pipefail", "-c", script]
    if language == "python":
        (folder / "block.py").write_text(script)
        words = [sys.executable, "block.py"]
    done = subprocess.run(
        words,
        cwd=folder,
        env=os.environ | {"PATH": programs, "PYTHONPATH": search},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, f"{script}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
    failed = [line for line in done.stdout.splitlines() if line.startswith("failed: ")]
    assert failed == [], f"{script}\nleft a question without an answer"
    return done


@pytest.mark.slow
@pytest.mark.drill
@pytest.mark.parametrize(
    "page",
    [page for page in GUIDES if any(block.comment == "run" for block in blocks(page))],
    ids=name_of,
)
def test_what_is_marked_to_be_run_runs(page: Path, quickstart: Path):
    write_files(page, quickstart)
    for block in blocks(page):
        if block.comment == "run":
            perform(block.text, quickstart, block.language)
