"""CoRAG's preset "released_code" against what the authors' agent did on the same scripted model and index."""

import asyncio
import json
from pathlib import Path

import pytest

from corag.chains import config as config_module
from corag.chains.config import CoRAGConfig
from corag.chains.method import corag
from corag.chains.released_code import RELEASED_CODE, ReleasedCode
from corag.core.protocols import Completion, GenerateRequest, Generation, Generator, Score, ScoreRequest
from corag.core.tools import SearchStep, Tools
from corag.core.types import Hit, Passage, Question, TokenUsage
from tests.chains.chains import chain_of, run
from tests.chains.released import PROMPTS, Script, count, digest
from tests.chains.released import corpus as passages_of
from tests.fakes import PROMPTS as SHORT_PROMPTS
from tests.fakes import WordRetriever, kind, passage

RUNS = json.loads((Path(__file__).parent / "released_code.json").read_text(encoding="utf-8"))


class Scripted(Generator):
    """A script as a model and as an index."""

    fingerprint = "script"

    def __init__(self, script: Script, passages: list[Passage]) -> None:
        self._script = script
        self._passages = passages
        self.asked: list[tuple[str, float, int]] = []
        self.scored: list[tuple[str, float, int]] = []

    def count_tokens(self, text: str) -> int:
        return count(text)

    async def generate(self, request: GenerateRequest) -> Generation:
        text, temperature, n = request.prompt.text, request.sampling.temperature, request.sampling.n
        self.asked.append((text, temperature, n))
        replies = self._script.reply(text, temperature, n)
        return Generation(
            tuple(Completion(reply, (), "stop") for reply in replies), TokenUsage(1, 1, 1, 1, 1)
        )

    async def score(self, request: ScoreRequest) -> Score:
        assert request.target == "No relevant information found" and request.end_of_turn
        self.scored.append((request.prompt.text, 0, 1))
        return Score((0, 1), (self._script.score(request.prompt.text),) * 2, TokenUsage(1, 1, 1, 1, 1))

    async def search(self, query: str, k: int, hop: bool = False) -> list[Hit]:
        places = self._script.found(query, len(self._passages))[:k]
        return [Hit(self._passages[place], 1 / rank) for rank, place in enumerate(places, 1)]

    async def passages(self, ids: tuple[str, ...]) -> list[Passage]:
        return [self._passages[int(name)] for name in ids]

    async def close(self) -> None:
        return None


def options(case):
    """A run's settings in our names; the cut of a passage follows from the limit, as in the authors' code."""
    contexts, limit = case["contexts"], case["max_len"]
    names = {"n": "chains", "expand": "expand", "rollouts": "rollouts", "beam": "beam"}
    return {ours: case[theirs] for theirs, ours in names.items() if theirs in case} | {
        "strategy": case["strategy"],
        "max_hops": case["hops"],
        "context_passages": contexts,
        "max_prompt_tokens": limit,
        "max_passage_tokens": int(limit / contexts * 1.2) - 1,
    }


def ours(case):
    """Run a case with the preset; return the same figures as the authors' code left."""
    script = Script(case["seed"], case["plain"])
    world = [Passage(str(at), title, text) for at, (title, text) in enumerate(passages_of(case["words"]))]
    model = Scripted(script, world)
    brought = tuple(str((case["seed"] * 7 + 3 * at) % len(world)) for at in range(case["contexts"] + 2))
    question = Question(f"q{case['seed']}", script.question, ("Issel",), context_ids=brought)
    tools = Tools(question, model, model)
    config = CoRAGConfig(preset="released_code", **PROMPTS, **options(case))
    answer = asyncio.run(corag(question, tools, config))
    return {
        "hops": [[hop.sub_query, hop.sub_answer] for hop in answer.chains[answer.chosen].hops],
        "answer": answer.text,
        "generated": len(model.asked),
        "scored": len(model.scored),
        "searches": sum(isinstance(step, SearchStep) for step in tools.steps),
        "asked": digest(model.asked),
        "scores": digest(model.scored),
    }


def name(run):
    case = run["case"]
    return f"{case['strategy']}-{case['seed']}"


@pytest.mark.parametrize("run", RUNS, ids=name)
def test_the_preset_does_what_the_authors_agent_did(run, monkeypatch):
    limit = run["case"]["message"] or RELEASED_CODE.max_hop_prompt_tokens
    monkeypatch.setattr(config_module, "RELEASED_CODE", ReleasedCode(limit))
    assert ours(run["case"]) == run["did"]


def test_the_presets_limits_are_those_of_the_authors_defaults():
    """The runs above have smaller ones, so that little text is cut."""
    theirs = {"strategy": "greedy", "hops": 6, "contexts": 20, "max_len": 3072}
    config = CoRAGConfig(preset="released_code")
    wanted = {name: limit for name, limit in options(theirs).items() if name.startswith("max_")}
    assert {name: getattr(config, name) for name in wanted} == wanted
    assert config.context_passages == 20 and config.max_passage_tokens == 183
    assert config.conventions == RELEASED_CODE and RELEASED_CODE.max_hop_prompt_tokens == 4096


# ---- what its conventions do on their own

TEN = [passage(f"Glass {at}", f"glass {at} " + f"sand{at} " * 6) for at in range(10)]


def replies(request):
    """Sub-queries "glass 1", "glass 2", ...; long sub-answers."""
    said = {
        "NEXT": f"glass {len(chain_of(request)) + 1}",
        "ANSWER": "many words of an answer",
        "FINAL": "Issel",
    }
    return said[kind(request)]


def test_context_ids_are_the_passages_that_a_cut_in_the_middle_left():
    options = {"max_hops": 2, "context_passages": 6, "preset": "released_code", "max_prompt_tokens": 40}
    for order in ("best_last", "best_first"):
        config = CoRAGConfig(**SHORT_PROMPTS, **options, context_order=order)
        answer, generator, _ = run(replies, config, retriever=WordRetriever(TEN))
        shown = generator.prompts[-1]
        assert len(shown.split()) <= 40
        kept = [at for at in range(10) if f"Glass {at}" in shown or f"sand{at}" in shown]
        assert 0 < len(kept) < 6
        assert sorted(answer.context_ids) == [f"glass {at}" for at in kept]
        assert list(answer.context_ids) == sorted(answer.context_ids), "best first"


def test_a_passage_that_the_prompt_writes_blank_is_none_that_was_shown():
    """A title without a text, in a prompt of one's own that writes texts alone."""
    world = [passage("Glass 0", "glass"), passage("Glass 1", ""), passage("Glass 2", "glass glass")]
    texts_alone = "--- passage\n{text}\n--- user\nFINAL {query}\n{passages}{hops}"
    for order in ("best_last", "best_first"):
        config = CoRAGConfig(
            preset="released_code",
            **SHORT_PROMPTS | {"final_answer_prompt": texts_alone},
            max_hops=1,
            context_order=order,
        )
        answer, _, _ = run(replies, config, retriever=WordRetriever(world))
        assert sorted(answer.context_ids) == ["glass 0", "glass 2"]
