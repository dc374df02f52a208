"""A small world and scripted replies that the tests of the training data share."""

import asyncio
import re
from contextlib import asynccontextmanager
from dataclasses import replace

from corag.chains.config import CoRAGConfig
from corag.core.runner import answer_question
from corag.core.runs.environment import environment
from corag.core.runs.folder import RunFolder
from corag.core.seeds import derive_seed
from corag.core.tools import Tools
from corag.core.types import GoldHop
from tests import story
from tests.fakes import ScriptedGenerator, WordRetriever
from tests.story import WORLD
from training.data import RowsConfig, list_examples
from training.row_tasks import RowSource
from training.sample import SampleRunConfig, chain_settings
from training.sampling import SampleConfig, sample_chains

BY_ID = {each.id: each for each in WORLD}
QUESTION = replace(
    story.QUESTION,
    answers=("Issel", "the river Issel"),
    decomposition=(
        GoldHop("Who wrote The Glass Orchard?", "Mara Velden", "the glass orchard"),
        GoldHop("Where was #1 born?", "Tarn Hollow", "mara velden"),
        GoldHop("Which river flows by #2?", "Issel", "tarn hollow"),
    ),
)
ALL = RowsConfig(
    tasks=("sub_query", "sub_answer", "final_answer", "draft", "stop", "no_chain"), ratio=1.0, validation=0.0
)
SHORT = {"max_sub_query_tokens": 8, "max_sub_answer_tokens": 8, "max_answer_tokens": 8}
CORAG = CoRAGConfig(passages_per_hop=2, search_depth=3, context_passages=3, **SHORT)
SAMPLE = SampleConfig(chains=2, max_hops=3)
REFUSAL = "No relevant information found"


def examples_of(row, count, config, corag=CORAG, ircot=None):
    """What is taught of a question whose passages are those of the small world."""
    source = RowSource(row, BY_ID, count, corag, ircot)
    return list(list_examples(source, config))


def asked_in(request):
    """The sub-queries that a prompt shows."""
    return tuple(re.findall(r"^\d+\. (.*?) -> ", request.prompt.text, re.MULTILINE))


def script(*chains, answers=None, seed=0, question="q1"):
    """Give chain c at hop h the sub-query ``chains[c-1][h-1]`` (a list: one per try).

    Read sub-answers from ``answers``.
    """
    texts = {}
    for number, chain in enumerate(chains, 1):
        for hop, tries in enumerate(chain, 1):
            for attempt, text in enumerate([tries] if isinstance(tries, str) else tries):
                place = f"chain {number}/hop {hop}" + f"/retry {attempt}" * bool(attempt)
                texts[derive_seed(seed, question, "sub_query", place)] = text

    def reply(request):
        if request.sampling.seed is not None:
            return texts.get(request.sampling.seed, "")
        asked = request.prompt.text.splitlines()[0].removeprefix("ANSWER ")
        return (answers or {}).get(asked, f"about {asked}")

    return reply


def by_prompt(request):
    """Reply with something that follows from the prompt and the seed alone, at any order of requests."""
    number = derive_seed(request.prompt.text, request.sampling.seed or 0)
    text = request.prompt.text
    if request.sampling.seed is not None:
        return f"{WORLD[number % 4].title} {number % 1000}?"
    reads = text.startswith("ANSWER") or "\n\nQuestion: " in text
    return ("Mara Velden", "Tarn Hollow", REFUSAL, "glass", "the Issel")[number % 5] if reads else "Issel"


def likelihood_by_prompt(request):
    return -0.2 - derive_seed(request.prompt.text, request.target) % 1000 / 250


def sample(
    config,
    corag,
    reply,
    *,
    likelihood=lambda request: -1.0,
    question=QUESTION,
    seed=0,
    world=WORLD,
    pause=None,
):
    """Sample for one question; return the answer, the generator and the tools."""
    generator = ScriptedGenerator(reply, log_likelihood=likelihood, pause=pause)
    tools = Tools(question, generator, WordRetriever(world), seed=seed)
    return asyncio.run(sample_chains(question, tools, config, corag)), generator, tools


def write_chains(folder, config, corag, *, questions=(QUESTION,), reply=by_prompt, failing="", **settings):
    """Sample into a folder as 'corag sample' does; return the rows that were written."""
    generator = ScriptedGenerator(reply, log_likelihood=likelihood_by_prompt, cuts=True)
    retriever = WordRetriever(WORLD, failing)
    options = SampleRunConfig(questions="toy.jsonl", sample=config, corag=corag)

    async def method(question, tools):
        return await sample_chains(question, tools, config, corag)

    async def fill(run):
        for question in questions:
            row = await answer_question(question, method, Tools(question, generator, retriever))
            rows.append(replace(row, steps=()))
            run.append(rows[-1])

    rows = []
    with RunFolder(folder, chain_settings(options, generator, retriever) | settings, environment()) as run:
        asyncio.run(fill(run))
    return rows


def many(count):
    """Questions that differ in their ids only."""
    return [replace(QUESTION, id=f"q{number}") for number in range(1, count + 1)]


@asynccontextmanager
async def scripted_backends(setup, pause=None):
    """What eval.experiment.backends.open_backends gives, with a script for a model."""
    yield ScriptedGenerator(by_prompt, log_likelihood=likelihood_by_prompt, pause=pause), WordRetriever(WORLD)
