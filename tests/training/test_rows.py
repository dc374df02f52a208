"""Training rows are written as a dataset, read back, and reported on."""

import asyncio
import json
import math
import shutil
from dataclasses import replace
from pathlib import Path

import orjson
import pytest
from datasets import load_from_disk

from corag.core.errors import ConfigError, DataError
from corag.core.language.text import mentions
from corag.core.runs.folder import TRACES
from corag.generation.models import model_folder
from corag.generation.rendering import Renderer
from tests.fakes import WordRetriever, passage
from tests.messages import raises_message
from tests.training import toy
from tests.training.conftest import PASSAGES, TOWNS, make_rows
from tests.training.toy import ALL, QUESTION, SAMPLE, WORLD, examples_of, many, write_chains
from training.chains import read_chains
from training.config import SftConfig
from training.data import is_validation, tokenise
from training.rows import REPORT, read_report, write_rows
from training.sft import load_rows
from training.tables import within_window

# Every reply has room, annotated ones too.
CORAG = replace(toy.CORAG, max_sub_query_tokens=32, max_sub_answer_tokens=32)


@pytest.fixture(scope="module")
def chains(tmp_path_factory):
    folder = tmp_path_factory.mktemp("chains") / "chains"
    write_chains(folder, replace(SAMPLE, reject_below=-1.5), CORAG, questions=many(30))
    write_chains(
        folder, replace(SAMPLE, reject_below=-1.5), CORAG, questions=many(31)[30:], failing="birthplace"
    )
    return folder


def write(chains, out, renderer, config, world=WORLD):
    return asyncio.run(write_rows([chains], out, WordRetriever(world), renderer, config))


def test_rows_of_which_one_folder_learns_what_the_other_sets_aside_are_refused(chains, tmp_path, renderer):
    for name, seed in (("a", 0), ("b", 0), ("c", 1)):
        write(chains, tmp_path / name, renderer, replace(ALL, validation=0.3, seed=seed))
    folder = model_folder("default", weights=False)
    load_rows(SftConfig(rows=[str(tmp_path / "a"), str(tmp_path / "b")], out="out"), folder)
    with pytest.raises(DataError):
        load_rows(SftConfig(rows=[str(tmp_path / "a"), str(tmp_path / "c")], out="out"), folder)


def test_rows_are_written_and_read_back(chains, tmp_path, renderer):
    config = replace(ALL, validation=0.3)
    report = write(chains, tmp_path / "rows", renderer, config)
    data = load_from_disk(str(tmp_path / "rows"))
    kept = {row.question.id: row for row in read_chains([chains]) if row.chain is not None}
    want = {}
    for row in kept.values():
        for asked in examples_of(row, renderer.count, config):
            want[asked.question_id, asked.task, asked.hop] = tokenise(asked, renderer, config)[0]
    assert set(data) == {"train", "validation"}
    for split, rows in data.items():
        for row in rows:
            mine = want.pop((row["question_id"], row["task"], row["hop"]))
            labels = row.pop("labels")
            assert row == {name: getattr(mine, name) for name in row}
            assert [label if label != -100 else 0 for label in labels] == [
                token * learned for token, learned in zip(mine.input_ids, mine.completion_mask, strict=True)
            ]
            assert is_validation(row["question_id"], config.seed, config.validation) == (
                split == "validation"
            )
            assert 0 < sum(row["completion_mask"]) < len(row["input_ids"]) == len(row["completion_mask"])
    assert not want, "every row is there once"
    assert report.questions == len(kept) < 30 and report.left_out["failed"] == 1
    assert report.left_out["threshold"] == 30 - len(kept) > 0
    assert sum(each.rows for each in report.lengths.values()) == len(data["train"]) + len(data["validation"])
    assert report.tokens == sum(len(row["input_ids"]) for rows in data.values() for row in rows)
    lengths = [row for row in data["train"] if row["task"] == "sub_answer"]
    mine = report.lengths["train/sub_answer"]
    assert (mine.rows, mine.longest) == (len(lengths), max(len(row["input_ids"]) for row in lengths))
    assert mine.completion_tokens == sum(sum(row["completion_mask"]) for row in lengths)
    assert report.shortened == {} and read_report(tmp_path / "rows") == report
    noted = json.loads((tmp_path / "rows" / REPORT).read_text()) | {"files": ["noted by an earlier version"]}
    (tmp_path / "rows" / REPORT).write_text(json.dumps(noted))
    assert read_report(tmp_path / "rows") == report
    assert any(line.startswith("validation/final_answer") for line in report.lines())


