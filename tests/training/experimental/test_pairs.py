"""Pairs of sub-queries: which one is chosen, by hand, and that they are what decoding asks."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path

import datasets
import pytest

from corag.chains.chain import Chain, Hop
from corag.chains.config import CoRAGConfig
from corag.chains.prompting import sub_query_prompt
from corag.cli.main import main
from corag.core.errors import ConfigError, DataError
from corag.core.protocols import GenerateRequest, Sampling
from corag.core.runs.folder import RunFolder
from corag.core.runs.manifest import CHAINS
from corag.core.runs.rows import Row
from corag.core.types import Question
from corag.generation.rendering import Renderer
from tests.fakes import WordRetriever
from tests.messages import raises_message
from training.chains import ChainRow
from training.experimental.pairs import (
    PairsConfig,
    Preference,
    list_siblings,
    preferences,
    read_pairs_report,
    write_pairs,
)
from training.program import find_test_names
from training.rows import read_report
from training.sampling import SampleConfig, SampledChain, SampledChains

QUESTION = Question("q1", "Which river flows by the birthplace of its author?", ("Issel",), hops=2)
CORAG = CoRAGConfig()


def chain(*hops: tuple[str, str, float], cut: bool = False) -> SampledChain:
    """A chain of (sub-query, sub-answer, score after it)."""
    records = tuple(Hop(query, answer, False, (), cut) for query, answer, _ in hops)
    means = tuple(mean for _, _, mean in hops)
    return SampledChain(records, means, tuple(4 * mean for mean in means), len(hops), "length")


def row(*chains: SampledChain) -> ChainRow:
    return ChainRow(QUESTION, (), chains, 0, "")


WHO, WHERE, WHAT = ("Who wrote it?", "Mara", -2.0), ("Where is it set?", "Tarn", -3.0), ("What?", "no", -5.0)


def said(found: Sequence[Preference]) -> list[tuple[int, str, str, float]]:
    return [
        (len(pair.before) + 1, pair.better.sub_query, pair.worse.sub_query, pytest.approx(pair.margin))
        for pair in found
    ]


def test_the_sub_query_after_which_the_answer_is_likelier_is_chosen() -> None:
    found = preferences(row(chain(WHO), chain(WHERE), chain(WHAT)), "hop", 0.5)
    assert said(found) == [
        (1, "Who wrote it?", "What?", 3.0),
        (1, "Where is it set?", "What?", 2.0),
        (1, "Who wrote it?", "Where is it set?", 1.0),
    ]
    assert said(preferences(row(chain(WHO), chain(WHERE), chain(WHAT)), "hop", 2.5)) == said(found)[:1]


def test_deeper_siblings_have_the_same_hops_before_them() -> None:
    born, river = ("Where was Mara born?", "Tarn", -0.5), ("Which river?", "Issel", -1.5)
    found = preferences(row(chain(WHO, born), chain(WHO, river), chain(WHERE, river)), "hop", 0.6)
    assert said(found) == [
        (1, "Who wrote it?", "Where is it set?", 1.0),
        (2, "Where was Mara born?", "Which river?", 1.0),
    ]
    other = ("Who wrote it?", "Another", -2.0)  # another sub-answer makes it another hop
    assert not preferences(row(chain(WHO, born), chain(other, river)), "hop", 0.6)


def test_a_first_step_may_pay_later() -> None:
    low, high = ("Where?", "a", -1.0), ("When?", "b", -4.0)
    chains = row(chain(WHERE, low), chain(WHO, high), chain(WHO))
    assert said(preferences(chains, "hop", 0.5))[0][1] == "Who wrote it?"
    # Through "Who" chains end at -4 and at -2, on average at -3; through "Where" at -1.
    assert said(preferences(chains, "chain", 0.5))[0] == (1, "Where is it set?", "Who wrote it?", 2.0)


def test_an_annotated_chain_of_one_hop_is_no_sampled_one() -> None:
    """It is scored at its end, which is after its only hop."""
    assert list_siblings(row(chain(WHO)), "hop") and not list_siblings(
        replace(row(chain(WHO)), is_annotated=True), "hop"
    )


def test_spelling_makes_no_sibling_and_what_was_cut_off_none_to_learn() -> None:
    respelt = ("who wrote it", "Mara", -1.0)
    (siblings,) = list_siblings(row(chain(WHO), chain(respelt)), "hop").values()
    assert [(each.sub_query, each.worth) for each in siblings] == [("Who wrote it?", -1.5)]
    assert not preferences(row(chain(WHO), chain(WHAT, cut=True)), "hop", 0.1)
    assert not preferences(row(chain(WHO), chain(("Why?", "x", float("-inf")))), "hop", 0.1)


def sampled(
    folder: Path, *, questions: int = 6, file: str = "train.jsonl", corag: CoRAGConfig = CORAG
) -> Path:
    """Write chains by hand as 'corag sample' does, of ever narrower margins."""
    settings = {
        "method": CHAINS,
        "options": {"sample": asdict(SampleConfig()), "corag": asdict(corag)},
        "prompts": [template.identity for template in corag.templates()],
        "questions": {"source": "by hand"},
        "model": "by hand",
        "retriever": WordRetriever.fingerprint,
        "seed": 0,
    }
    with RunFolder(folder, settings, {"questions": file}) as run:
        for number in range(questions):
            worse = (WHERE[0], WHERE[1], -2.0 - 1 / (1 + number))
            chains = (chain(WHO), chain(worse), chain(WHAT))
            question = Question(f"q{number}", f"{number}: {QUESTION.text}", ("Issel",), hops=2)
            run.append(Row(question, SampledChains("", (), 1, "length", (), chains, 0, ""), (), {}, 0.0))
    return folder


def test_pairs_are_what_decoding_asks_and_how_it_replies(tmp_path: Path, renderer: Renderer) -> None:
    report = write_pairs(
        [sampled(tmp_path / "chains")], tmp_path / "pairs", renderer, PairsConfig(validation=0)
    )
    rows = datasets.load_from_disk(str(tmp_path / "pairs"))["train"]
    assert report.lengths["train"].pairs == len(rows) and report.questions == 6
    for each in rows:
        text = f"{each['question_id'][1:]}: {QUESTION.text}"
        prompt = sub_query_prompt(text, Chain(), CORAG)
        assert each["prompt_ids"] == renderer.encode(GenerateRequest(prompt, Sampling(8)).prompt)
        for name in ("chosen", "rejected"):
            *ids, end = each[f"{name}_ids"]
            assert renderer.continuation(each["prompt_ids"], ids) == each[name]
            assert end == renderer.end_of_turn()
    first = [each for each in rows if each["question_id"] == "q0"]
    assert {(each["chosen"].strip(), each["rejected"].strip()) for each in first} == {
        ("Who wrote it?", "Where is it set?"), ("Who wrote it?", "What?"), ("Where is it set?", "What?"),
    }  # fmt: skip


def test_the_report_says_what_there_is_and_what_was_left_out(tmp_path: Path, renderer: Renderer) -> None:
    config = PairsConfig(per_question=2, validation=0)
    report = write_pairs(
        [sampled(tmp_path / "chains", file="dev.jsonl")], tmp_path / "pairs", renderer, config
    )
    # Of q0's three pairs two are kept; "Who" against "Where" has a margin below 0.2 from q5 on (1/6).
    assert report.lengths["train"].pairs == 12 and report.not_kept == 5
    assert report.margins == {"to 4": 11, "to 2": 1} and report.hops == {"1": 12}
    assert report.settings["tokenizer"] == renderer.fingerprint
    assert find_test_names(report) == ["dev.jsonl"]
    assert read_pairs_report(tmp_path / "pairs") == report and read_report(tmp_path / "pairs") is None
    written = (tmp_path / "pairs/pairs.json").stat().st_mtime_ns
    assert write_pairs([tmp_path / "chains"], tmp_path / "pairs", renderer, config) == report
    assert (tmp_path / "pairs/pairs.json").stat().st_mtime_ns == written
    with raises_message(ConfigError):
        write_pairs(
            [tmp_path / "chains"],
            tmp_path / "pairs",
            renderer,
            PairsConfig(margin=0.3, per_question=2, validation=0),
        )


def test_chains_without_a_preference_are_refused(tmp_path: Path, renderer: Renderer) -> None:
    with raises_message(DataError):
        write_pairs([sampled(tmp_path / "chains")], tmp_path / "pairs", renderer, PairsConfig(margin=9.0))
    assert not (tmp_path / "pairs").exists()
    with raises_message(ConfigError):
        PairsConfig(margin=0.0)


def test_a_prompt_that_has_changed_since_is_refused(tmp_path: Path, renderer: Renderer) -> None:
    manifest = sampled(tmp_path / "chains") / "manifest.json"
    record = json.loads(manifest.read_text())
    record["settings"]["prompts"][0] = "sub_query:another"
    manifest.write_text(json.dumps(record))
    with raises_message(ConfigError):
        write_pairs([tmp_path / "chains"], tmp_path / "pairs", renderer, PairsConfig())


def test_the_command_writes_pairs_and_says_what_they_are(
    tmp_path: Path, tiny_model: str, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [str(sampled(tmp_path / "chains")), "--out", str(tmp_path / "pairs"), "--model", tiny_model]
    assert main(["pairs", *words, "--pairs.validation", "0.3"]) == 0
    printed = capsys.readouterr().out
    assert "questions 6, left out 0; pairs beyond the limit of a question: 0" in printed
    assert main(["pairs", str(tmp_path), "--out", str(tmp_path / "none")]) == 2
