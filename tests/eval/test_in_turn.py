"""Runs that share an engine: the next one begins in the places that the last questions leave empty."""

import asyncio

import pytest

from corag.core.errors import BackendError, ConfigError
from corag.core.runner import answer_all
from corag.core.types import Question
from eval.experiment.loop import in_turn


class Engine:
    """Takes a few steps for a question, and many for the last one of a run."""

    def __init__(self):
        self.share = self.most = 0.0  # of all places: how many are taken, and were at most
        self.order = []

    def run(self, name, count, in_flight, fails=False, last=300):
        async def answer(question):
            self.share += 1 / in_flight
            self.most = max(self.most, self.share)
            self.order.append(f"begin {question.id}")
            for _ in range(last if question.id == f"{name}{count - 1}" else 3):
                await asyncio.sleep(0)
            if fails:
                raise BackendError("the engine is gone.")
            self.share -= 1 / in_flight
            self.order.append(f"end {question.id}")
            return question.id

        async def start(turn):
            rows = []
            questions = [Question(f"{name}{number}", "Who?") for number in range(count)]
            await answer_all(questions, answer, rows.append, in_flight=in_flight, turn=turn)
            return rows

        return start


async def test_the_last_questions_of_a_run_leave_their_places_to_the_next():
    engine = Engine()
    runs = [engine.run("a", 12, 8), engine.run("b", 5, 2), engine.run("c", 0, 8), engine.run("d", 9, 4)]
    counts = [len(rows) for rows in await in_turn(runs)]
    assert counts == [12, 5, 0, 9]
    order = engine.order.index
    assert order("begin a11") < order("begin b0") < order("end a11"), "the slow one does not hold up the next"
    assert order("begin b4") < order("begin d0") < order("end b4")
    assert max(order(f"begin a{number}") for number in range(12)) < order("begin b0")
    assert engine.most <= 1 + 1e-9, "never more in flight than one run alone has"


async def test_runs_that_are_measured_are_alone():
    engine = Engine()
    await in_turn([engine.run("a", 3, 8), engine.run("b", 3, 8)], alone=True)
    assert engine.order.index("end a2") < engine.order.index("begin b0")


async def test_a_run_that_cannot_begin_lets_those_before_it_end():
    engine, rows = Engine(), []

    async def keep(turn):
        rows.extend(await engine.run("a", 12, 8)(turn))

    async def refuse(turn):
        raise ConfigError("the folder holds another run.")

    with pytest.raises(ConfigError, match="another run"):
        await in_turn([keep, refuse, engine.run("c", 4, 4)])
    assert len(rows) == 12 and not any(each.startswith("begin c") for each in engine.order)


async def test_an_engine_that_fails_ends_all_runs():
    engine = Engine()
    with pytest.raises(BackendError, match="gone"):
        await in_turn([engine.run("a", 3, 8), engine.run("b", 5, 2, fails=True), engine.run("c", 4, 4)])
    assert not any(each.startswith("begin c") for each in engine.order)
