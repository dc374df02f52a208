"""Bad input, each a clear sentence and a non-zero exit."""

import json
import os
import subprocess
import sys
import threading
from dataclasses import fields
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

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


def test_the_short_name_of_the_index_is_suggested(capsys):
    assert "did you mean 'index'?" in refused(capsys, ["serve", "answers", "--indexes", "x"])
    assert "did you mean 'index'?" in refused(capsys, [*ASK, "--indexes", "x"])


@pytest.mark.parametrize("option", ["--model.urls", "--retriever.url"])
def test_an_address_without_its_scheme(capsys, option):
    message = refused(capsys, [*ASK, option, "localhost:8999"])
    assert f"'localhost:8999' in '{option[2:]}' does not begin" in message
    assert "write http://localhost:8999." in message


def test_unreachable_search_server(capsys):
    message = refused(capsys, [*ASK, "--retriever.url", "http://127.0.0.1:9", "--retriever.retries", "0"], 1)
    assert "http://127.0.0.1:9" in message


def test_model_folder_without_tokenizer(capsys, tmp_path):
    (tmp_path / "config.json").write_text("{}")
    message = refused(capsys, [*ASK, "--method", "closed_book", "--model.name", str(tmp_path)])
    assert "has no tokenizer" in message


def test_missing_model_folder(capsys):
    assert "no model folder './nowhere'" in refused(
        capsys, [*ASK, "--method", "closed_book", "--model.name", "./nowhere"]
    )


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


LATIN = "Café".encode("latin-1")


@pytest.mark.parametrize(
    ("name", "before", "after", "argv"),
    [
        ("experiment.yaml", b"seed: 1\n# ", b"\n", "run --config FILE"),
        ("prompt.txt", b"version: 1\n--- user\n{query} ", b"\n", "ask Who? --closed_book.qa_prompt FILE"),
        ("shown.txt", b"Q: ", b"?\nA: It is.\n", "ask Who? --closed_book.demonstrations FILE"),
        ("turns.txt", b"Question: ", b"\n", "ask Who? --method react --react.demonstrations FILE"),
    ],
)
def test_bytes_that_are_not_utf8_are_named_by_file_and_line(capsys, tmp_path, name, before, after, argv):
    file = tmp_path / name
    file.write_bytes(before + LATIN + after)
    words = [{"FILE": str(file)}.get(word, word) for word in argv.split()]
    if "closed_book" in argv:
        words += ["--method", "closed_book"]
    message = refused(capsys, words)
    line = before.count(b"\n") + 1
    assert f"{file}, line {line}: it is not UTF-8" in message and "iconv -f LATIN1" in message


def test_an_index_is_not_written_where_a_file_is(capsys, tmp_path):
    corpus = tmp_path / "corpus.jsonl"
    corpus.write_text('{"id": "1", "title": "T", "text": "x"}\n')
    for out in (corpus, corpus / "index"):
        message = refused(capsys, ["index", str(corpus), "--out", str(out)])
        assert f"cannot write the index '{out}': '{out}' is a file or lies in one." in message
    assert corpus.read_text().startswith("{"), "the file is as it was"
    message = refused(capsys, ["index", str(corpus), "--out", "/proc/index"])
    assert "cannot write the folder '/proc/index': " in message, "nobody can write there"


@pytest.mark.slow
@pytest.mark.parametrize(("options", "limit"), [((), 20), (("--kind", "dense"), 100)])
def test_an_index_on_a_full_disk_is_a_sentence_and_looks_unfinished(capsys, tmp_path, options, limit):
    """The operating system refuses to let a file grow beyond ``limit`` kB, as a full disk does."""
    corpus, out = tmp_path / "corpus.jsonl", tmp_path / "index"
    texts = (f"Passage {number} is about the river {number * 7919}." * 2 for number in range(400))
    corpus.write_text(
        "".join(json.dumps({"id": str(n), "title": "T", "text": t}) + "\n" for n, t in enumerate(texts))
    )
    # -B: Python does not notice that it could write a .pyc file only in part, and fails whenever it reads it.
    command = f"ulimit -f {limit}; exec {sys.executable} -B -m corag.cli index {corpus} --out {out}"
    ended = subprocess.run(
        ["bash", "-c", " ".join([command, *options])], capture_output=True, text=True, check=False
    )
    assert ended.returncode == 2 and "Traceback" not in ended.stderr
    assert "cannot write " in ended.stderr.splitlines()[-1] and str(out) in ended.stderr
    assert "was begun and is not finished" in refused(capsys, [*ASK, "--retriever.index", str(out)])
    assert main(["index", str(corpus), "--out", str(out), *options]) == 0, (
        "with room, the same command builds"
    )


@pytest.fixture
def web_page():
    """The address of a server that answers whatever it is asked with a page."""

    class Page(BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200 if self.path.startswith("/found") else 404)
            self.end_headers()
            self.wfile.write(b"<!DOCTYPE HTML>\n<html>\n<head>\n<title>Error</title>\n</head>\n" * 9)

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Page)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


@pytest.mark.parametrize("place", ["", "/found"])
def test_a_web_page_is_no_search_server(capsys, web_page, place):
    asked = [*ASK, "--retriever.url", web_page + place, "--retriever.retries", "0"]
    message = refused(capsys, asked, status=1)  # a server's fault: another try may find it mended
    (line,) = (line for line in message.splitlines() if "search server" in line)
    assert f"{web_page}{place}/health" in line and "a web page" in line and "<" not in message
    message = refused(
        capsys,
        [*ASK, "--method", "closed_book", "--model.backend", "server", "--model.urls", web_page + place],
        status=1,
    )
    assert "model.urls" in message and "a web page" in message and "<" not in message
    assert len(message.splitlines()[-1]) < 250


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
        (["one_step", "--one_step.qa_prompt", "Question: {query}"], "{paragraphs}"),
        (["ircot", "--ircot.reasoning_prompt", "{paragraphs}{query}"], "{cot_history}"),
        (["closed_book", "--closed_book.qa_prompt", "Answer {question}"], "{query}"),
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


def test_a_misspelt_field_is_told_beside_the_one_that_was_meant(capsys, tmp_path):
    options = ["one_step", "--one_step.qa_prompt", "{queri} {paragraphs}"]
    message = refused(capsys, [*ASK, "--retriever.index", str(tmp_path), "--method", *options])
    assert "lacks {query} (its fields: {paragraphs}, {queri})." in message


@pytest.mark.parametrize("url", ["http://bob:SECRET@host:1", "http://host:1/?key=SECRET"])
def test_an_address_of_a_search_server_that_holds_a_secret_is_refused_and_not_repeated(capsys, url):
    message = refused(capsys, [*ASK, "--method", "one_step", "--retriever.url", url])
    assert "'retriever.url' holds a user name, a password or a query" in message
    assert "SECRET" not in message and "bob" not in message


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


@pytest.mark.parametrize("text", ["{", "[]", '{"settings": {}, "starts": 3}', "\udcff"])
def test_manifests_that_are_none(capsys, tmp_path, text):
    (tmp_path / "manifest.json").write_bytes(text.encode(errors="surrogateescape"))
    assert refused(capsys, ["table", str(tmp_path)]).startswith("corag: ")


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
