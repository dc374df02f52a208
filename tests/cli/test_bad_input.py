"""Bad input, each a clear sentence and a non-zero exit."""

import json
import os
import subprocess
import sys
from dataclasses import fields

import pytest

from corag.cli.main import main
from corag.core.errors import ConfigError
from corag.core.runs.folder import TRACES
from eval.experiment.registry import METHODS
from tests.eval.runs import make_run

ASK = ["ask", "Who wrote The Glass Orchard?"]


def refused(capsys, argv, status=2):
    """Run a command that must fail with this status and one message, and return the message."""
    assert main(argv) == status
    printed = capsys.readouterr()
    assert "corag: " in printed.err and "Traceback" not in printed.err
    return printed.err


def test_no_index_named(capsys):
    assert "build one with 'corag index'" in refused(capsys, [*ASK, "--method", "one_step"])


def test_broken_line_in_a_corpus(capsys, tmp_path):
    corpus = tmp_path / "corpus.jsonl"
    corpus.write_text('{"id": "1", "title": "T", "text": "x"}\n{"id": \n')
    message = refused(capsys, ["index", str(corpus), "--out", str(tmp_path / "index"), "--strict", "true"])
    assert "corpus.jsonl" in message and "line 2" in message
    message = refused(capsys, [*ASK, "--retriever.index", str(tmp_path / "index")])
    assert "was begun and is not finished" in message, "what was indexed before the broken line is no corpus"
    assert main(["index", str(corpus), "--out", str(tmp_path / "index")]) == 0
    printed = capsys.readouterr().err
    assert "1 passages kept; dropped: 1 not valid JSON." in printed and "corpus.jsonl, line 2: " in printed


def test_an_index_is_not_written_where_a_file_is(capsys, tmp_path):
    corpus = tmp_path / "corpus.jsonl"
    corpus.write_text('{"id": "1", "title": "T", "text": "x"}\n')
    for out in (corpus, corpus / "index"):
        message = refused(capsys, ["index", str(corpus), "--out", str(out)])
        assert f"cannot write the index '{out}': '{out}' is a file or lies in one." in message
    assert corpus.read_text().startswith("{"), "the file is as it was"
    message = refused(capsys, ["index", str(corpus), "--out", "/proc/index"])
    assert "cannot write the folder '/proc/index': " in message, "nobody can write there"


# What a method needs to be told so that it has use for a prompt.
USED_WITH = {"stop_check_prompt": {"stop": "check"}}
PROMPTS = [
    (name, option.name)
    for name, entry in METHODS.items()
    for option in fields(entry.config)
    if option.name == "prompt" or option.name.endswith("_prompt")
]


@pytest.mark.parametrize(("method", "option"), PROMPTS)
def test_a_prompt_without_a_field_that_its_method_needs_is_refused(tmp_path, method, option):
    config = METHODS[method].config
    file = tmp_path / "mine.txt"
    file.write_text("version: 1\n--- user\nSay {something}.\n")
    for source, called in ((str(file), "'mine'"), ("Say {something}.", "given as text")):
        with pytest.raises(ConfigError, match=rf"prompt {called} lacks {{\w+}}.*its fields: {{something}}"):
            config(**USED_WITH.get(option, {}), **{option: source}).check_files()


@pytest.mark.parametrize(
    ("options", "lacks"),
    [
        (["self_ask", "--self_ask.demonstrations", "default", "--self_ask.prompt", "{query}{transcript}"],
         "{demonstrations}"),
        (["corag", "--corag.sub_answer_prompt", "{sub_query}{passages}\n--- passage\n{title}"],
         "{text} in its section '--- passage'"),
        (["corag", "--corag.final_answer_prompt", "{query}{passages}{hops}\n--- hop\n{number}. {sub_query}"],
         "{sub_answer} in its section '--- hop'"),
    ],
)  # fmt: skip
def test_the_field_that_a_prompt_lacks_is_named(capsys, tmp_path, options, lacks):
    message = refused(capsys, [*ASK, "--retriever.index", str(tmp_path), "--method", *options])
    assert f"corag: the prompt given as text lacks {lacks}" in message


@pytest.mark.parametrize("url", ["http://bob:SECRET@host:1", "http://host:1/?key=SECRET"])
def test_an_address_of_a_search_server_that_holds_a_secret_is_refused_and_not_repeated(capsys, url):
    message = refused(capsys, [*ASK, "--method", "one_step", "--retriever.url", url])
    assert "'retriever.url' holds a user name, a password or a query" in message
    assert "SECRET" not in message and "bob" not in message


@pytest.mark.parametrize("command", ["table", "export"])
def test_folders_that_are_no_runs(capsys, tmp_path, command):
    world = tmp_path / "world"
    world.mkdir()
    (world / "manifest.json").write_text(json.dumps({"version": 1, "seed": 0, "passages": 9}))
    (tmp_path / "file").write_text("{}")
    rest = {"export": ["--to", "trec", "--out", "x"]}.get(command, [])
    (tmp_path / "sweep/cell").mkdir(parents=True)
    (tmp_path / "sweep/cell/manifest.json").write_text("{}")
    for folder, words in (
        (world, "is not a run"),
        (tmp_path / "file", "is not a run"),  # a TREC run for 'corag table'
        (tmp_path / "gone", "is not a run"),
        (tmp_path / "sweep", f"Its folders are runs: give {tmp_path / 'sweep'}/*/."),
    ):
        assert words in refused(capsys, [command, str(folder), *rest])


@pytest.mark.parametrize("command", ["table", "export"])
def test_a_run_without_its_lines(capsys, tmp_path, command):
    run = make_run(tmp_path / "run", [])
    (run / TRACES).unlink()
    rest = {"export": ["--to", "trec", "--out", "x"]}.get(command, [])
    assert "cannot read the run's lines" in refused(capsys, [command, str(run), *rest])
    make_run(run, [])  # what was stopped before its first line goes on
    assert (run / TRACES).exists()


def test_no_java(tmp_path):
    corpus = tmp_path / "corpus.jsonl"
    corpus.write_text('{"id": "1", "title": "T", "text": "x"}\n')
    ended = subprocess.run(
        [sys.executable, "-m", "corag.cli", "index", str(corpus), "--out", str(tmp_path / "index")],
        env=os.environ | {"CORAG_JAVA_HOME": "/nowhere"}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (
        ended.returncode == 1
        and "CORAG_JAVA_HOME is '/nowhere'" in ended.stderr
        and "Traceback" not in ended.stderr
    )
