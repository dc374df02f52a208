"""CoRAG on the story's question, with the model's replies given."""

import asyncio
import re

from corag.chains.config import CoRAGConfig
from corag.chains.method import corag
from corag.core.seeds import stable_hash
from corag.core.tools import SearchStep, Tools
from corag.core.types import Question
from tests.fakes import PROMPTS, ScriptedGenerator, WordRetriever, kind, passage
from tests.story import QUESTION, WORLD

GIVEN = Question("q1", QUESTION.text, ("Issel",), context_ids=("mara velden", "tarn hollow"))

TOKENS = {"max_sub_query_tokens": 8, "max_sub_answer_tokens": 8, "max_answer_tokens": 8}


def stable_hash_number(text):
    return int(stable_hash(text), 16)


def chain_of(request):
    """The sub-queries that a prompt shows, from CoRAG's own way of writing hops: "1. query -> answer"."""
    return re.findall(r"^\d+\. (.*?) -> ", request.prompt.text, re.MULTILINE)


def run(
    reply, config=None, *, question=QUESTION, retriever=None, budget=0, score=lambda request: -1.0, **options
):
    engine = {name: options.pop(name) for name in ("pause", "cuts", "probability") if name in options}
    generator = ScriptedGenerator(reply, log_likelihood=score, **engine)
    tools = Tools(question, generator, retriever or WordRetriever(WORLD), budget=budget)
    # A question that brings passages (GIVEN) is asked with them.
    settings = config or CoRAGConfig(**({"given_context": "use"} | PROMPTS | options))
    return asyncio.run(corag(question, tools, settings)), generator, tools


def queue(**replies):
    """Reply by kind of request, one after the other."""
    waiting = {name: iter(texts) for name, texts in replies.items()}
    return lambda request: next(waiting[kind(request)])


def searches(tools):
    return [step.query for step in tools.steps if isinstance(step, SearchStep)]


def seeded(request):
    """A model whose sub-queries depend on the seed and place alone, and are never the same twice in a
    chain.
    """
    if kind(request) == "NEXT":
        number = stable_hash(f"{request.sampling.seed} {request.prompt.text}")
        return [f"glass {number} {sample}" for sample in range(request.sampling.n)]
    return {"ANSWER": "b", "FINAL": "Issel", "ENOUGH": "No"}[kind(request)]


def tree_model(request):
    """Sub-queries "a", "A?", "b", "c" at the root, then "b", "a", "c", "d".

    Sampled rollouts go on with "r" and "s".
    """
    if kind(request) == "NEXT":
        if request.sampling.n > 1:
            return (["b", "a", "c", "d"] if chain_of(request) else ["a", "A?", "b", "c"])[
                : request.sampling.n
            ]
        return next(name for name in ("r", "s", "t", "u", "v") if name not in chain_of(request))
    return {"ANSWER": "b", "FINAL": "Issel"}[kind(request)]


LETTERS = [passage(letter, f"{letter} text") for letter in "abcdrstuv"]


def tree_score(request):
    """Chains that begin with "a" are better, those that go on with "c" better still."""
    asked = re.findall(r"^([a-z])\nb$", request.prompt.text, re.MULTILINE)
    return -1.0 - (asked[:1] == ["a"]) - 2 * (asked[:2] == ["a", "c"])
