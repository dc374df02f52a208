"""The shipped demonstrations: the same questions in every form, each in words that its method can read."""

import re
from itertools import pairwise

import pytest

from corag.baselines.closed_book import ClosedBookConfig
from corag.baselines.drag import DRAGConfig
from corag.baselines.flare import FLAREConfig
from corag.baselines.iter_retgen import IterRetGenConfig
from corag.baselines.iterdrag import IterDRAGConfig
from corag.baselines.one_step import OneStepConfig
from corag.baselines.react import Library, ReActConfig, parse_move, write
from corag.baselines.self_ask import SelfAskConfig, parse_turn
from corag.baselines.transcripts import EXAMPLES, FINAL, worked_examples
from corag.core.errors import ConfigError, DataError
from corag.core.language.text import extract_answer
from corag.core.prompting.demonstrations import CHAIN_OF_THOUGHT, read_demonstrations
from corag.core.types import Hit, Passage
from eval.experiment.run import RunConfig, method_settings
from ircot.method import IRCoTConfig
from tests.messages import raises_message

CHAINS = read_demonstrations(str(CHAIN_OF_THOUGHT))
ANSWERS = {demonstration.question: extract_answer(demonstration.answer) for demonstration in CHAINS}
OF_CHAINS = (ClosedBookConfig, OneStepConfig, IRCoTConfig, IterRetGenConfig, FLAREConfig, DRAGConfig)


def examples(form):
    return worked_examples(str(EXAMPLES / f"{form}.txt"), 0)


def question_of(example):
    return example.splitlines()[0].removeprefix("Question: ")


def test_all_forms_answer_the_same_questions_alike():
    assert dict(zip(ANSWERS, ["no", "1982", "the Rhine", "France"], strict=True)) == ANSWERS
    follow_ups = read_demonstrations(str(IterDRAGConfig().shipped_examples()))
    assert [(shown.question, shown.context) for shown in follow_ups] == [
        (shown.question, shown.context) for shown in CHAINS
    ]
    assert {shown.question: shown.answer.rpartition(FINAL)[2].strip() for shown in follow_ups} == ANSWERS
    assert {
        question_of(example): parse_turn(example.splitlines()[-1]).answer for example in examples("self_ask")
    } == ANSWERS
    assert {
        question_of(example): parse_move(example.splitlines()[-1]).argument for example in examples("react")
    } == ANSWERS
    assert list(ANSWERS.values())[-1] not in ("yes", "no"), (
        "small models copy the last answer, which then fits no question"
    )


def test_every_observation_is_what_the_action_before_it_brings():
    """A made-up observation would teach a model to trust what no search said."""
    paragraphs = {}
    for demonstration in CHAINS:
        lines = demonstration.context.splitlines()
        paragraphs |= {line.removeprefix("Wikipedia Title: "): text for line, text in pairwise(lines)}
    config = ReActConfig(preset="paper", demonstrations="default")
    looked_up = 0
    for example in examples("react"):
        library = Library()
        observed = re.findall(r"^Action \d: (.*)\nObservation \d: (.*)\n(?=Thought)", example, re.MULTILINE)
        assert len(observed) >= 2
        for action, observation in observed:
            move = parse_move(f"Action 1: {action}")
            if move.name == "search":
                title = observation.partition(": ")[0]
                hit = Hit(Passage(title, title, paragraphs[title]), 1.0)
                said = write(library.add([hit], config.shown_sentences), config)
            else:
                text, found = library.look_up(move.argument, config.lookup_sentences)
                said, looked_up = text + write(found, config), looked_up + 1
            assert said == observation
    assert looked_up, "one shows what a lookup is for"


@pytest.mark.parametrize("options", OF_CHAINS)
def test_methods_of_chains_of_thought_take_them_by_name(options):
    config = options(demonstrations="default")
    config.check_files()
    assert [shown.question for shown in config.examples()] == list(ANSWERS)[
        : config.demonstration_count or None
    ]
    assert list(config.files()) == ["default"]


def test_a_run_is_the_same_wherever_the_package_lies_and_another_with_other_examples(tmp_path):
    questions = tmp_path / "questions.jsonl"
    questions.write_text('{"id": "q1", "question": "Who?", "answers": ["Ada"]}\n')
    react, self_ask = ReActConfig(demonstrations="default"), SelfAskConfig(demonstrations="default")
    config = RunConfig(str(questions), react=react, self_ask=self_ask)
    digests = [method_settings(config, name)["demonstrations"] for name in ("react", "self_ask")]
    assert [list(files) for files in digests] == [["default"], ["default"]] and digests[0] != digests[1]


@pytest.mark.parametrize("options", [ReActConfig, SelfAskConfig, FLAREConfig, IterRetGenConfig, IRCoTConfig])
def test_a_few_shot_preset_without_examples_is_refused(options):
    with raises_message(ConfigError):
        options(preset="paper")


def test_a_file_of_other_examples_is_refused(tmp_path):
    broken = tmp_path / "broken.txt"
    broken.write_text("Some instructions.\nQuestion: a?\n")
    for name in ("defaul", str(broken)):
        with raises_message(DataError):
            ReActConfig(demonstrations=name).check_files()
