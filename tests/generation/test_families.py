"""Model families differ in their chat templates; none of that changes a prompt or a reply unnoticed."""

from __future__ import annotations

from datetime import date
from pathlib import Path

import pytest

from corag.core.errors import ConfigError
from corag.core.prompting.prompt import Message, Prompt, Segment
from corag.core.protocols import GenerateRequest, Sampling, ScoreRequest
from corag.generation.rendering import Renderer
from corag.generation.transformers_engine import TransformersGenerator
from tests.fakes import chat_prompt
from tests.generation.families import FAMILIES, HERMES, Family, find_traits
from tests.messages import raises_message


def text_of(renderer: Renderer, prompt: Prompt) -> str:
    return str(renderer.template.tokenizer.decode(renderer.encode(prompt)))


@pytest.mark.parametrize("name", FAMILIES)
def test_the_traits_of_a_family_are_what_they_should_be(name: str) -> None:
    family = FAMILIES[name]
    traits = find_traits(family.renderer())
    assert {each: getattr(traits, each) for each in family.traits()} == family.traits()
    assert traits.bos in (None, 0, 1)


def score_ids(family: Family) -> list[int]:
    return family.renderer().target_ids(ScoreRequest(chat_prompt("Who?"), "Ada", end_of_turn=True))


@pytest.mark.parametrize("name", ["gemma-3", "Phi-3", "GLM-4", "Qwen3-Base", "gpt-oss", "Command R7B"])
def test_a_reply_is_scored_and_taught_with_the_token_that_ends_it_though_the_tokenizer_does_not_name_it(
    name: str,
) -> None:
    family = FAMILIES[name]
    # GLM-4 begins each reply with a line break.
    assert family.tokenizer().decode(score_ids(family)).lstrip() == f"Ada{family.end}"


def generator(family: Family) -> TransformersGenerator:
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    tokenizer = family.tokenizer()
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=len(tokenizer), hidden_size=16, intermediate_size=16, num_hidden_layers=1,
        num_attention_heads=2, num_key_value_heads=2, max_position_embeddings=2048,
        eos_token_id=tokenizer.eos_token_id,
    )  # fmt: skip
    return TransformersGenerator(LlamaForCausalLM(config).eval(), Renderer(tokenizer, chat=True), 2048, 4, "")


@pytest.mark.parametrize("name", ["gemma-3", "Phi-3", "GLM-4", "Qwen3-Base"])
async def test_a_reply_ends_where_the_template_ends_it_though_the_models_configuration_has_another_token(
    name: str,
) -> None:
    family = FAMILIES[name]
    end = score_ids(family)[-1]
    model = generator(family)
    sampling = Sampling(8, logit_bias=((end, 1000.0),))
    reply = await model.generate(GenerateRequest(chat_prompt("Who?"), sampling))
    await model.close()
    (completion,) = reply.completions
    assert (completion.text, completion.token_ids, completion.finish_reason) == ("", (end,), "stop")


def test_where_no_special_token_ends_a_reply_the_beginning_of_the_next_turn_does_and_that_is_said() -> None:
    renderer = FAMILIES["Alpaca"].renderer()
    sampling = Sampling(8, stop=(".",))
    assert renderer.ending(chat_prompt("Who?"), sampling).stop == (".", "\n\n### Instruction:")
    assert renderer.ending(Prompt.of_text("Q: Who?"), sampling) == sampling
    assert FAMILIES["gemma-3"].renderer().ending(chat_prompt("Who?"), sampling) == sampling
    assert any("'### Instruction:'" in line for line in renderer.about)


@pytest.mark.parametrize("name", ["gemma-2", "Mistral v0.1", "leaves system turns out"])
def test_a_system_prompt_that_the_template_has_no_place_for_goes_before_the_first_question(name: str) -> None:
    renderer = FAMILIES[name].renderer()
    assert "Be brief.\n\nWho?" in text_of(renderer, chat_prompt("Who?", system="Be brief."))
    turns = [("system", "Be brief."), ("user", "Who?"), ("assistant", "Ada."), ("user", "When?")]
    dialogue = Prompt(tuple(Message(role, (Segment(text),)) for role, text in turns))  # type: ignore[arg-type]
    whole = text_of(renderer, dialogue)
    assert whole.count("Be brief.") == 1 and whole.index("Be brief.\n\nWho?") < whole.index("Ada.")
    assert any("no place for a system prompt" in line for line in renderer.about)


def test_a_templates_own_long_system_prompt_goes_into_no_call_and_a_short_one_stays() -> None:
    renderer = FAMILIES["Mistral Small 3.2"].renderer()
    assert "You are Mistral" not in text_of(renderer, chat_prompt("Who?"))
    assert "[SYSTEM_PROMPT]Be brief." in text_of(renderer, chat_prompt("Who?", system="Be brief."))
    assert any("an empty one takes its place" in line for line in renderer.about)
    assert "You are Smol." in text_of(FAMILIES["SmolLM2"].renderer(), chat_prompt("Who?"))


@pytest.mark.parametrize("name", [name for name, family in FAMILIES.items() if family.prints_day])
def test_prompts_do_not_change_with_the_day(name: str) -> None:
    tokenizer = FAMILIES[name].tokenizer()
    renderer = Renderer(tokenizer, chat=True)
    # Granite prints it without a system turn, Mistral with none of ours.
    with_day = text_of(renderer, chat_prompt("Who?", system="")) + text_of(renderer, chat_prompt("Who?"))
    assert str(date.today().year) not in with_day
    assert "2024-07-26" in renderer.fingerprint
    assert any("2024-07-26" in line for line in renderer.about)


def test_a_fingerprint_is_of_what_the_template_makes_of_prompts_not_of_its_source() -> None:
    family = FAMILIES["gemma-3"]
    commented = Family(
        "{# for turns #}" + family.template, family.eos, family.end, family.special, family.bos
    )
    assert commented.renderer().fingerprint == family.renderer().fingerprint
    assert FAMILIES["gemma-2"].renderer().fingerprint != family.renderer().fingerprint


def test_a_template_that_fails_otherwise_than_by_refusing_ends_in_a_sentence_when_it_is_loaded(
    tmp_path: Path,
) -> None:
    folder = HERMES.save(tmp_path)
    with raises_message(ConfigError):
        Renderer.load(folder)
    assert not Renderer.load(folder, "no").chat


def test_turns_that_a_template_refuses_end_a_run_as_they_would_fail_each_question(tmp_path: Path) -> None:
    renderer = Renderer.load(FAMILIES["Mistral v0.1"].save(tmp_path))
    twice = [Message("user", (Segment(text),)) for text in ("Read this.", "Who?")]
    with raises_message(ConfigError):
        renderer.encode(Prompt(tuple(twice)))
