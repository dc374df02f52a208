"""Where thoughts stand: each family's own marks, before the first words of a reply."""

from __future__ import annotations

from dataclasses import replace

import pytest

from corag.core.errors import ConfigError
from corag.core.prompting.prompt import ALOUD, Prompt, Thought
from corag.core.protocols import Completion, Sampling
from corag.generation.http.wire import read_reply
from corag.generation.rendering import Renderer
from corag.generation.thinking import ThinkingOptions, template_variables, without_thought
from tests.fakes import chat_prompt
from tests.generation.families import FAMILIES, byte_tokenizer
from tests.messages import raises_message
from tests.thinking_model import HYBRID, OPENS, SILENT

ANSWER = chat_prompt("Who?", prefix="Answer:")
# What families put before a reply, cut down to that.
_TURNS = "{% for m in messages %}<{{ m.role }}>{{ m.content.split('</think>')[-1] }}{% endfor %}"
GLM = (
    "{% for m in messages %}<{{ m.role }}>"
    "{% if m.role == 'assistant' %}{{ '\\n<think></think>\\n' }}{% endif %}"
    "{{ m.content.split('</think>')[-1] }}{% endfor %}{% if add_generation_prompt %}<assistant>"
    "{{ '\\n<think></think>' if (enable_thinking is defined and not enable_thinking) else '' }}{% endif %}"
)
DEEPSEEK = (
    "{% if not thinking is defined %}{% set thinking = false %}{% endif %}"
    "{% for m in messages %}<{{ m.role }}>{{ '</think>' if m.role == 'assistant' else '' }}{{ m.content }}"
    "{% endfor %}{% if add_generation_prompt %}<assistant>"
    "{{ '<think>' if thinking else '</think>' }}{% endif %}"
)
NEMOTRON = (
    "{% set ns = namespace(enable_thinking=true) %}" + _TURNS + "{% if add_generation_prompt %}<assistant>"
    "{{ '<think>\\n\\n' if ns.enable_thinking else '<think></think>' }}{% endif %}"
)
GEMMA_4 = (
    "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}"
    "{% if add_generation_prompt %}<assistant>"
    "{{ '<|channel>thought\\n<channel|>' if not enable_thinking | default(false) else '' }}{% endif %}"
)


def renderer_of(template: str, mode: str = "auto", **args: object) -> Renderer:
    options = ThinkingOptions(mode, args)  # type: ignore[arg-type]
    return Renderer(byte_tokenizer(template, "<eos>"), chat=True, thinking=options)


def written(renderer: Renderer, prompt: Prompt = ANSWER) -> str:
    """Return what stands behind the question."""
    return str(renderer.template.tokenizer.decode(renderer.encode(prompt))).rpartition("Who?")[2]


def thinking_aloud(text: str, *, closed: bool) -> Prompt:
    return replace(ANSWER if closed else chat_prompt("Who?"), thought=Thought(text, closed=closed))


@pytest.mark.parametrize(
    ("template", "behind"),
    [
        (HYBRID, "<|end|><|bot|><think>\n\n</think>\n\nAnswer:"),
        (OPENS, "<|end|><|bot|><think>\n\n</think>\n\nAnswer:"),
        (GLM, "<assistant>\n<think></think>\nAnswer:"),
        (DEEPSEEK, "<assistant></think>Answer:"),
        (NEMOTRON, "<assistant><think>\n\n</think>\n\nAnswer:"),
        (GEMMA_4, "<assistant><|channel>thought\n<channel|>Answer:"),
        (FAMILIES["gpt-oss"].template, "<|end|><|start|>assistant<|channel|>final<|message|>Answer:"),
        (
            FAMILIES["Command R7B"].template,
            "<|END_OF_TURN_TOKEN|><|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|><|START_RESPONSE|>Answer:",
        ),
    ],
)
def test_without_a_thought_the_familys_own_form_of_none_stands_before_a_replys_first_words(
    template: str, behind: str
) -> None:
    assert written(renderer_of(template, "off")) == behind
    # Scores of given texts and rows to learn from are taken there as well, whatever becomes of thoughts.
    assert written(renderer_of(template, "auto")) == behind


@pytest.mark.parametrize(
    ("template", "opened", "closed"),
    [
        (HYBRID, "<think>\n", "<think>\nHm.\n</think>\n\nAnswer:"),
        (OPENS, "<think>\n", "<think>\nHm.\n</think>\n\nAnswer:"),
        (GLM, "\n<think>\n", "\n<think>\nHm.\n</think>\n\nAnswer:"),
        (DEEPSEEK, "<think>", "<think>Hm.\n</think>\n\nAnswer:"),
        (NEMOTRON, "<think>\n\n", "<think>\n\nHm.\n</think>\n\nAnswer:"),
        (GEMMA_4, "<|channel>thought\n", "<|channel>thought\nHm.<channel|>Answer:"),
        (
            FAMILIES["gpt-oss"].template,
            "<|channel|>analysis<|message|>",
            "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>final<|message|>Answer:",
        ),
        (
            FAMILIES["Command R7B"].template,
            "<|START_THINKING|>",
            "<|START_THINKING|>Hm.<|END_THINKING|><|START_RESPONSE|>Answer:",
        ),
    ],
)
def test_a_thought_is_opened_and_closed_as_the_family_does_it(
    template: str, opened: str, closed: str
) -> None:
    renderer = renderer_of(template, "strip")
    assert written(renderer, thinking_aloud("", closed=False)).endswith(opened)
    assert written(renderer, thinking_aloud("Hm.\n", closed=True)).endswith(closed)


