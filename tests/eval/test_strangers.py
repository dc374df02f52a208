"""The common rooms name no method and no dataset: what is peculiar to one is offered by it."""

import ast
import re
from pathlib import Path

import pytest

from eval.datasets import DATASETS
from eval.experiment.registry import METHODS

ROOT = Path(__file__).parents[2]
ROOMS = ("corag/core", "eval/tables", "eval/sweeps", "eval/report", "retrieval")
SUFFIXES = (".py", ".js", ".css", ".html")

PROJECT = "corag"  # the project is called as its first method is: in commands, files and variables of its own
ORDINARY = {"jsonl"}  # our own dataset is called as its file format is
NAMES = {*METHODS, *DATASETS, "kilt"} - ORDINARY
# Letters and digits end a name, an underscore does not: "kilt" stands in "kilt_em" too.
STRANGER = re.compile(rf"(?<![a-z0-9])({'|'.join(sorted(NAMES, key=len, reverse=True))})(?![a-z0-9])", re.I)


def files():
    return [
        path
        for room in ROOMS
        for path in sorted((ROOT / room).rglob("*"))
        if path.suffix in SUFFIXES and "__pycache__" not in path.parts
    ]


def names_and_texts(source):
    """Return (line, identifier) and (line, string) of a module, without docstrings and comments.

    A string that is compared or looked up decides something, so it is among the identifiers.
    """
    tree = ast.parse(source)
    nodes = list(ast.walk(tree))
    told = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
    deciding = {
        id(each)
        for node in nodes
        if isinstance(node, ast.Compare | ast.MatchValue | ast.Subscript)
        for each in ast.walk(node)
    }
    names, texts = [], []
    for node in nodes:
        line = getattr(node, "lineno", 0)
        match node:
            case ast.Constant(value=str(text)) if id(node) not in told:
                (names if id(node) in deciding else texts).append((line, text))
            case (
                ast.Name(id=text) | ast.Attribute(attr=text) | ast.keyword(arg=str(text)) | ast.arg(arg=text)
            ):
                names.append((line, text))
            case ast.FunctionDef(name=text) | ast.AsyncFunctionDef(name=text) | ast.ClassDef(name=text):
                names.append((line, text))
            case ast.Import(names=imported) | ast.ImportFrom(names=imported):
                module = getattr(node, "module", "") or ""
                modules = (module, *(each.name for each in imported))
                names += [
                    (line, re.sub(r"^corag\.(core|data|generation)\b", r"\1", text)) for text in modules
                ]
    return names, texts


def strangers(path):
    source = path.read_text(encoding="utf-8")
    names, texts = [], list(enumerate(without_comments(source).splitlines(), 1))
    if path.suffix == ".py":
        names, texts = names_and_texts(source)
    found = [(line, stranger, text) for line, text in names for stranger in STRANGER.findall(text)]
    for line, text in texts:
        found += [(line, name, text) for name in STRANGER.findall(text) if name.lower() != PROJECT]
    return [f"{path}:{line}: '{name}' in {text.strip()[:80]!r}" for line, name, text in found]


def without_comments(text):
    return re.sub(r"/\*.*?\*/|<!--.*?-->|(?<!:)//[^\n]*", "", text, flags=re.S)


@pytest.mark.parametrize("room", ROOMS)
def test_a_common_room_names_no_method_and_no_dataset(room):
    found = [stranger for path in files() if path.is_relative_to(ROOT / room) for stranger in strangers(path)]
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ('"""CoRAG and KILT."""\nx = 1  # IRCoT\n', []),
        ("from ircot.method import ircot\n", ["ircot", "ircot"]),
        ("import corag.chains.chain\n", ["corag"]),
        ("options.corag.chains\n", ["corag"]),
        ('x = {"kilt_em": 1}\n', ["kilt"]),
        ('print("see corag index --format KILT")\n', ["KILT"]),
        ('if name == "corag": pass\n', ["corag"]),
        ('cache = home / "corag"\n', []),
        ('files.read_jsonl("a.jsonl")\n', []),
    ],
)
def test_a_stranger_is_found_where_it_decides_or_is_shown(tmp_path, source, found):
    path = tmp_path / "module.py"
    path.write_text(source)
    assert [stranger.split("'")[1] for stranger in strangers(path)] == found


def test_scripts_and_styles_are_looked_through_too(tmp_path):
    path = tmp_path / "kit.js"
    path.write_text("const title = 'corag report'; // ircot\nconst rows = all.kilt_f1;\n/* drag */\n")
    assert [stranger.split("'")[1] for stranger in strangers(path)] == ["kilt"]
    assert len(files()) > 60 and {path.suffix for path in files()} == set(SUFFIXES)


def test_a_class_is_called_as_no_other_is():
    """A name that stands for two things is read wrongly where they meet."""
    rooms = {path.parent for path in ROOT.glob("*/__init__.py")} - {ROOT / "tests"}
    places = {}
    for file in sorted(file for room in rooms for file in room.rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef):
                places.setdefault(node.name, []).append(str(file.relative_to(ROOT)))
    assert len(places) > 100
    assert not {name: files for name, files in places.items() if len(files) > 1}
