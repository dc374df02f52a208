"""``ask``, ``run`` and ``sweep`` from Python on a scripted model, without an engine or an index."""

import asyncio
import builtins
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from rich.console import Console

from corag import CoRAGConfig, ask, closed_book, run, sweep, table
from corag.core.errors import BackendError, ConfigError
from corag.core.own_objects import source_digest
from corag.core.protocols import GenerateRequest, Sampling, ScoreRequest
from corag.core.runs.manifest import Manifest
from corag.core.tools import Tools
from corag.core.types import Answer, Question
from corag.generation.config import ModelConfig
from corag.generation.transformers_engine import TransformersGenerator
from eval.api import Index, Model, Results
from eval.api.background import background
from eval.api.opened import _indexes, _models
from eval.api.results import base_of
from eval.datasets import DATASETS
from eval.experiment.own_methods import load_method, make_method
from eval.experiment.run import RunConfig
from retrieval.config import RetrieverConfig
from tests.fakes import ScriptedGenerator, chat_prompt
from tests.generation.families import FAMILIES
from tests.messages import raises_message

RECORDS = [{"id": str(n), "question": f"Who is {n}?", "answers": ["Ada"]} for n in range(4)]


@pytest.fixture
def model() -> Model:
    model = Model(_models, ModelConfig())
    model._engine = ScriptedGenerator(lambda _: "Ada")
    return model


async def plain(question: Question, tools: Tools) -> Answer:
    """A method without options. Nothing is known of what it does."""
    return Answer("Ada")


def test_results_are_of_the_questions_that_were_asked(model: Model, tmp_path: Path) -> None:
    def asked(limit: int) -> Results:
        return run(RECORDS, {"a": plain, "b": closed_book}, model, out=tmp_path, limit=limit)

    assert asked(4).table().figures.summaries[0].n == 4
    fewer = asked(2)
    assert [each.n for each in fewer.table().figures.summaries] == [2, 2]
    assert [each.n for each in fewer.compare("a").figures.summaries] == [2, 2]
    assert list(fewer.to_pandas().id) == ["0", "1"] * 2 and list(fewer.rows("a")) == ["0", "1"]


def test_a_frame_has_the_questions_of_the_table(model: Model, tmp_path: Path) -> None:
    run(RECORDS, {"a": plain}, model, out=tmp_path)
    run(RECORDS, {"b": plain}, model, out=tmp_path, limit=1)
    both = Results({"a": tmp_path / "a", "b": tmp_path / "b"})
    assert both.table().figures.summaries[0].n == 1 and list(both.to_pandas().id) == ["0", "0"]


def test_results_score_by_the_gold_answers_of_now(model: Model, tmp_path: Path) -> None:
    made = run(RECORDS, {"a": plain}, model, out=tmp_path).runs
    questions = [Question(each["id"], each["question"], ("Bob",)) for each in RECORDS]
    assert Results(made).to_pandas().em.tolist() == [1.0] * 4
    assert Results(made, questions).to_pandas().em.tolist() == [0.0] * 4
    em = Results(made, questions).table().figures.summaries[0].measures["em"]
    assert em is not None and em.mean == 0


def test_tables_are_taken_along(model: Model, tmp_path: Path) -> None:
    results = run(RECORDS, {"a": plain, "b": closed_book}, model, out=tmp_path / "runs")
    assert results.rows("a")["0"].text == "Ada"
    assert [each["gold"] for each in results.records()] == [["Ada"]] * 8
    compared = results.compare("a")
    frame = compared.to_pandas()
    assert frame.run.tolist() == ["a", "b"] and frame.em_p_holm.tolist()[1] == 1
    assert compared.to_csv().count("\n") == 3 and "\\toprule" in compared.to_latex()
    assert compared.to_latex() != results.table().to_latex()
    assert results.table().to_markdown().startswith("| method | EM | F1 | tokens |\n")
    for runs in (results, results.runs, [*results.runs.values()]):
        assert str(table(runs)) == str(results), "the same runs, however they are named"


