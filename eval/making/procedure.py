"""The procedure for one pair of linked passages: a question of two hops, and the filters that it must pass.

A question about the second passage is composed with one whose answer is that passage's name (MuSiQue,
Trivedi et al., TACL 2022, section 3). What a reader gets right without the reasoning is left out, as there
(section 4), and so is what it gets wrong with it: answers and gold passages then hold whoever wrote them.
What is ours: pairs come from titles that texts mention rather than from questions of other datasets, the
model composes instead of annotators, and where its wording fails a template does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from corag.baselines.closed_book import ClosedBookConfig
from corag.baselines.one_step import OneStepConfig
from corag.core.prompting.render import render_passages
from corag.core.prompting.template import Template, load_prompt
from corag.core.reader import read
from corag.core.seeds import derive_seed
from corag.core.text import mentions
from corag.core.tools import Tools
from corag.core.types import Answer, GoldHop, Passage, Question
from eval.making.wording import (
    blank_statement,
    clean_question,
    compose_by_template,
    find_answers,
    first_question,
    without_tags,
)
from eval.scoring.scorers import SCORERS
from retrieval.linked_pairs import LinkedPair, passage_name

Compose = Literal["model", "template"]
PROMPTS = Path(__file__).parent / "prompts"
KEPT_STATUS = "kept"
FILTERS = {
    "no answer": "the second passage has no date, number or name that the first lacks",
    "no question": "the model wrote no question that names the second passage and leaves its answer open",
    "not answered": "the model does not find the answer in the second passage",
    "not composed": "the question of two hops names the answer or the second passage",
    "known": "the model knows the answer without any passage",
    "first alone": "the first passage alone is enough",
    "not in both": "the model does not find the answer in both passages",
    "second alone": "the second passage among others is enough",
}
"""Why a pair gives no question, in the order in which it is tested."""

RIGHT_F1 = 0.5
"""The F1 of answer tokens from which on an answer counts as right in a filter."""
_ANSWERS_TRIED = 3  # of a pair
OTHER_PASSAGES = 4  # passages beside the second one, so that there is something to choose from
_MAX_QUESTION_TOKENS = 48
_MAX_ANSWER_TOKENS = 32  # an answer that goes on for longer is no short one, whatever it holds
_STOP = ("\n\n",)  # small models go on with an example of their own
_MAX_SHOWN_WORDS = 350  # of a passage in a prompt, as the reader's
_ORDER = (*FILTERS, KEPT_STATUS)


@dataclass(frozen=True, slots=True)
class MadeQuestion(Answer):
    """What came of a pair: the question as ``text``, and as ``stopped`` :data:`KEPT_STATUS` or why not.

    ``gold``: its answer. ``kind``: "bridge", or "bridge by template". ``hops``: its decomposition.
    """

    gold: str = ""
    kind: str = ""
    hops: tuple[GoldHop, ...] = ()


def making_templates() -> tuple[Template, ...]:
    """Return the prompts of making and of the filters."""
    making_prompts = tuple(load_prompt(name, name, PROMPTS) for name in ("question", "composed"))
    return (*making_prompts, *OneStepConfig().templates(), *ClosedBookConfig().templates())


async def make_question(
    question: Question,
    tools: Tools,
    compose: Compose,
    pairs: Mapping[str, tuple[LinkedPair, Sequence[Passage]]],
) -> MadeQuestion:
    """Make a question of the pair that ``pairs`` has under the id of ``question``; what got furthest.

    ``pairs``: each with other passages, which are shown beside the second one alone.
    """
    pair, others = pairs[question.id]
    best = MadeQuestion("", stopped="no answer")
    for answer in find_answers(pair, derive_seed("answers", question.id))[:_ANSWERS_TRIED]:
        candidate = await _attempt(pair, others, answer, tools, compose)
        best = max(best, candidate, key=lambda each: _ORDER.index(each.stopped))
        if best.stopped == KEPT_STATUS:
            break
    return replace(best, passage_ids=(pair.first.id, pair.second.id), steps=2)


async def _attempt(
    pair: LinkedPair, others: Sequence[Passage], answer: str, tools: Tools, compose: Compose
) -> MadeQuestion:
    second = await _write_question(pair.second, answer, tools)
    if not second or not mentions([second], [pair.second_name]):
        return MadeQuestion(second, stopped="no question", gold=answer)
    if not await _right(second, [pair.second], answer, tools):
        return MadeQuestion(second, stopped="not answered", gold=answer)
    candidate = await _compose_by_model(pair, second, answer, tools) if compose == "model" else None
    candidate = candidate or MadeQuestion(
        compose_by_template(second, pair),
        gold=answer,
        kind="bridge by template",
        hops=(_first_hop(pair, first_question(pair)), GoldHop(second, answer, pair.second.id)),
    )
    if not candidate.text or mentions([candidate.text], [answer, pair.second_name]):
        return replace(candidate, stopped="not composed")
    return replace(candidate, stopped=await _filter(candidate.text, pair, others, answer, tools))


async def _write_question(passage: Passage, answer: str, tools: Tools) -> str:
    """Return a question about a passage with this answer, "" if the model wrote none that leaves it open."""
    template = load_prompt("question", "question", PROMPTS)
    paragraphs = render_passages([passage], template, _MAX_SHOWN_WORDS, goes_first="last")
    reply = await tools.generate(
        template.render({"paragraphs": paragraphs, "answer": answer}),
        role="question",
        max_tokens=_MAX_QUESTION_TOKENS,
        stop=_STOP,
    )
    text = without_tags(clean_question(reply.text), [passage])
    return "" if mentions([text], [answer]) else text


async def _compose_by_model(pair: LinkedPair, second: str, answer: str, tools: Tools) -> MadeQuestion | None:
    """Return the two hops as the model words them; None where it does not keep to what that takes."""
    first = await _write_question(pair.first, pair.second_name, tools)
    if not first or not mentions([first], [pair.first_name]):
        return None
    if not await _right(first, [pair.first], pair.second_name, tools):
        return None
    template = load_prompt("composed", "composed", PROMPTS)
    values = {"first": first, "name": pair.second_name, "second": second}
    reply = await tools.generate(
        template.render(values), role="compose", max_tokens=_MAX_QUESTION_TOKENS, stop=_STOP
    )
    text = without_tags(clean_question(reply.text), [pair.first, pair.second])
    if not mentions([text], [pair.first_name]) or mentions([text], [answer, passage_name(pair.second)]):
        return None
    hops = (_first_hop(pair, first), GoldHop(second, answer, pair.second.id))
    return MadeQuestion(text, gold=answer, kind="bridge", hops=hops)


def _first_hop(pair: LinkedPair, text: str) -> GoldHop:
    statement = blank_statement(pair).replace("____", pair.second_name)
    return GoldHop(text, pair.second_name, pair.first.id, statement)


async def _filter(text: str, pair: LinkedPair, others: Sequence[Passage], answer: str, tools: Tools) -> str:
    """Return the first filter that a question does not pass, or :data:`KEPT_STATUS`."""
    if await _right(text, (), answer, tools):
        return "known"
    if await _right(text, [pair.first], answer, tools):
        return "first alone"
    if not await _right(text, [pair.first, pair.second], answer, tools):
        return "not in both"
    # Nothing of the second one alone says that it is meant, but alone it would be all there is to answer by.
    choices = [*others[: len(others) // 2], pair.second, *others[len(others) // 2 :]]
    return "second alone" if await _right(text, choices, answer, tools) else KEPT_STATUS


async def _right(text: str, passages: Sequence[Passage], answer: str, tools: Tools) -> bool:
    options = OneStepConfig if passages else ClosedBookConfig
    config = options(max_answer_tokens=_MAX_ANSWER_TOKENS)
    reply = await read(Question("", text), passages, tools, config)
    return SCORERS["squad"].score(reply, [answer]).f1 >= RIGHT_F1
