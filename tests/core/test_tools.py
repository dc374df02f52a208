"""What a question is handed: ledger, seeds, and a budget that is shared, held back and kept to."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corag.core.errors import BudgetExhaustedError
from corag.core.prompting.prompt import Prompt, Segment
from corag.core.tools import Tools
from corag.core.types import Question
from tests.fakes import ScriptedGenerator
from tests.messages import raises_message

QUESTION = Question("q", "Who?")


@given(
    st.lists(
        st.tuples(st.sampled_from(["sub-query", "reader", "thought"]), st.integers(1, 5), st.integers(1, 3)),
        max_size=12,
    )
)
def test_the_ledger_adds_up_by_role(calls):
    async def spend():
        generator = ScriptedGenerator(lambda request: "a b c")
        tools = Tools(QUESTION, generator)
        for role, length, n in calls:
            await tools.generate(Prompt.of_text("w " * length), role=role, max_tokens=9, n=n)
        return tools

    tools = asyncio.run(spend())
    for role in {role for role, _, _ in calls}:
        mine = [(length, n) for name, length, n in calls if name == role]
        usage = tools.ledger[role]
        assert (usage.calls, usage.prompt) == (len(mine), sum(length for length, _ in mine))
        assert usage.generated == sum(3 * n for _, n in mine)
    assert tools.spent.total == sum(step.usage.total for step in tools.steps)


async def test_sampled_calls_get_seeds_of_their_own_and_never_share_one():
    generator = ScriptedGenerator(lambda request: "x")
    tools = Tools(QUESTION, generator, seed=1)
    for chain in range(3):
        await tools.generate(
            Prompt.of_text("p"), role="sub-query", max_tokens=5, temperature=0.7, path=f"chain {chain}/hop 1"
        )
    seeds = [request.sampling.seed for request in generator.requests]
    assert len(set(seeds)) == 3 and None not in seeds
    with raises_message(ValueError):
        await tools.generate(
            Prompt.of_text("p"), role="sub-query", max_tokens=5, temperature=0.7, path="chain 0/hop 1"
        )
    assert [request.priority for request in generator.requests] == [0, -1, -2]


async def test_a_call_that_could_exceed_the_budget_is_not_made():
    generator = ScriptedGenerator(lambda request: "one two")
    tools = Tools(QUESTION, generator, budget=17)
    await tools.generate(Prompt.of_text("a b c d"), role="thought", max_tokens=5)
    assert tools.left == 11
    await tools.generate(Prompt.of_text("a b c d"), role="thought", max_tokens=5)
    with raises_message(BudgetExhaustedError):
        await tools.generate(Prompt.of_text("a"), role="thought", max_tokens=5)
    with pytest.raises(BudgetExhaustedError):
        await tools.score(Prompt.of_text("a b"), "yes no", role="score")
    with tools.reserve_tokens(1):
        assert tools.left == 4
    assert tools.left == 5 and len(generator.requests) == 2


async def test_branches_share_the_budget_evenly_and_pay_into_one_ledger():
    tools = Tools(QUESTION, ScriptedGenerator(lambda request: "one two"), budget=100)
    first, second = tools.branch(2)
    assert (first.left, second.left) == (50, 50)
    await first.generate(Prompt.of_text("a b c d"), role="thought", max_tokens=5)
    assert (first.left, second.left, tools.left) == (44, 50, 94)
    (inner,) = second.branch(1, 20)
    await inner.generate(Prompt.of_text("a b"), role="final", max_tokens=5)
    assert (inner.left, second.left, tools.left) == (16, 46, 90)
    assert {role: usage.total for role, usage in tools.ledger.items()} == {"thought": 6, "final": 4}
    assert [step.role for step in tools.steps] == ["thought", "final"]
    assert Tools(QUESTION, ScriptedGenerator([])).branch(3)[0].left is None and tools.branch(0) == []


async def test_holding_back_keeps_what_a_later_call_may_cost():
    tools = Tools(QUESTION, ScriptedGenerator(lambda request: "x"), budget=100)
    last = Prompt.of_text("a b c d")
    with tools.reserve(last, 10):
        assert tools.left == 100 - tools.cost(last, 10) == 84
        with tools.reserve_tokens(80), pytest.raises(BudgetExhaustedError):
            await tools.generate(Prompt.of_text("a"), role="thought", max_tokens=2)
    assert tools.left == 100


def test_a_prompt_is_made_affordable_by_leaving_out_whole_segments():
    prompt = Prompt.of_text([Segment("one two ", 1), Segment("three four ", 2), Segment("Who?")])
    tools = Tools(QUESTION, ScriptedGenerator([]), budget=10)
    assert tools.afford(prompt, 5).text == "three four Who?"
    assert tools.afford(prompt, 9).text == "Who?", "too dear still: refused when it is asked"
    assert Tools(QUESTION, ScriptedGenerator([])).afford(prompt, 10**6) == prompt


async def test_fanning_out_keeps_the_order_and_shares_equally():
    async def slow_first(item, branch):
        await asyncio.sleep(0.01 / (1 + item))
        return item, branch.left

    tools = Tools(QUESTION, ScriptedGenerator([]), budget=90)
    assert await tools.fan_out(range(3), slow_first) == [(0, 30), (1, 30), (2, 30)]
    assert await tools.fan_out(range(2), slow_first, budget=50) == [(0, 25), (1, 25)]
    assert await tools.fan_out([], slow_first) == []


COSTS = {"a": 40, "b": 30, "c": 45, "d": 5}


async def spend_all(item, branch):
    """Spend what the item costs, in one call."""
    await branch.generate(Prompt.of_text("w " * (COSTS[item] - 3)), role=item, max_tokens=1)
    return item, branch.left is not None and branch.budget


@pytest.mark.parametrize(
    ("budget", "at_least_one", "done"),
    [
        (0, False, [("a", False), ("b", False), ("c", False), ("d", False)]),
        (400, False, [("a", 100), ("b", 100), ("c", 100), ("d", 100)]),
        (90, False, [("a", 45), ("b", 45)]),  # then c is too dear, and d has to wait for it
        (30, False, []),
        (30, True, [("b", 30)]),  # a was tried with everything, in vain
    ],
)
async def test_as_many_as_are_certain_to_be_affordable_go_on_at_a_time(budget, at_least_one, done):
    tools = Tools(QUESTION, ScriptedGenerator(lambda request: "x"), budget=budget)
    assert await tools.fan_out_certain("abcd", spend_all, COSTS.get, at_least_one=at_least_one) == done
    assert not budget or tools.spent.total <= budget


async def test_at_least_one_of_what_nothing_comes_is_a_spent_budget():
    tools = Tools(QUESTION, ScriptedGenerator(lambda request: "x"), budget=4)
    with raises_message(BudgetExhaustedError):
        await tools.fan_out_certain("abc", spend_all, COSTS.get, at_least_one=True)
