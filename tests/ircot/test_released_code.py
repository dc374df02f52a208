"""IRCoT and its baselines against what the authors' code did on the same script and worked examples."""

import json
from pathlib import Path

import pytest

from corag.baselines.closed_book import ClosedBookConfig, closed_book
from corag.baselines.one_step import OneStepConfig, one_step
from corag.core.language.text import extract_answer
from corag.core.protocols import Completion, GenerateRequest, Generation, Generator
from corag.core.tools import SearchStep, Tools
from corag.core.types import Hit, Passage, Question, TokenUsage
from ircot.method import IRCoTConfig, ircot
from tests.fakes import before_stop
from tests.ircot.released import PREFIXES, count, digest, examples, found, reply

FOLDER = Path(__file__).parent
RUNS = json.loads((FOLDER / "released_code.json").read_text(encoding="utf-8"))
READERS = json.loads((FOLDER / "released_readers.json").read_text(encoding="utf-8"))


class Scripted(Generator):
    """A script as a model and as an index."""

    fingerprint = "script"

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self.prompts: list[str] = []
        self.limits: set[int] = set()

    def count_tokens(self, text: str) -> int:
        return count(text)

    async def generate(self, request: GenerateRequest) -> Generation:
        prompt = request.prompt.text
        self.prompts.append(prompt)
        self.limits.add(request.sampling.max_tokens)
        text = before_stop(reply(self._seed, prompt), request.sampling.stop)
        return Generation((Completion(text, (), "stop"),), TokenUsage(1, 1, 1, 1, 1))

    async def search(self, query: str, k: int, hop: bool = False) -> list[Hit]:
        return [Hit(Passage(title, title, text), 1.0) for title, text in found(self._seed, query, k)]

    async def close(self) -> None:
        return None


def preset(case, folder):
    """A case's settings in our names; only the file with chains of thought is named."""
    flan = case["flan"]
    for kind in ("cot", "direct"):
        name = f"gold_context_{kind}_qa_{'flan_t5' if flan else 'codex'}.txt"
        (folder / name).write_text(examples(kind, flan, case["examples"]))
    options = {"k_per_step": case["k"], "max_steps": case["steps"], "reader": case["reader"]}
    if not flan:
        options["demonstration_window"] = case["window"]
    file = folder / f"gold_context_cot_qa_{'flan_t5' if flan else 'codex'}.txt"
    return IRCoTConfig(preset="paper_flan" if flan else "paper_code", demonstrations=str(file), **options)


@pytest.mark.parametrize("run", RUNS, ids=lambda run: f"{run['case']['reader']}-{run['case']['seed']}")
async def test_the_presets_ask_what_the_authors_code_asked(run, tmp_path):
    case, did = run["case"], run["did"]
    model = Scripted(case["seed"])
    question = Question("q", f"Which river is of book {case['seed']}?", ())
    tools = Tools(question, model, model)
    answer = await ircot(question, tools, preset(case, tmp_path))
    queries = [step.query for step in tools.steps if isinstance(step, SearchStep)]
    assert list(answer.cot_sentences) == did["thoughts"]
    assert [query for query in queries if query.strip()] == did["queries"], "blank ones are not asked for"
    assert digest(model.prompts) == did["prompts"]
    assert sorted(model.limits) == did["limits"]
    # Their direct reader's reply is the answer as it stands; ours is read as every reader's.
    assert answer.text == (extract_answer(did["answer"]) if case["reader"] == "direct" else did["answer"])


def reader_options(case, folder):
    """A reader's options as paper_ircot.yaml has them; a direct one's own file lies beside the other."""
    flan = case["flan"]
    paragraphs = "own" if case["method"] == "one_step" else "none"
    for kind in ("cot", "direct"):
        (folder / f"context_{kind}_qa_x.txt").write_text(examples(kind, flan, case["examples"], paragraphs))
    return {
        "demonstrations": str(folder / "context_cot_qa_x.txt"),
        "reader_demonstrations": "beside",
        "reader_question_prefix": PREFIXES["direct"].strip() if flan else "",
        "reader": case["reader"],
        "max_answer_tokens": 200 if flan else 300,
    }


@pytest.mark.parametrize("run", READERS, ids=lambda run: f"{run['case']['method']}-{run['case']['seed']}")
async def test_the_baselines_ask_what_the_authors_code_asked(run, tmp_path):
    case, did = run["case"], run["did"]
    model = Scripted(case["seed"])
    question = Question("q", f"Which river is of book {case['seed']}?", ())
    tools, options = Tools(question, model, model), reader_options(case, tmp_path)
    if case["method"] == "one_step":
        answer = await one_step(question, tools, OneStepConfig(k=case["k"], **options))
    else:
        answer = await closed_book(question, tools, ClosedBookConfig(**options))
    assert [step.query for step in tools.steps if isinstance(step, SearchStep)] == did["queries"]
    assert digest(model.prompts) == did["prompts"]
    assert sorted(model.limits) == did["limits"]
    assert answer.text == (extract_answer(did["answer"]) if case["reader"] == "direct" else did["answer"])


async def test_the_codex_preset_leaves_out_the_last_examples_that_have_no_room(tmp_path):
    """Three of 3,000 words each: beside one of them, a question as long as it and the reply fit in 8,000."""
    blocks = [
        f"Wikipedia Title: P\n{'w ' * 3000}\n\nQ: Who made {name}?\nA: B. So the answer is: B."
        for name in "XYZ"
    ]
    file = tmp_path / "examples.txt"
    file.write_text("\n\n\n".join(blocks) + "\n")
    question = Question("q", "Which river is it?", ())
    shown = {}
    for preset in ("paper", "paper_code"):
        model = Scripted(3)
        config = IRCoTConfig(preset=preset, demonstrations=str(file), max_steps=1)
        await ircot(question, Tools(question, model, model), config)
        shown[preset] = [
            [name for name in "XYZ" if f"Who made {name}?" in prompt] for prompt in model.prompts
        ]
    assert shown == {"paper": [["X", "Y", "Z"]] * 2, "paper_code": [["X"]] * 2}
