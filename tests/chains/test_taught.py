"""What an adapter was trained for, beside what is asked: told where they differ, and never where not."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from corag.chains.config import CoRAGConfig
from corag.chains.taught import Teaching, training_difference
from corag.core.options.command_line import parse
from corag.core.prompting.template import load_template
from corag.generation.trained_for import read_trainings
from eval.experiment.run import RunConfig

TUNED = CoRAGConfig(preset="small_model", stop="learned")


def training(config: CoRAGConfig, *tasks: str, adapter: object = "") -> dict[str, Any]:
    """The settings in the training.json of rows of chains that were sampled with these options."""
    chains = {"options": {"corag": asdict(config)}, "prompts": [each.identity for each in config.templates()]}
    rows = {"chains": [chains], "rows": {"tasks": list(tasks)}}
    return {"rows": [rows], "options": {"adapter": adapter}}


def as_trained(settings: dict[str, Any]) -> CoRAGConfig:
    taught = Teaching.read(settings)
    assert taught is not None
    words = ["--questions", "q.jsonl", "--method", "corag", "--retriever.index", "x", *taught.arguments()]
    return parse(RunConfig, words, "corag run", "").of("corag")


def test_the_shipped_adapter_is_told_from_what_the_paper_asks() -> None:
    settings = read_trainings("default", "default")[0]["settings"]
    assert settings is not None
    assert training_difference(CoRAGConfig(), settings) == (
        "was trained for corag with passages_per_hop 3, context fused, context_passages 5, stop learned, but "
        "is asked with passages_per_hop 5, context question, context_passages 20, stop length: --corag."
        "preset small_model --corag.stop learned asks as trained"
    )
    assert not training_difference(TUNED, settings)


@pytest.mark.parametrize(
    "config",
    [
        TUNED,
        replace(TUNED, context="evidence", refusal="It does not say"),
        CoRAGConfig(stop="learned", passages_per_hop=2),
        CoRAGConfig(stop="learned", max_passage_tokens=90, max_answer_tokens=8),
    ],
)
def test_the_words_that_are_advised_ask_as_was_trained(config: CoRAGConfig) -> None:
    settings = training(config, "sub_query", "stop")
    asked = as_trained(settings)
    assert asked == config and not training_difference(asked, settings)


def test_a_prompt_of_ones_own_counts_by_its_words(tmp_path: Path) -> None:
    mine = tmp_path / "mine.txt"
    mine.write_text("version: 1\n--- user\n{query} {task} {hops}\n")
    config = replace(TUNED, sub_query_prompt=str(mine))
    settings = training(config, "sub_query", "stop")
    assert "sub_query_prompt" in training_difference(TUNED, settings)
    assert f"--corag.sub_query_prompt {mine}" in training_difference(TUNED, settings)
    mine.write_text("version: 1\n--- user\n{query} {task} {hops}?\n")
    load_template.cache_clear()  # as in another process
    assert "sub_query_prompt" in training_difference(config, settings), "it was changed since"


def test_how_chains_are_chosen_and_how_long_they_are_is_free() -> None:
    settings = training(TUNED, "sub_query", "stop")
    for free in (
        {"strategy": "best_of_n", "chains": 8}, {"max_hops": 2}, {"stop": "check"}, {"task": "other"},
        {"max_hops": 0, "context_passages": 9},
    ):  # fmt: skip
        assert not training_difference(replace(TUNED, **free), settings), free


def test_a_stop_that_nothing_taught_is_told_unless_an_earlier_training_may_have() -> None:
    assert "stop learned" in training_difference(TUNED, training(TUNED, "sub_query"))
    assert not training_difference(TUNED, training(TUNED, "draft", adapter={"name": "before"}))


def test_a_model_that_learned_to_answer_without_chains_is_asked_for_none() -> None:
    settings = training(TUNED, "no_chain")
    assert "max_hops 0" in training_difference(TUNED, settings)
    assert as_trained(settings).max_hops == 0 and not training_difference(as_trained(settings), settings)


def test_a_training_of_something_else_says_nothing() -> None:
    for settings in ({}, {"rows": []}, {"rows": [{"chains": [{"options": {"ircot": {}}}]}]}):
        assert not training_difference(CoRAGConfig(), settings)