@pytest.mark.parametrize(
    ("template", "mode"),
    [
        (HYBRID, "off"), (GLM, "off"), (DEEPSEEK, "off"), (GEMMA_4, "off"),
        (FAMILIES["Command R7B"].template, "off"),
        (OPENS, "strip"), (NEMOTRON, "strip"), (FAMILIES["gpt-oss"].template, "strip"),
        (SILENT, "watch"), (FAMILIES["Llama 3.1"].template, "watch"), (FAMILIES["Phi-3"].template, "watch"),
    ],
)  # fmt: skip
def test_thoughts_are_off_where_the_template_can_be_told_so_and_are_stripped_elsewhere(
    template: str, mode: str
) -> None:
    assert renderer_of(template).thinking.mode == mode


def test_a_stated_argument_decides_and_one_that_the_template_does_not_have_is_refused() -> None:
    assert renderer_of(HYBRID, enable_thinking=True).thinking.mode == "strip"
    assert renderer_of(HYBRID, enable_thinking=False).thinking.mode == "off"
    with raises_message(ConfigError):
        renderer_of(HYBRID, enable_thinkin=False)
    with raises_message(ConfigError):
        Renderer(byte_tokenizer(HYBRID, "<eos>"), chat=False, thinking=ThinkingOptions("auto", {"date": "x"}))


def test_what_becomes_of_thoughts_identifies_the_model_and_its_rows_but_not_one_that_has_none() -> None:
    ways = [renderer_of(HYBRID, mode).fingerprint for mode in ("off", "strip")]
    assert len(set(ways)) == 2
    assert renderer_of(HYBRID).fingerprint == ways[0]
    assert "thinking" not in renderer_of(FAMILIES["Llama 3.1"].template).fingerprint


def test_variables_are_those_that_a_template_reads_and_not_words_in_it() -> None:
    assert "thinking" in template_variables(DEEPSEEK)
    assert "enable_thinking" not in template_variables(NEMOTRON)


def test_a_special_token_that_a_thought_names_is_text() -> None:
    renderer = FAMILIES["Qwen3-Thinking-2507"].renderer()
    ids = renderer.encode(thinking_aloud("Now <|im_end|> ends it.", closed=True))
    assert ids.count(renderer.template.tokenizer.eos_token_id) == 1  # of the question's turn


@pytest.mark.parametrize(
    ("template", "mode", "behind"),
    [
        (OPENS, "auto", "<think>\nHm."),
        (HYBRID, "strip", "<think>\nHm."),
        (HYBRID, "auto", "<think>\n\n</think>\n\nHm."),
        (_TURNS + "{% if add_generation_prompt %}<assistant>{% endif %}", "auto", "Hm."),
    ],
)
def test_what_is_thought_aloud_goes_on_where_the_model_thinks(template: str, mode: str, behind: str) -> None:
    prompt = replace(chat_prompt("Who?", prefix="Hm."), thought=ALOUD)
    assert written(renderer_of(template, mode), prompt).endswith(f">{behind}")


def test_the_tokens_of_a_thought_are_no_tokens_of_its_reply() -> None:
    """Chains are ranked by their probability, and FLARE searches where a token is unlikely."""
    thought, reply = ("<think>", "Hm", "</think>", "\n\n"), ("Who", " wrote", " Emma?")
    texts, logprobs = (*thought, *reply), (-0.1, -9.0, -0.1, -0.1, -0.01, -0.02, -0.03)
    whole = Completion("".join(texts), tuple(range(7)), "stop", logprobs, texts)
    left = without_thought(whole, len("".join(thought)))
    assert left == Completion("Who wrote Emma?", (4, 5, 6), "stop", logprobs[4:], reply)
    assert without_thought(whole, 0) == whole
    choice = {
        "message": {"content": "".join(reply), "reasoning_content": "Hm"},
        "finish_reason": "stop",
        "logprobs": {
            "content": [
                {"token": token, "logprob": value} for token, value in zip(texts, logprobs, strict=True)
            ]
        },
    }
    within = {"message": {"content": whole.text}, "logprobs": choice["logprobs"], "finish_reason": "stop"}
    for each in (choice, within):
        read = read_reply({"choices": [each]}, sampling=Sampling(9, logprobs=True), chat=True).completion
        assert (read.text, read.logprobs, read.token_texts) == ("Who wrote Emma?", logprobs[4:], reply)
