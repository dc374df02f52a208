"""ReAct over real indexes: the same steps with Lucene's BM25, dense search and both fused."""

from collections.abc import Callable

import pytest

from corag.baselines.react import ReActConfig, react
from corag.core.tools import Tools
from corag.core.types import Question
from retrieval.config import RetrieverConfig
from retrieval.search.pipeline import open_retriever
from tests.fakes import ScriptedGenerator

QUESTION = Question(
    "q", "What is the town on the river Dulle with the mayor who sold paper known for?", ("paper",)
)
STEPS = [
    " Which towns lie there?\nAction 1: search[town that lies on the river Dulle]",
    " Town03 does. Who is its mayor?\nAction 2: search[Mayor of Town03]",
    " What of paper?\nAction 3: lookup[known for]",
    " Enough.\nAction 4: finish[paper]",
]


@pytest.mark.parametrize("kinds", [("bm25",), ("dense",), ("bm25", "dense")])
async def test_react_searches_looks_up_and_finishes(
    kinds: tuple[str, ...], index_of: Callable[[str], str]
) -> None:
    retriever = await open_retriever(RetrieverConfig([index_of(kind) for kind in kinds]))
    generator = ScriptedGenerator(STEPS)
    answer = await react(QUESTION, Tools(QUESTION, generator, retriever), ReActConfig(k=3))
    await retriever.close()
    assert (answer.text, answer.stopped, answer.searches, answer.bad_parses) == ("paper", "finish", 2, 0)
    first, second, lookup, _ = (step.observation for step in answer.trajectory)
    assert first.startswith("[1] ") and "river Dulle" in first and "[4]" not in first
    assert "Mayor of Town03: Mayor number 3 of Town03" in second
    towns = [passage for passage in answer.passage_ids if passage.startswith("t")]
    assert towns and lookup.count("known for its") == len(towns), "in all that was found, by either search"
    assert len(answer.passage_ids) == len(set(answer.passage_ids)) > 3
    assert f"Observation 3: {lookup}\n" in generator.prompts[-1]
