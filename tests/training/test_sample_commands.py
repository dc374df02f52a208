"""'corag sample' and 'corag rows' as a user runs them; a script stands for the model, all else is real."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import asdict, replace

import pytest
from datasets import load_from_disk

from corag.cli.main import main
from corag.core.runs.folder import TRACES, read_rows
from corag.core.runs.manifest import Manifest
from corag.generation.models import model_folder
from corag.generation.rendering import Renderer
from eval.datasets.sets.jsonl import question_record
from eval.experiment.questions import QuestionFile
from tests.cli.test_bad_input import refused
from tests.eval.test_datasets import TWO_WIKI
from tests.fakes import WordRetriever
from tests.training.toy import QUESTION, WORLD, many, scripted_backends
from training.chains import describe, read_chains
from training.data import RowsConfig
from training.rows import write_rows

OPTIONS = (
    "--retriever.index scripted --sample.chains 3 --sample.max_hops 3 --corag.passages_per_hop 1".split()
)
OPTIONS += ["--batch_size", "3"]


@pytest.fixture
def questions(tmp_path):
    file = tmp_path / "train.jsonl"
    file.write_text("".join(json.dumps(question_record(each)) + "\n" for each in many(10)))
    return file


@pytest.fixture
def scripted(monkeypatch):
    monkeypatch.setattr("eval.experiment.open_executor.open_backends", scripted_backends)


def sample(questions, out, *more):
    words = ["sample", "--questions", questions, "--out", out, *OPTIONS, *more, "--json"]
    return main(list(map(str, words)))


def ids(folder):
    return list(read_rows(folder))


# ---- which questions


@pytest.mark.parametrize(
    "options,chosen",
    [
        ({}, range(1, 11)),
        ({"skip": 2, "limit": 3}, [3, 4, 5]),
        ({"skip": 8, "limit": 5}, [9, 10]),
        ({"skip": 3, "limit": 5, "shard": "1/2"}, [4, 6, 8]),
    ],
)
def test_skip_limit_and_shard_choose_questions(questions, options, chosen):
    loaded = QuestionFile(questions=str(questions), **options).load()
    assert [each.id for each in loaded] == [f"q{number}" for number in chosen]


def test_shuffled_questions_are_a_sample_and_what_comes_after_skip_is_the_rest(questions):
    def drawn(**options):
        return [each.id for each in QuestionFile(questions=str(questions), **options).load()]

    everything = drawn(shuffle=1)
    assert sorted(everything) == sorted(drawn()) and everything != drawn()
    assert drawn(shuffle=1, limit=4) == everything[:4]
    assert drawn(shuffle=1, skip=4, limit=3) == everything[4:7]
    assert drawn(shuffle=2, limit=4) != everything[:4]


# ---- refused before an engine starts


def test_training_questions_without_answers_are_left_out_or_refused_before_anything_starts(capsys, tmp_path):
    file = tmp_path / "train.jsonl"
    good = question_record(QUESTION)
    for record, reason in [
        (good | {"id": "q2", "answers": []}, "field 'answers' is missing or empty"),
        (good | {"id": "q2", "answers": [" "]}, "field 'answers' is missing or empty"),
    ]:
        file.write_text(json.dumps(good) + "\n" + json.dumps(record) + "\n")
        argv = ["sample", "--questions", str(file), "--out"]
        message = refused(capsys, [*argv, str(tmp_path / "kept")])
        assert "1 of 2 questions have no gold answers, such as 'q2', so they are left out" in message
        message = refused(capsys, [*argv, str(tmp_path / "out"), "--strict", "true"])
        assert reason in message and "line 2" in message
    assert not (tmp_path / "out").exists()


def test_questions_without_a_decomposition_are_left_out_or_refused_before_anything_starts(capsys, tmp_path):
    file = tmp_path / "train.jsonl"
    good = question_record(QUESTION)
    bare = json.dumps(good | {"id": "q2", "question": "Who else?", "decomposition": []}) + "\n"
    argv = ["sample", "--questions", str(file), "--out", str(tmp_path / "out"), "--sample.source"]
    for source in ("decomposition", "thoughts", "given"):
        file.write_text(bare)
        assert "1 of 1 questions have no decomposition, such as 'q2'" in refused(capsys, [*argv, source])
        file.write_text(json.dumps(good) + "\n" + bare)
        message = refused(capsys, [*argv, source])
        assert ("1 of 2 questions have no decomposition, such as 'q2'" in message) == (source != "given")
        assert "name an index" in message or "corag index" in message


# ---- sampled


def test_sample_writes_chains_and_says_what_came_of_it(scripted, capsys, questions, tmp_path):
    assert sample(questions, tmp_path / "chains") == 0
    printed = capsys.readouterr()
    record = json.loads(printed.out.splitlines()[-1])
    assert record == json.loads(json.dumps(asdict(describe(read_chains([tmp_path / "chains"]))))) | {
        "folder": str(tmp_path / "chains")
    }
    assert (record["questions"], record["failed"], record["chains"]) == (10, 0, 30)
    assert "sample: 10/10 questions" in printed.err
    manifest = Manifest.read(tmp_path / "chains")
    assert manifest.options["sample"]["chains"] == 3 and len(manifest.prompts) == 3
    assert any(len(row.chain.hops) > 1 for row in read_chains([tmp_path / "chains"]))


def test_more_questions_go_into_the_same_folder_but_not_other_options(scripted, capsys, questions, tmp_path):
    out = tmp_path / "chains"
    assert sample(questions, out, "--limit", 4) == 0
    first = (out / TRACES).read_bytes()
    assert sample(questions, out, "--skip", 3) == 0
    assert (out / TRACES).read_bytes().startswith(first) and len(ids(out)) == len(set(ids(out))) == 10
    capsys.readouterr()
    assert sample(questions, out, "--sample.chains", 5, "--corag.task", "guess") == 2
    message = capsys.readouterr().err
    assert "sample.chains: 3 -> 5" in message and "  corag.task: " in message


def test_other_aliases_are_refused_for_they_make_other_chains(scripted, capsys, tmp_path):
    questions, aliases = tmp_path / "train.json", tmp_path / "id_aliases.json"
    questions.write_text(json.dumps([TWO_WIKI]))
    options = ["--dataset", "2wikimultihopqa", "--aliases", aliases]
    for names, status in ((["SE"], 0), (["SE"], 0), (["Sverige"], 2)):
        aliases.write_text(json.dumps([{"Q_id": TWO_WIKI["answer_id"], "aliases": names, "demonyms": []}]))
        assert sample(questions, tmp_path / "chains", *options) == status
    assert "  aliases: " in capsys.readouterr().err
    assert sample(questions, tmp_path / "without", *options[:2]) == 0
    with_aliases, without = (Manifest.read(tmp_path / name).settings for name in ("chains", "without"))
    assert {name: value for name, value in with_aliases.items() if name != "aliases"} == without


def test_shards_lie_beside_each_other_and_are_read_as_one(scripted, capsys, questions, tmp_path):
    for number in (1, 2, 3):
        assert sample(questions, tmp_path / "chains", "--shard", f"{number}/3") == 0
    assert sample(questions, tmp_path / "whole") == 0
    folders = [tmp_path / f"chains.shard-{number}-of-3" for number in (1, 2, 3)]
    assert sorted(ids(folders[1])) == ["q2", "q5", "q8"]
    shards, whole = read_chains(folders), read_chains([tmp_path / "whole"])
    assert {row.question.id: row for row in shards} == {row.question.id: row for row in whole}
    capsys.readouterr()
    assert main(["table", str(tmp_path / "chains"), "--join"]) == 0
    assert "Joined: " in capsys.readouterr().out
    assert "holds sampled chains, which have no answers" in refused(
        capsys, ["table", str(tmp_path / "chains")]
    )
    joined = read_chains([tmp_path / "chains"])
    assert [row.question.id for row in joined] == [each.id for each in many(10)]
    assert {row.question.id: row for row in joined} == {row.question.id: row for row in whole}


CHILD = """
import asyncio, functools, sys
import eval.experiment.open_executor
from corag.cli.main import main
from tests.training.toy import scripted_backends

