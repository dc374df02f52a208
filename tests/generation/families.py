"""Small chat templates with the traits of model families, and a tokenizer that reads them byte by byte."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from corag.core.errors import ConfigError
from corag.core.prompting.prompt import Message, Prompt, Segment
from corag.generation.chat_template import DAY, USER, WITH_SYSTEM, Turn
from corag.generation.rendering import Renderer


@dataclass(frozen=True, slots=True)
class Traits:
    """How a model reads prompts and ends its replies.

    Attributes:
        with_system: whether a prompt with a system turn is what the tokenizer itself makes of it: "=", or
            "merged" where the template has no place for one, so that it goes before the first question.
        without_system: the same without one: "=", or "emptied" where an empty system turn takes the place of
            a long system prompt of the template's.
        bos: how many tokens that begin a text stand at the beginning of a prompt, None if there is no such
            token.
        end: the name of the token that ends a reply; of a text that does, in quotes.
        thoughts: what becomes of the model's thoughts ("off", "strip"), "" if its template knows of none.
        day: the day that the template prints, "" if it prints none.
    """

    with_system: str
    without_system: str
    bos: int | None
    end: str
    thoughts: str
    day: str


def find_traits(renderer: Renderer) -> Traits:
    """Return the traits of a model with a chat template.

    Raises :class:`ConfigError` if the template fails on a question.
    """
    template, tokenizer = renderer.template, renderer.template.tokenizer
    ids, bos = renderer.encode(_prompt([USER])), tokenizer.bos_token_id
    thinking, end = renderer.thinking, template.end_token
    return Traits(
        with_system="merged" if not template.takes_system else _compare(renderer, WITH_SYSTEM),
        without_system="emptied" if template.replaced_tokens else _compare(renderer, [USER]),
        bos=None if bos is None else next((i for i, token in enumerate(ids) if token != bos), len(ids)),
        end=repr(template.stop_text)
        if template.stop_text
        else str(tokenizer.convert_ids_to_tokens(renderer.end_of_turn() if end is None else end)),
        thoughts=thinking.mode if thinking.closes else "",
        day=DAY.isoformat() if template.prints_day else "",
    )


def _prompt(turns: Any) -> Prompt:
    return Prompt(tuple(Message(turn["role"], (Segment(turn["content"]),)) for turn in turns), "Answer:")


def _compare(renderer: Renderer, turns: Any) -> str:
    """Return "=" if a prompt's tokens are those of the tokenizer's own method, else what differs."""
    conversation: list[Turn] = [dict(turn) for turn in turns]
    text = renderer.template.tokenizer.apply_chat_template(
        conversation, tokenize=False, add_generation_prompt=True, **renderer.template.arguments
    )
    text += renderer.thinking.lead(text, None) or renderer.template.blank_before_reply
    target = renderer.template.tokenizer.encode(text + "Answer:", add_special_tokens=False)
    try:
        ids = renderer.encode(_prompt(turns))
    except ConfigError as error:
        return str(error)
    return "=" if ids == list(target) else f"{len(ids)} tokens, where the tokenizer makes {len(target)}"


@dataclass(frozen=True)
class Family:
    """A chat template with the special tokens that it needs.

    ``special``: those that the tokenizer has no name for. ``bos``: put before texts by the tokenizer, too.
    ``end``: what ends a reply. ``system``, ``empty``: what becomes of prompts with a system turn, and
    without one. ``prints_day``: the template prints the date.
    ``thoughts``: what becomes of them.
    """

    template: str
    eos: str
    end: str
    special: tuple[str, ...] = ()
    bos: str | None = None
    system: str = "="
    empty: str = "="
    prints_day: bool = False
    thoughts: str = ""

    def tokenizer(self) -> Any:
        return byte_tokenizer(self.template, self.eos, self.bos, self.special)

    def save(self, folder: Path) -> str:
        """Save what a model's folder has, but for weights, and return it."""
        self.tokenizer().save_pretrained(folder)
        (folder / "config.json").write_text('{"model_type": "llama"}')
        return str(folder)

    def traits(self) -> dict[str, Any]:
        """Return the traits that are known beforehand, by name."""
        return {
            "with_system": self.system,
            "without_system": self.empty,
            "end": self.end,
            "thoughts": self.thoughts,
            "day": "2024-07-26" if self.prints_day else "",
        }

    def renderer(self) -> Renderer:
        return Renderer(self.tokenizer(), chat=True)


