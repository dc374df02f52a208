"""What an option brings is in the prompt, or the run is refused: a table would name examples never shown."""

import pytest

from corag.baselines.closed_book import ClosedBookConfig
from corag.baselines.drag import DRAGConfig
from corag.baselines.flare import FLAREConfig
from corag.baselines.iter_retgen import IterRetGenConfig
from corag.baselines.iterdrag import IterDRAGConfig
from corag.baselines.one_step import OneStepConfig
from corag.baselines.react import ReActConfig
from corag.baselines.recursive.config import RecursiveConfig
from corag.baselines.self_ask import SelfAskConfig
from corag.core.errors import ConfigError, DataError
from ircot.method import IRCoTConfig
from tests.messages import raises_message

READ, THINK = "{paragraphs}Q: {query}", "{paragraphs}Q: {query}\nA: {cot_history}"
PROMPTS = [
    (IRCoTConfig, "reasoning_prompt", THINK),
    (IRCoTConfig, "qa_prompt", READ),
    (OneStepConfig, "qa_prompt", READ),
    (IterRetGenConfig, "qa_prompt", READ),
    (RecursiveConfig, "qa_prompt", READ),
    (ClosedBookConfig, "qa_prompt", "Q: {query}"),
    (FLAREConfig, "prompt", THINK),
    (DRAGConfig, "prompt", "{passages}Q: {query}"),
    (IterDRAGConfig, "prompt", "{passages}Q: {query}\n{transcript}"),
    (SelfAskConfig, "prompt", "Q: {query}\n{transcript}"),
    (ReActConfig, "prompt", "Q: {query}\n{hops}{cue}"),
]


@pytest.mark.parametrize(
    ("config", "option", "text"), PROMPTS, ids=[f"{each.SECTION}.{name}" for each, name, _ in PROMPTS]
)
def test_an_own_prompt_without_the_demonstrations_that_are_given_is_refused(config, option, text):
    with pytest.raises(ConfigError, match=r"lacks \{demonstrations\}"):
        config(**{option: text, "demonstrations": "default"}).check_files()
    config(**{option: f"{{demonstrations}}{text}", "demonstrations": "default"}).check_files()


def test_prompts_without_demonstrations_are_fine_where_none_are_given_or_shown():
    for config, option, text in PROMPTS[:7]:
        config(**{option: text}).check_files()
    DRAGConfig(prompt="{passages}Q: {query}", demonstrations="default", demonstration_count=0).check_files()


def test_a_readers_own_demonstrations_are_no_exception():
    with pytest.raises(ConfigError, match=r"lacks \{demonstrations\}"):
        OneStepConfig(qa_prompt=READ, reader_demonstrations="default").check_files()


STATED, BARE = "Q: Who?\nA: Ana wrote it. So the answer is: Ana.", "Q: Whence?\nA: Issel."


@pytest.mark.parametrize("config", [IRCoTConfig, OneStepConfig, ClosedBookConfig, DRAGConfig])
def test_a_chain_of_thought_that_states_no_answer_is_never_shown_as_one(config, tmp_path):
    mixed, stated, bare = (tmp_path / f"{name}.txt" for name in ("mixed", "stated", "bare"))
    mixed.write_text(f"{STATED}\n\n\nQ: When?\nA: Ana was born in 1913.")
    stated.write_text(f"{STATED}\n\n\n{STATED}")
    bare.write_text(f"{BARE}\n\n\n{BARE}")
    with raises_message(DataError):
        config(demonstrations=str(mixed)).check_files()
    config(demonstrations=str(stated)).check_files()
    if config is DRAGConfig:  # its examples need no thoughts
        assert {each.answer for each in config(demonstrations=str(bare)).examples()} == {"Issel."}
        return
    with pytest.raises(DataError, match="reader_demonstrations"):
        config(demonstrations=str(bare)).check_files()
    with pytest.raises(DataError, match="demonstration '2'"):
        config(reader_demonstrations=str(mixed)).check_files()
    assert {each.answer for each in config(reader_demonstrations=str(bare)).reader_examples()} == {"Issel."}
    config(demonstrations=str(mixed), reader="cot").check_files()
