"""Recursive RAG within a token budget: never more, an answer all the same, and nothing that depends on
timing.
"""

import asyncio
import random

import pytest

from tests.baselines.test_recursive import SHORT, decomposing, replay
from tests.fakes import WindowedGenerator, words
from tests.story import BOOK, WORLD


@pytest.mark.parametrize(("budget", "answered"), [(0, 3), (400, 0), (430, 1), (550, 3), (600, 3)])
async def test_results_do_not_depend_on_which_sub_question_is_answered_first(budget, answered):
    plan = (
        "SUB1: Mara Velden born?\nSUB2: On which river lies Tarn Hollow?\nSUB3: What glassware?\nSUB4: Sand "
        "#1 #2 #3?"
    )
    outcomes = []
    for order in range(4):

        async def pause(request, order=order):
            for _ in range(random.Random(f"{order}{request.prompt.text}").randrange(6) if order else 0):
                await asyncio.sleep(0)

        reply = decomposing(plan, ("writer", "Issel", "sand"))
        answer, _, tools = await replay(reply, mode="decompose", pause=pause, budget=budget, **SHORT)
        outcomes.append((answer, tools.spent))
    assert all(outcome == outcomes[0] for outcome in outcomes)
    assert sum(bool(finding.sub_answer) for finding in answer.findings) == answered, (
        "no budget is split to nothing"
    )
    assert answer.stopped == ("budget" if 0 < budget <= 550 else "plan")


async def test_the_reader_leaves_out_the_oldest_passages_that_cannot_be_afforded():
    options = {**SHORT, "mode": "simple", "k": 3}
    free, _, tools = await replay(["Issel"], **options)
    most = tools.cost(tools.generator.requests[0].prompt, SHORT["max_answer_tokens"])
    answer, generator, _ = await replay(["Issel"], budget=most - 1, **options)
    assert free.stopped == "read"
    assert (answer.text, answer.stopped, answer.passage_ids) == ("Issel", "budget", free.passage_ids)
    shown = [place.title for place in WORLD if f"Wikipedia Title: {place.title}" in generator.prompts[0]]
    assert 0 < len(shown) < 3 and "The Glass Orchard" not in shown


async def test_a_full_window_keeps_the_best_passage_of_a_sub_question():
    options = {**SHORT, "mode": "decompose", "k_per_step": 2, "max_step_tokens": 8}
    reply = decomposing("SUB1: Who wrote The Glass Orchard?", ("Mara Velden",))
    _, whole, tools = await replay(reply, **options)
    found = [hit.passage for hit in tools.steps[1].hits]
    assert found[0] == BOOK and len(found) == 2
    window = words(whole.prompts[1]) + SHORT["max_sub_answer_tokens"] - 1
    _, generator, _ = await replay([], generator=WindowedGenerator(reply, window), **options)
    seen = generator.seen[1].text
    assert found[0].text in seen and found[1].text not in seen