def byte_tokenizer(template: str, eos: str, bos: str | None = None, special: tuple[str, ...] = ()) -> Any:
    """Return a tokenizer whose tokens are the bytes of a text and the special tokens."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast

    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokens = Tokenizer(models.BPE({letter: i for i, letter in enumerate(letters)}, []))
    tokens.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokens.decoder = decoders.ByteLevel()
    names = [name for name in (bos, eos, *special) if name]
    tokens.add_special_tokens([AddedToken(name, special=True, normalized=False) for name in names])
    if bos:
        tokens.post_processor = processors.TemplateProcessing(
            single=f"{bos} $A", special_tokens=[(bos, tokens.token_to_id(bos))]
        )
    named = {"bos_token": bos} if bos else {}
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=tokens, eos_token=eos, **named)
    tokenizer.chat_template = template
    return tokenizer


def _family(name: str, *texts: Any, **traits: Any) -> Family:
    file = Path(__file__).parent / "families" / f"{re.sub('[^a-z0-9]+', '_', name.lower())}.jinja"
    return Family(file.read_text(encoding="utf-8"), *texts, **traits)


FAMILIES = {
    "SmolLM2": _family("SmolLM2", "<|im_end|>", "<|im_end|>", ("<|im_start|>",)),
    "Qwen3": _family("Qwen3", "<|im_end|>", "<|im_end|>", ("<|im_start|>", "<|endoftext|>"), thoughts="off"),
    "Qwen3-Base": _family("Qwen3-Base", "<|endoftext|>", "<|im_end|>", ("<|im_start|>", "<|im_end|>")),
    "Qwen3-Thinking-2507": _family(
        "Qwen3-Thinking-2507", "<|im_end|>", "<|im_end|>", ("<|im_start|>",), thoughts="strip"
    ),
    "Llama 3.1": _family(
        "Llama 3.1",
        "<|eot_id|>",
        "<|eot_id|>",
        ("<|start_header_id|>", "<|end_header_id|>"),
        bos="<|begin_of_text|>",
    ),
    "Llama 3.2": _family(
        "Llama 3.2",
        "<|eot_id|>",
        "<|eot_id|>",
        ("<|start_header_id|>", "<|end_header_id|>"),
        bos="<|begin_of_text|>",
        prints_day=True,
    ),
    "gemma-2": _family(
        "gemma-2",
        "<eos>",
        "<end_of_turn>",
        ("<start_of_turn>", "<end_of_turn>"),
        bos="<bos>",
        system="merged",
    ),
    "gemma-3": _family(
        "gemma-3", "<eos>", "<end_of_turn>", ("<start_of_turn>", "<end_of_turn>"), bos="<bos>"
    ),
    "Phi-3": _family(
        "Phi-3", "<|endoftext|>", "<|end|>", ("<|system|>", "<|user|>", "<|assistant|>", "<|end|>"), bos="<s>"
    ),
    "Mistral v0.1": _family("Mistral v0.1", "</s>", "</s>", bos="<s>", system="merged"),
    "Mistral Small 3.2": _family(
        "Mistral Small 3.2",
        "</s>",
        "</s>",
        ("[INST]", "[/INST]", "[SYSTEM_PROMPT]", "[/SYSTEM_PROMPT]"),
        bos="<s>",
        empty="emptied",
        prints_day=True,
    ),
    "R1-Distill": _family(
        "R1-Distill",
        "<｜end▁of▁sentence｜>",
        "<｜end▁of▁sentence｜>",
        ("<｜User｜>", "<｜Assistant｜>"),
        bos="<｜begin▁of▁sentence｜>",
        thoughts="strip",
    ),
    "gpt-oss": _family(
        "gpt-oss",
        "<|return|>",
        "<|return|>",
        ("<|start|>", "<|message|>", "<|channel|>", "<|end|>", "<|call|>"),
        bos="<|startoftext|>",
        prints_day=True,
        thoughts="strip",
    ),
    "Granite 3.3": _family(
        "Granite 3.3",
        "<|end_of_text|>",
        "<|end_of_text|>",
        ("<|start_of_role|>", "<|end_of_role|>"),
        prints_day=True,
    ),
    "Command R7B": _family(
        "Command R7B",
        "<|END_OF_TURN_TOKEN|>",
        "<|END_RESPONSE|>",
        (
            "<|START_OF_TURN_TOKEN|>",
            "<|SYSTEM_TOKEN|>",
            "<|USER_TOKEN|>",
            "<|CHATBOT_TOKEN|>",
            "<|START_RESPONSE|>",
            "<|END_RESPONSE|>",
        ),
        bos="<BOS_TOKEN>",
        thoughts="off",
    ),
    "GLM-4": _family(
        "GLM-4", "<|endoftext|>", "<|user|>", ("[gMASK]", "<sop>", "<|system|>", "<|user|>", "<|assistant|>")
    ),
    "leaves system turns out": _family("leaves system turns out", "</s>", "</s>", system="merged"),
    "Alpaca": _family("Alpaca", "</s>", "'\\n\\n### Instruction:'", bos="<s>"),
    "Vicuna": _family("Vicuna", "</s>", "'\\nUSER:'", bos="<s>"),
}

HERMES = _family("Hermes tool_use", "<|im_end|>", "<|im_end|>", bos="<|begin_of_text|>")
"""It goes over ``tools``, which are None where there are none."""