def test_the_same_again_changes_nothing_and_anything_else_is_refused(chains, tmp_path, renderer):
    out = tmp_path / "rows"
    report = write(chains, out, renderer, ALL)
    before = {file: file.stat().st_mtime_ns for file in out.rglob("*")}
    assert write(chains, out, renderer, ALL) == report
    assert {file: file.stat().st_mtime_ns for file in out.rglob("*")} == before
    assert [file.name for file in tmp_path.iterdir()] == ["rows"], "nothing is left lying about"
    for other in (replace(ALL, ratio=0.5), replace(ALL, max_length=500), replace(ALL, tasks=("no_chain",))):
        with raises_message(ConfigError):
            write(chains, out, renderer, other)
    with raises_message(ConfigError):
        write(chains, tmp_path, renderer, ALL)


def test_rows_of_chains_that_have_grown_are_others(tmp_path, renderer):
    write_chains(tmp_path / "chains", SAMPLE, CORAG, questions=many(2))
    write(tmp_path / "chains", tmp_path / "rows", renderer, ALL)
    write_chains(tmp_path / "chains", SAMPLE, CORAG, questions=many(3)[2:])
    with raises_message(ConfigError):
        write(tmp_path / "chains", tmp_path / "rows", renderer, ALL)
    assert write(tmp_path / "chains", tmp_path / "more", renderer, ALL).questions == 3


def test_shortened_rows_are_reported(chains, tmp_path, renderer):
    longest = max(each.longest for each in write(chains, tmp_path / "a", renderer, ALL).lengths.values())
    report = write(chains, tmp_path / "b", renderer, replace(ALL, max_length=longest - 5))
    assert report.shortened and all(lost["passage"] > 0 for lost in report.shortened.values())
    assert all(each.longest <= longest - 5 for each in report.lengths.values())
    assert f"rows whose prompt was shortened: {len(report.shortened)}" in next(report.lines())


def test_no_answer_is_taught_whose_passages_found_no_room(tiny_model, tmp_path, capsys):
    """Of four towns: the answer is in the long passage's first sentence, in its last, in one that is too long
    to be cut, and nothing is long.
    """
    filler = "Its streets are old and its river is wide. " * 60
    mayors = [each.text for each in PASSAGES[::2]]
    endless = filler.replace(".", ",")
    texts = [mayors[0] + filler, filler + mayors[1], endless + mayors[2]]
    long = [passage(f"Mayor of {town}", text) for town, text in zip(TOWNS, texts, strict=False)]
    third = passage(PASSAGES[5].title, endless + PASSAGES[5].text)
    world = [*long, PASSAGES[1], PASSAGES[3], third, *PASSAGES[6:]]
    out = Path(make_rows(tmp_path, tiny_model, world, max_length=400, validation=0.0))
    report, renderer = read_report(out), Renderer.load(tiny_model)
    assert sorted(report.lost) == [
        "final_answer of question 'q2'",
        "sub_answer of question 'q1', hop 1",
        "sub_answer of question 'q2', hop 1",
        "sub_answer of question 'q2', hop 2",
    ]
    cut = [name for name, losses in report.shortened.items() if "cut_passage" in losses]
    assert "sub_answer of question 'q0', hop 1" in cut
    said = " ".join(report.lines())
    assert "(final_answer 1, sub_answer 3)" in said and "lost its last sentences" in said
    for row in load_from_disk(str(out))["train"]:
        ids = row["input_ids"][: row["completion_mask"].index(1)]
        read, prompt = renderer.continuation((), ids), row["prompt"]
        assert len(row["input_ids"]) <= 400
        assert read.count("streets") == prompt.count("streets"), "the column shows what the model reads"
        if row["task"] == "sub_answer":
            assert mentions([read.split("Question:")[0]], [row["completion"]]), row


def test_rows_are_no_longer_than_the_model_can_read(options, tiny_model, tmp_path, capsys):
    narrow = tmp_path / "narrow"
    shutil.copytree(tiny_model, narrow)
    settings = json.loads((narrow / "config.json").read_text())
    (narrow / "config.json").write_text(json.dumps(settings | {"max_position_embeddings": 100}))
    with raises_message(DataError):
        load_rows(options(model=str(narrow)), str(narrow))
    assert within_window(ALL.max_length, "narrow", str(narrow), "rows") == 100
    assert (
        f"read 100 tokens at once, so rows have at most so many, not {ALL.max_length}"
        in capsys.readouterr().err
    )
    assert within_window(ALL.max_length, "tiny", tiny_model, "rows") == ALL.max_length
    assert capsys.readouterr().err == ""


