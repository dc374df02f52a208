"""What is scored, taught and generated behind a prompt is one text in one spelling, in every vocabulary."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from corag.chains.prompting import continuation
from corag.core.prompting.prompt import Prompt
from corag.core.protocols import Completion, Sampling, ScoreRequest
from corag.generation.rendering import Renderer
from tests.fakes import chat_prompt
from tests.vocabularies import ALL_FAMILIES, INSTRUCTIONS, TURNS, renderer_of

# These lose white space or case of every text, so what they spell is compared by its words.
BY_WORDS = frozenset({"t5", "bert"})
PROMPTS = {
    "an answer begun": chat_prompt("Who wrote it?", prefix="Answer:"),
    "a line begun": chat_prompt("Who wrote it?", prefix="Answer: No.\n"),
    "a reply": chat_prompt("Who wrote it?"),
    "plain": Prompt.of_text("Where was Ada born?\nAnswer:"),
    "a long beginning": chat_prompt(
        "Who wrote it?", prefix="Answer: it is the capital of France. " * 20 + "So:"
    ),
}
REPLIES = ("Paris", "No, it is not.", "In Zürich 💎", "1984", "yes\n\nNext question: Where")
every_family = pytest.mark.parametrize("family", ALL_FAMILIES)
every_template = pytest.mark.parametrize("template", [TURNS, INSTRUCTIONS], ids=["turns", "instructions"])


def spelled(renderer: Renderer, ids: Sequence[int]) -> str:
    return str(renderer.template.tokenizer.decode(ids))


def alike(family: str, one: str, other: str) -> bool:
    if family in BY_WORDS:
        return "".join(one.casefold().split()) == "".join(other.casefold().split())
    return one == other


@every_template
@every_family
@pytest.mark.parametrize("name", PROMPTS)
def test_what_is_scored_and_taught_is_the_text_behind_the_prompt_without_a_second_blank(
    family: str, template: str, name: str
) -> None:
    renderer, prompt = renderer_of(family, template), PROMPTS[name]
    for reply in REPLIES if family not in BY_WORDS else REPLIES[:2]:
        text = continuation(prompt, reply)
        ids = renderer.encode(prompt)
        target = renderer.target_ids(ScoreRequest(prompt, text))
        before, after = spelled(renderer, ids), spelled(renderer, [*ids, *target])
        # Some models begin each reply with a blank.
        blank = " " if name == "a reply" and after.startswith(f"{before} ") else ""
        assert alike(family, after, before + blank + text)
        # Generated, these tokens are read as what was scored and taught.
        assert alike(family, renderer.continuation(ids, target), blank + text)
        whole = read(renderer, prompt, renderer._safe_text(prompt)[0] + blank + text)
        if whole[: len(ids)] == ids:
            assert target == whole[len(ids) :]


def read(renderer: Renderer, prompt: Prompt, text: str) -> list[int]:
    first = prompt.plain or not renderer.chat
    return list(renderer.template.tokenizer.encode(text, add_special_tokens=first))


GENERATED = (" Paris is the capital.", "Paris", " In 1984.\n\nNext question: Where", "Zürich 💎 is", "\nNo")


def detokenised(
    renderer: Renderer, prompt_ids: Sequence[int], ids: Sequence[int], stop: Sequence[str] = ()
) -> str:
    """Return what vLLM's engine makes of generated tokens."""
    from vllm.sampling_params import SamplingParams
    from vllm.v1.engine.detokenizer import IncrementalDetokenizer

    request: Any = SimpleNamespace(
        request_id="1",
        prompt_token_ids=list(prompt_ids),
        prompt_embeds=None,
        sampling_params=SamplingParams(stop=list(stop)),
    )
    stream = IncrementalDetokenizer.from_new_request(renderer.template.tokenizer, request)
    for token in ids:
        if stream.update([token], stop_terminated=False) is not None:
            break
    return stream.get_next_output_text(finished=True, delta=False)


@every_template
@every_family
@pytest.mark.parametrize("name", PROMPTS)
def test_generated_tokens_are_read_alike_by_every_engine_and_piece_by_piece(
    family: str, template: str, name: str
) -> None:
    renderer = renderer_of(family, template)
    ids = renderer.encode(PROMPTS[name])
    for text in GENERATED:
        new = [
            token
            for part in (text, " <|user|>" if "Paris" in text else "")
            for token in renderer.text_ids(part)
        ]
        reply = renderer.continuation(ids, new)
        assert detokenised(renderer, ids, new) == reply
        assert detokenised(renderer, ids, new, ["\n"]) == reply.partition("\n")[0]
        if family not in BY_WORDS:
            assert spelled(renderer, [*ids, *new]).startswith(spelled(renderer, ids) + reply.rstrip())
        sampling = Sampling(20, logprobs=True)
        completion = Completion(reply, tuple(new), "stop", (-1.0,) * len(new))
        pieces = renderer.with_token_texts(completion, ids, sampling).token_texts
        assert pieces is not None and "".join(pieces) == reply
