"""Bad input, each a clear sentence and a non-zero exit."""

import json
import os
import subprocess
import sys

import pytest

from core.runs.folder import TRACES
from scripts.cli import main
from tests.eval.runs import make_run

ASK = ["ask", "Who wrote The Glass Orchard?"]


def refused(capsys, argv):
    """Run a command that must fail with status 2 and one message, and return the message."""
    assert main(argv) == 2
    printed = capsys.readouterr()
    assert "corag: " in printed.err and "Traceback" not in printed.err
    return printed.err


def write_questions(folder, *records):
    file = folder / "questions.jsonl"
    file.write_text(
        "".join(record if isinstance(record, str) else json.dumps(record) + "\n" for record in records)
    )
    return str(file)


GOOD = {"id": "1", "question": "Who?", "answers": ["X"]}


def test_no_index_named(capsys):
    assert "build one with 'corag index'" in refused(capsys, [*ASK, "--method", "one_step"])


def test_missing_index(capsys):
    message = refused(capsys, [*ASK, "--retriever.index", "nowhere/index"])
    assert "nowhere/index" in message and "corag index" in message


def test_folder_that_is_no_index(capsys, tmp_path):
    assert "is not a complete index" in refused(capsys, [*ASK, "--retriever.index", str(tmp_path)])


def test_unreachable_search_server(capsys):
    message = refused(capsys, [*ASK, "--retriever.url", "http://127.0.0.1:9", "--retriever.retries", "0"])
    assert "http://127.0.0.1:9" in message


def test_unreachable_model_server(capsys):
    message = refused(
        capsys,
        [
            *ASK,
            "--method",
            "closed_book",
            "--model.backend",
            "server",
            "--model.urls",
            "http://127.0.0.1:9",
            "--model.retries",
            "0",
        ],
    )
    assert "http://127.0.0.1:9" in message


def test_model_folder_without_tokenizer(capsys, tmp_path):
    (tmp_path / "config.json").write_text("{}")
    message = refused(capsys, [*ASK, "--method", "closed_book", "--model.name", str(tmp_path)])
    assert "has no tokenizer" in message


def test_missing_model_folder(capsys):
    assert "no model folder './nowhere'" in refused(
        capsys, [*ASK, "--method", "closed_book", "--model.name", "./nowhere"]
    )


def test_broken_line_in_a_question_file(capsys, tmp_path):
    message = refused(
        capsys, ["run", "--questions", write_questions(tmp_path, GOOD, '{"id": "2", "question"\n')]
    )
    assert "questions.jsonl" in message and "line 2" in message


def test_broken_line_in_a_corpus(capsys, tmp_path):
    corpus = tmp_path / "corpus.jsonl"
    corpus.write_text('{"id": "1", "title": "T", "text": "x"}\n{"id": \n')
    message = refused(capsys, ["index", str(corpus), "--out", str(tmp_path / "index")])
    assert "corpus.jsonl" in message and "line 2" in message
    message = refused(capsys, [*ASK, "--retriever.index", str(tmp_path / "index")])
    assert "is not a complete index" in message, "what was indexed before the broken line is no corpus"


def test_unknown_and_missing_fields_of_a_question(capsys, tmp_path):
    message = refused(capsys, ["run", "--questions", write_questions(tmp_path, GOOD | {"anwsers": ["X"]})])
    assert "anwsers" in message and "answers" in message
    assert "question" in refused(
        capsys, ["run", "--questions", write_questions(tmp_path, {"id": "1", "answers": ["X"]})]
    )


def test_unknown_dataset(capsys, tmp_path):
    message = refused(capsys, ["run", "--questions", write_questions(tmp_path, GOOD), "--dataset", "hotpot"])
    assert "hotpotqa" in message


def test_empty_question_in_a_file(capsys, tmp_path):
    message = refused(capsys, ["run", "--questions", write_questions(tmp_path, GOOD | {"question": " "})])
    assert "field 'question'" in message


def test_missing_demonstrations(capsys, tmp_path):
    message = refused(
        capsys,
        [
            "run",
            "--questions",
            write_questions(tmp_path, GOOD),
            "--method",
            "closed_book",
            "--closed_book.demonstrations",
            "no.txt",
        ],
    )
    assert "no.txt" in message


