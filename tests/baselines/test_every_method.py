"""What holds of every method: a question's ledger is what was asked for it, and a run that was torn goes on
where it was.
"""

from __future__ import annotations

import random
import subprocess
import sys
from dataclasses import fields
from functools import partial
from pathlib import Path

import pytest

from corag.baselines.self_rag import REFLECTION_TOKENS
from corag.core.errors import SearchFailedError
from corag.core.runner import answer_all, answer_question
from corag.core.runs.folder import TRACES, RunFolder, read_rows
from corag.core.tools import SearchStep, Tools
from corag.core.types import Question
from eval.experiment.registry import METHODS, MethodOptions, bind
from tests.baselines.replaying import check_ledger
from tests.fakes import ScriptedGenerator, WordRetriever, passage, words
from tests.story import QUESTION, WORLD

QUESTIONS = [
    Question(f"q{number}", f"Who wrote book {number} of Mara Velden?", ("X",)) for number in range(12)
]
# Replies that make a method search again ...
MOVES = {
    "self_ask": "Yes.\nFollow up: Where was Mara Velden born?",
    "react": "Thought: I look.\nAction: search[Tarn Hollow]",
    "auto_rag": "Query: Tarn Hollow",
    "search_o1": "I wonder. <|begin_search_query|>Tarn Hollow<|end_search_query|>",
    "search_r1": "<think>I wonder.</think> <search>Tarn Hollow</search>",
    "iterdrag": "Follow up: Where was Mara Velden born?",
}
# ... and others, some of which a method's parser reads, and some not.
REPLIES = [
    "Mara Velden was born in Tarn Hollow.",
    "So the answer is: Issel.",
    "So the final answer is: Issel.",
    "Thought: I know.\nAction: finish[Issel]",
    "Final Answer: Issel",
    "Yes",
    "No",
    "[Retrieval]Mara Velden is a writer.[Utility:5]",
    "- Who is Mara Velden?\n- Where does #1 live?",
    "",
]
SEARCHES = {"closed_book": 0, "one_step": 1, "drag": 1, "longrag": 1, "self_rag": 1, "recursive": 1}
"""Of those methods that do not search again: at most so often."""


def reply(request, method):
    """Depend on the prompt alone, so that any order of work gives the same replies."""
    draw = random.Random(request.prompt.text)
    if method not in MOVES or draw.random() < 0.3:
        return draw.choice(REPLIES)
    # the same query need not be searched again
    return MOVES[method].replace("Tarn", f"{draw.randrange(9)} Tarn")


def model(method, blank="", cuts=False):
    """``blank``: said in place of nothing. ``cuts``: replies end at their limit, as engines end them."""
    return ScriptedGenerator(
        lambda request: reply(request, method) or blank,
        cuts=cuts,
        log_likelihood=lambda request: -random.Random(f"{request.prompt.text}{request.target}").random(),
        probability=lambda word: 0.5 if len(word) % 3 else 0.05,
        special=REFLECTION_TOKENS,
    )


async def run_all(folder, method, in_flight):
    """Answer what the folder lacks; return the generator and the tools of each question."""
    generator, retriever, used = model(method), WordRetriever(WORLD), []
    with RunFolder(folder, {"method": method}, {"start": 1}) as run:

        async def answer_one(question):
            used.append(Tools(question, generator, retriever))
            return await answer_question(question, bind(method, MethodOptions()), used[-1])

        waiting = [question for question in QUESTIONS if question.id not in run.answered_ids]
        await answer_all(waiting, answer_one, run.append, in_flight=in_flight)
    return generator, used


@pytest.mark.parametrize("method", METHODS)
async def test_the_ledger_is_the_sum_of_all_requests_by_role(tmp_path, method):
    generator, used = await run_all(tmp_path, method, in_flight=1)
    rows = read_rows(tmp_path)
    assert not any(row.error for row in rows.values())
    for tools in used:
        check_ledger(tools)
        assert rows[tools.question.id].usage == tools.ledger
    asked = [*generator.requests, *generator.scored]
    spent = [tools.spent for tools in used]
    assert sum(usage.calls for usage in spent) == len(asked)
    assert sum(usage.prompt for usage in spent) == sum(words(request.prompt.text) for request in asked)
    searches = [sum(isinstance(step, SearchStep) for step in tools.steps) for tools in used]
    assert max(searches) == SEARCHES[method] if method in SEARCHES else max(searches) >= 2


@pytest.mark.parametrize("method", METHODS)
async def test_a_torn_run_goes_on_and_questions_at_the_same_time_do_not_mix(tmp_path, method):
    await run_all(tmp_path / "whole", method, in_flight=1)
    await run_all(tmp_path / "torn", method, in_flight=8)
    traces = tmp_path / "torn" / TRACES
    lines = traces.read_bytes().splitlines(keepends=True)
    traces.write_bytes(b"".join(lines[:5]) + lines[5][:-25])
    finished = set(read_rows(tmp_path / "torn"))
    _, used = await run_all(tmp_path / "torn", method, in_flight=8)
    assert (
        len(finished) == 5
        and {tools.question.id for tools in used} == {each.id for each in QUESTIONS} - finished
    )
    whole, torn = (
        {name: (row.answer, row.usage) for name, row in read_rows(tmp_path / run).items()}
        for run in ("whole", "torn")
    )
    assert whole == torn and len(whole) == len(QUESTIONS)