def test_a_notebook_gets_pages_and_str_stays_text(
    model: Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a notebook rich shows whatever a console prints, and writes nothing to the console's file."""
    answer = ask("Who?", closed_book, model)
    results = run(RECORDS, {"short": closed_book}, model, out=tmp_path)
    before = str(answer), str(results), answer._repr_html_()
    kernel = type("ZMQInteractiveShell", (), {})()
    monkeypatch.setattr(builtins, "get_ipython", lambda: kernel, raising=False)
    assert Console().is_jupyter, "rich takes this for a notebook"
    assert (str(answer), str(results), answer._repr_html_()) == before
    assert "│ short" in results._repr_html_()


def test_a_question_is_shown_as_each_run_answered_it(
    model: Model, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    results = run(RECORDS, {"a": plain, "b": closed_book}, model, out=tmp_path)
    results.show("1")
    shown = capsys.readouterr().out
    assert shown.index("── a") < shown.index("── b") and shown.count("Who is 1?") == 2
    assert shown.count("answer   Ada") == 2
    with raises_message(ConfigError):
        results.show("9")


MODULE = """
LIMIT = 3
async def method(question, tools):
    return question.text[:LIMIT] + "x"
"""


@pytest.mark.parametrize(
    ("old", "new"),
    [("LIMIT = 3", "LIMIT = 4"), ("LIMIT = 3", "# why\nLIMIT = 3")],
)
def test_a_method_of_a_file_is_known_by_the_whole_file(tmp_path: Path, old: str, new: str) -> None:
    def digest(module: str) -> str:
        path = tmp_path / "mine.py"
        path.write_text(module)
        return load_method(f"{path}:method").code

    assert old in MODULE and digest(MODULE) != digest(MODULE.replace(old, new))
    assert digest(MODULE) == digest(MODULE)
    assert make_method(plain, "plain").code == source_digest(plain), "from Python by its own text"


async def leaving(question: Question, tools: Tools) -> Answer:
    sys.exit("enough")


def test_a_method_that_ends_python_fails_its_question(model: Model) -> None:
    answer = ask("Who?", leaving, model)
    assert answer.error.startswith("SystemExit: the method ended Python (sys.exit('enough'))")
    assert ask("Who?", plain, model).text == "Ada", "the loop goes on"


def test_python_is_not_ended_by_what_runs_in_the_background() -> None:
    async def ending() -> None:
        sys.exit(3)

    with raises_message(BackendError):
        background().run(ending())


def test_a_dataset_that_is_named_for_questions_in_a_list_brings_its_task(
    model: Model, tmp_path: Path
) -> None:
    def options(**given: Any) -> RunConfig:
        return base_of(RunConfig, RECORDS, model, None, tmp_path, {"dataset": "kilt_fever"} | given)

    base = options(corag=CoRAGConfig(chains=2))
    assert (base.dataset, base.corag.task) == ("jsonl", DATASETS["kilt_fever"].task)
    assert base.corag.chains == 2 and base.scorer != "auto" and options(scorer="musique").scorer == "musique"


def test_a_closed_index_is_not_opened_again_by_a_sweep(model: Model, tmp_path: Path) -> None:
    closed = Index(_indexes, RetrieverConfig(index=["nowhere"]))
    for given in ({"index": closed}, {"dev_index": closed}):
        with raises_message(ConfigError):
            sweep(RECORDS, {"a": closed_book}, model, out=tmp_path, **cast("Any", given))


@pytest.mark.parametrize("queued", [True, False])
async def test_a_model_that_is_closed_says_so(queued: bool) -> None:
    """Also to what waits for its turn meanwhile: it is no failure of the question."""
    from transformers import LlamaConfig

    config = LlamaConfig(max_position_embeddings=256)
    model = SimpleNamespace(config=config, generation_config=SimpleNamespace(eos_token_id=1))
    engine = TransformersGenerator(model, FAMILIES["Qwen3"].renderer(), 256, 1, "")
    prompt = chat_prompt("Who?")
    calls = [
        asyncio.ensure_future(engine.generate(GenerateRequest(prompt, Sampling(max_tokens=1)))),
        asyncio.ensure_future(engine.score(ScoreRequest(prompt, "Ada"))),
    ]
    if queued:
        await asyncio.sleep(0)  # into the queue, of which no batch has begun
    await engine.close()
    for said in await asyncio.gather(*calls, return_exceptions=True):
        assert isinstance(said, BackendError) and "the model was closed" in str(said)


def test_a_method_may_come_with_its_options_by_name(model: Model, tmp_path: Path) -> None:
    asked = [{"id": "a", "question": "Who?", "answers": ["Ada"]}]
    for methods in (("closed_book", {"max_answer_tokens": 3}), [("closed_book", {"max_answer_tokens": 3})]):
        done = run(asked, methods, model, out=tmp_path)
        assert list(done.runs) == ["closed_book"]
    assert Manifest.read(done.runs["closed_book"]).options["max_answer_tokens"] == 3
    with pytest.raises(ConfigError, match="did you mean 'max_answer_tokens'"):
        run(asked, ("closed_book", {"max_answer_token": 3}), model, out=tmp_path)