def test_run_folder_that_cannot_be_written(capsys, tmp_path):
    (tmp_path / "file").write_text("")
    message = refused(
        capsys,
        ["run", "--questions", write_questions(tmp_path, GOOD), "--method", "closed_book", "--out",
        str(tmp_path / "file"),
         "--model.backend", "transformers"],
    )  # fmt: skip
    assert "cannot write the run folder" in message


@pytest.mark.parametrize("command", ["table", "compare", "export", "judge", "ledger", "report"])
def test_folders_that_are_no_runs(capsys, tmp_path, command):
    world = tmp_path / "world"
    world.mkdir()
    (world / "manifest.json").write_text(json.dumps({"version": 1, "seed": 0, "passages": 9}))
    (tmp_path / "file").write_text("{}")
    rest = {"export": ["--to", "trec", "--out", "x"], "report": ["--out", "x"]}.get(command, [])
    (tmp_path / "sweep/cell").mkdir(parents=True)
    (tmp_path / "sweep/cell/manifest.json").write_text("{}")
    for folder, words in (
        (world, "is not a run"),
        (tmp_path / "file", "is not a run"),
        (tmp_path / "gone", "no such folder"),
        (tmp_path / "sweep", f"Its folders are runs: give {tmp_path / 'sweep'}/*/."),
    ):
        runs = [str(folder), str(tmp_path)] if command == "compare" else [str(folder)]
        assert words in refused(capsys, [command, *runs, *rest])


@pytest.mark.parametrize("command", ["table", "compare", "export", "judge", "ledger", "report"])
def test_a_run_without_its_lines(capsys, tmp_path, command):
    run = make_run(tmp_path / "run", [])
    (run / TRACES).unlink()
    other = make_run(tmp_path / "other", [])
    rest = {"compare": [str(other)], "export": ["--to", "trec", "--out", "x"], "report": ["--out", "x"]}.get(
        command, []
    )
    assert "cannot read the run's lines" in refused(capsys, [command, str(run), *rest])
    make_run(run, [])  # what was stopped before its first line goes on
    assert (run / TRACES).exists()


@pytest.mark.parametrize("text", ["{", "[]", '{"settings": {}, "starts": 3}', "\udcff"])
def test_manifests_that_are_none(capsys, tmp_path, text):
    (tmp_path / "manifest.json").write_bytes(text.encode(errors="surrogateescape"))
    assert refused(capsys, ["table", str(tmp_path)]).startswith("corag: ")


def test_no_java(tmp_path):
    corpus = tmp_path / "corpus.jsonl"
    corpus.write_text('{"id": "1", "title": "T", "text": "x"}\n')
    ended = subprocess.run(
        [sys.executable, "-m", "scripts.cli", "index", str(corpus), "--out", str(tmp_path / "index")],
        env=os.environ | {"CORAG_JAVA_HOME": "/nowhere"}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (
        ended.returncode == 2
        and "CORAG_JAVA_HOME is '/nowhere'" in ended.stderr
        and "Traceback" not in ended.stderr
    )


@pytest.mark.slow
def test_index_opened_with_another_encoder(capsys, tmp_path):
    corpus = tmp_path / "corpus.jsonl"
    corpus.write_text('{"id": "1", "title": "T", "text": "x"}\n')
    assert main(["index", str(corpus), "--out", str(tmp_path / "index"), "--kind", "dense"]) == 0
    other = tmp_path / "encoder"
    from retrieval.dense.encoder import encoder_folder

    source = encoder_folder("default")
    subprocess.run(["cp", "-rL", str(source), str(other)], check=True)
    from safetensors.numpy import load_file, save_file

    weights = load_file(other / "model.safetensors")
    save_file(
        {name: array * 1.01 for name, array in weights.items()}, other / "model.safetensors", {"format": "pt"}
    )
    message = refused(
        capsys, [*ASK, "--retriever.index", str(tmp_path / "index"), "--retriever.encoder", str(other)]
    )
    assert "was built with the encoder" in message