@pytest.mark.parametrize("method", METHODS)
async def test_an_answers_sources_are_the_passages_that_stood_in_its_prompts(method):
    for question in QUESTIONS[:4]:
        generator, retriever = model(method), WordRetriever(WORLD)
        row = await answer_question(
            question, bind(method, MethodOptions()), Tools(question, generator, retriever)
        )
        prompts = " ".join(" ".join(generator.prompts).split())
        # One chain, so there is no other that was read for and not chosen.
        assert set(row.read_ids) == {each.id for each in WORLD if each.text in prompts}


FEW = {
    "max_hops": 2,
    "max_steps": 2,
    "max_sentences": 2,
    "max_segments": 2,
    "max_rounds": 2,
    "max_turns": 2,
    "max_iterations": 2,
    "k": 1,
    "k_per_step": 1,
}
VARIANTS = [
    *((name, {}) for name in METHODS),
    *(("recursive", {"mode": mode}) for mode in ("recursive", "multi_hop", "self_query")),
    *(("corag", {"strategy": strategy, "chains": 2, "expand": 2}) for strategy in ("best_of_n", "tree")),
    ("corag", {"strategy": "adaptive", "chains": 3, "rank_by": "vote"}),
    ("corag", {"strategy": "best_of_n", "chains": 3, "rank_by": "vote+refusal", "judged": "draft"}),
    ("corag", {"strategy": "tree", "preset": "released_code", "expand": 2, "rollouts": 1}),
    *(("corag", {"stop": stop}) for stop in ("check", "settled", "learned")),
    ("iterdrag", {"documents": 0}),
]
FORCED = ("auto_rag", "flare", "iterdrag", "react", "search_o1", "search_r1", "self_ask")
"""Methods that keep enough of a budget to ask for the answer in the end."""


def short(method, **given):
    """Options with few steps, few passages and short replies."""
    names = [each.name for each in fields(METHODS[method].config)]
    replies = {name: 12 for name in names if name.startswith("max_") and name.endswith("_tokens")}
    few = {name: value for name, value in FEW.items() if name in names}
    return METHODS[method].config(**{**replies, **few, **given})


@pytest.mark.parametrize(("method", "options"), VARIANTS, ids=str)
async def test_no_budget_is_exceeded_and_an_answer_is_forced_from_what_it_allows(method, options):
    config, ended = short(method, **options), set()
    for budget in [1, *range(60, 2400, 60), 0]:
        generator = model(method, blank="Issel.", cuts=True)
        tools = Tools(QUESTION, generator, WordRetriever(WORLD), budget=budget)
        row = await answer_question(QUESTION, partial(METHODS[method].function, config=config), tools)
        assert row.error == "" and row.answer is not None
        check_ledger(tools)
        assert not budget or tools.spent.total <= budget
        if row.answer.stopped == "budget" and tools.spent.calls and method in FORCED:
            assert row.answer.text, "some answer could be paid for"
        ended.add(row.answer.stopped)
    assert "budget" in ended and ended != {"budget"}


@pytest.mark.parametrize(("method", "options"), VARIANTS, ids=str)
async def test_where_nothing_is_found_there_is_an_answer(method, options):
    tools = Tools(QUESTION, model(method), WordRetriever([]))
    method_of_question = partial(METHODS[method].function, config=short(method, **options))
    row = await answer_question(QUESTION, method_of_question, tools)
    assert row.error == "" and row.answer is not None and row.answer.passage_ids == ()


FIRST_SEARCH = {  # what a model says that is to search; other methods search before they ask
    "self_ask": " Yes.\nFollow up: What is The Glass Orchard?",
    "react": "Thought: Who?\nAction: search[The Glass Orchard]",
    "search_o1": "I must know: <|begin_search_query|>The Glass Orchard",
    "search_r1": "<think>I must know.</think> <search>The Glass Orchard</search>",
}


@pytest.mark.parametrize("name", METHODS)
async def test_every_method_reports_a_failed_search_as_a_failed_question(name):
    retriever = WordRetriever([passage("A", "a")], failing="Orchard")
    reply = FIRST_SEARCH.get(name, "So the answer is: X.")
    tools = Tools(QUESTION, ScriptedGenerator(lambda request: reply), retriever)
    row = await answer_question(QUESTION, bind(name, MethodOptions()), tools)
    if METHODS[name].searches:
        assert row.answer is None and SearchFailedError.__name__ in row.error
    else:
        assert row.answer is not None


def test_every_method_has_a_page_with_its_options():
    folder = Path(__file__).parents[2] / "docs/methods"
    pages = {page.stem: page.read_text() for page in folder.glob("*.md")}
    index = pages.pop("index")
    assert pages.keys() == METHODS.keys()
    assert [name for name in METHODS if f"\n| [`{name}`]({name}.md) |" not in index] == []
    assert [name for name, text in pages.items() if f"\n<!-- options: {name} -->\n" not in text] == []
    assert all(fields(entry.config) for entry in METHODS.values())


BACK_ENDS = {
    "corag.generation",
    "retrieval",
    "vllm",
    "torch",
    "transformers",
    "openai",
    "httpx",
    "pyserini",
    "faiss",
}


def test_the_methods_are_found_without_loading_a_back_end():
    """In a process of its own."""
    script = "import sys; from eval.experiment.registry import METHODS; "
    script += f"print(sorted({BACK_ENDS - {'retrieval'}} & set(sys.modules)), len(METHODS))"
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert ended.stdout.split() == ["[]", str(len(METHODS))]