def test_another_index_and_a_lost_passage_are_refused(chains, tmp_path, renderer):
    other = WordRetriever(WORLD)
    other.fingerprint = "other words"
    with raises_message(ConfigError):
        asyncio.run(write_rows([chains], tmp_path / "rows", other, renderer, ALL))
    with raises_message(DataError):
        write(chains, tmp_path / "rows", renderer, ALL, world=[passage("Elsewhere", "Nothing."), *WORLD[2:]])
    assert not (tmp_path / "rows").exists() and list(tmp_path.iterdir()) == []


def test_sampled_replies_that_were_cut_off_are_not_taught(chains, tmp_path, renderer):
    all_taught = write(chains, tmp_path / "a", renderer, ALL)
    # A token of the model that samples is a word: "The Glass Orchard 7?" may have been cut off, "Mara Velden
    # 7?" was not.
    short = replace(CORAG, max_sub_query_tokens=4)
    write_chains(tmp_path / "chains", replace(SAMPLE, reject_below=-1.5), short, questions=many(30))
    report = write(tmp_path / "chains", tmp_path / "b", renderer, ALL)
    kept = {row.question.id: row.chain.hops for row in read_chains([tmp_path / "chains"]) if row.chain}
    assert sorted(report.cut) == sorted(
        f"sub_query of question '{name}', hop {number}"
        for name, hops in kept.items() for number, hop in enumerate(hops, 1) if hop.query_cut
    )  # fmt: skip
    assert all_taught.cut == [] and report.cut and f"left out: {len(report.cut)}" in next(report.lines())
    before, after = (each.lengths["train/sub_query"].rows for each in (all_taught, report))
    assert after == before - len(report.cut) > 0
    taught = [
        row["completion"]
        for row in load_from_disk(str(tmp_path / "b"))["train"]
        if row["task"] == "sub_query"
    ]
    assert max(map(renderer.count, taught)) > 4, "how many tokens another model needs does not matter"


def test_annotated_replies_that_decoding_would_cut_off_are_not_taught(tmp_path, renderer):
    answers = [hop.answer for hop in QUESTION.decomposition]
    longest = max(map(renderer.count, answers))
    for most in (longest, longest - 1):
        corag = replace(CORAG, max_sub_answer_tokens=most)
        write_chains(tmp_path / f"{most}", replace(SAMPLE, source="decomposition"), corag)
        assert write(tmp_path / f"{most}", tmp_path / f"{most}-rows", renderer, ALL).cut == [
            f"sub_answer of question 'q1', hop {number}"
            for number, answer in enumerate(answers, 1) if renderer.count(answer) > most
        ]  # fmt: skip


def test_an_answer_longer_than_a_row_is_left_out_and_named(tmp_path, renderer):
    long = replace(QUESTION, id="long", answers=("old " * ALL.max_length,))
    write_chains(tmp_path / "chains", SAMPLE, CORAG, questions=[QUESTION, long])
    report = write(tmp_path / "chains", tmp_path / "rows", renderer, ALL)
    sentence = report.unfit[0]
    assert all(" of question 'long' has a reply of " in each for each in report.unfit)
    assert f"left out: {len(report.unfit)} (" in (said := "\n".join(report.lines())) and sentence in said
    taught = {(row["question_id"], row["task"]) for row in load_from_disk(str(tmp_path / "rows"))["train"]}
    assert {("q1", "final_answer"), ("long", "sub_query")} <= taught
    assert ("long", "final_answer") not in taught


def test_an_impossible_answer_is_read_back_as_impossible(tmp_path, renderer):
    write_chains(tmp_path / "chains", SAMPLE, CORAG)
    traces = tmp_path / "chains" / TRACES
    row = orjson.loads(traces.read_bytes())
    # how JSON writes -inf
    row["answer"]["chains"][0]["means"][0] = row["answer"]["chains"][0]["sums"][0] = None
    traces.write_bytes(orjson.dumps(row) + b"\n")
    (back,) = read_chains([tmp_path / "chains"])
    assert back.chains[0].means[0] == back.chains[0].sums[0] == -math.inf
    assert write(tmp_path / "chains", tmp_path / "rows", renderer, ALL).questions == 1