async def slowly(request):
    await asyncio.sleep(0.01)

eval.experiment.open_executor.open_backends = functools.partial(scripted_backends, pause=slowly)
sys.exit(main(sys.argv[1:]))
"""


@pytest.mark.slow
def test_sampling_killed_in_the_middle_goes_on_to_the_same_data(scripted, questions, tmp_path):
    out = tmp_path / "killed"
    argv = ["sample", "--questions", str(questions), "--out", str(out), *map(str, OPTIONS)]
    child = [sys.executable, "-c", CHILD, *argv, "--json"]
    process = subprocess.Popen(child, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 120
    while not ((out / TRACES).exists() and (out / TRACES).read_bytes().count(b"\n") >= 2):
        assert process.poll() is None and time.monotonic() < deadline, (
            "sampling must get to its second question"
        )
        time.sleep(0.005)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    finished = (out / TRACES).read_bytes()
    finished = finished[: finished.rfind(b"\n") + 1]
    assert 2 <= finished.count(b"\n") < 10
    with (out / TRACES).open("ab") as stream:
        stream.write(b'{"id": "q9", "torn')
    ended = subprocess.run(child, capture_output=True, text=True, check=True)
    assert json.loads(ended.stdout.splitlines()[-1])["questions"] == 10
    after = (out / TRACES).read_bytes()
    assert after.startswith(finished), "what had finished was not sampled again"
    assert len(ids(out)) == after.count(b"\n") == 10
    assert len(Manifest.read(out).starts) == 2

    assert sample(questions, tmp_path / "whole") == 0
    again, whole = read_rows(out), read_rows(tmp_path / "whole")
    times = dict.fromkeys(("seconds", "begun", "opened"), 0)
    for name, row in whole.items():
        assert replace(again[name], **times) == replace(row, **times)
    data = []
    renderer = Renderer.load(model_folder("default", weights=False))
    for chains, rows in ((out, tmp_path / "rows-1"), (tmp_path / "whole", tmp_path / "rows-2")):
        asyncio.run(write_rows([chains], rows, WordRetriever(WORLD), renderer, RowsConfig(validation=0.3)))
        data.append(load_from_disk(str(rows)))
    assert all(data[0][split].to_list() == data[1][split].to_list() for split in ("train", "validation"))
