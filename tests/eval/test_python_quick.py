"""``ask``, ``run`` and ``sweep`` from Python on a scripted model, without an engine or an index."""

import asyncio
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from corag import CoRAGConfig, Model, Results, ask, closed_book, corag, run, sweep
from core.errors import BackendError, ConfigError
from core.method import MethodConfig
from core.options import changed
from core.protocols import GenerateRequest, Sampling, ScoreRequest
from core.tools import Tools
from core.types import Answer, Question
from eval.datasets.kilt import KILT_TASKS
from eval.experiment.ask import entry_of
from eval.experiment.background import background
from eval.experiment.given import with_keywords
from eval.experiment.results import base_of
from eval.experiment.run import RunConfig
from eval.sweeps import results as sweep_results
from eval.tables.table import percent
from generation.config import ModelConfig
from generation.transformers_engine import TransformersGenerator
from retrieval.config import RetrieverConfig
from tests.fakes import ScriptedGenerator, chat_prompt

RECORDS = [{"id": str(n), "question": f"Who is {n}?", "answers": ["Ada"]} for n in range(4)]


@pytest.fixture
def model() -> Model:
    return cast("Model", SimpleNamespace(engine=ScriptedGenerator(lambda _: "Ada"), options=ModelConfig()))


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
    em = Results(made, questions).table().figures.summaries[0].em
    assert em is not None and em.mean == 0


MODULE = """
from functools import cache
import helping
LIMIT, SEEN, PROMPTS, words = 3, [], {"one": "two"}, {"red", "green"}
calls = 0
@cache
def shorten(text):
    return text[:LIMIT]
def made(prefix):
    async def method(question, tools):
        global calls
        calls += 1
        return prefix + shorten(PROMPTS["one"]) + helping.end() + ("x" if prefix in {"a", "b", "c"} else "")
    return method
method = made("p")
"""
HELPING = "def end():\n    return 1\n"


def digest_of(folder: Path, module: str = MODULE, helping: str = HELPING, after: str = "") -> str:
    folder.mkdir()
    (folder / "mine.py").write_text(module)
    (folder / "helping.py").write_text(helping)
    script = f"from eval.experiment.own_code import code_digest\nimport mine\n{after}\n"
    command = [sys.executable, "-c", f"{script}print(code_digest(mine.method))"]
    env = {"PYTHONPATH": f"{folder}:{Path(__file__).parents[2]}"}
    return subprocess.run(command, env=env, capture_output=True, text=True, check=True).stdout


@pytest.fixture(scope="module")
def digest(tmp_path_factory: pytest.TempPathFactory) -> str:
    return digest_of(tmp_path_factory.mktemp("module") / "first")


@pytest.mark.parametrize(
    "change",
    [
        lambda text: text.replace("LIMIT, SEEN, PROMPTS, words = 3", "LIMIT, SEEN, PROMPTS, words = 4"),
        lambda text: text.replace('"two"', '"three"'),
        lambda text: text.replace("text[:LIMIT]", "text[:LIMIT].strip()"),
        lambda text: text.replace('made("p")', 'made("q")'),
        lambda text: text.replace('"x" if', '"y" if'),
    ],
)
def test_a_method_is_known_by_the_code_and_constants_that_it_uses(
    digest: str, tmp_path: Path, change: Callable[[str], str]
) -> None:
    assert digest_of(tmp_path / "now", change(MODULE)) != digest


def test_a_helper_in_a_file_beside_counts_as_its_own(digest: str, tmp_path: Path) -> None:
    assert digest_of(tmp_path / "now", helping=HELPING.replace("1", "2")) != digest


@pytest.mark.parametrize("after", ["", "mine.calls = 7"])
def test_where_code_stands_and_what_it_counts_make_no_other_method(
    digest: str, tmp_path: Path, after: str
) -> None:
    assert digest_of(tmp_path / "now", "# a line more\n\nimport sys\n" + MODULE, after=after) == digest


def test_a_method_typed_in_again_is_the_same() -> None:
    def typed(source: str) -> str:
        names: dict[str, Any] = {"__name__": "__main__"}
        exec(compile(source, "<stdin>", "exec"), names)
        return entry_of(names["mine"])[1].code

    source = "LIMIT = 3\nasync def mine(question, tools):\n    return [n for n in range(LIMIT)]\n"
    assert typed(source) == typed("\n\n" + source)
    assert typed(source) != typed(source.replace("3", "4")) != typed(source.replace("range", "iter"))


async def leaving(question: Question, tools: Tools) -> Answer:
    sys.exit("enough")


def test_a_method_that_ends_python_fails_its_question(model: Model) -> None:
    answer = ask("Who?", leaving, model)
    assert answer.error.startswith("SystemExit: the method ended Python (sys.exit('enough'))")
    assert ask("Who?", plain, model).text == "Ada", "the loop goes on"


def test_python_is_not_ended_by_what_runs_in_the_background() -> None:
    async def ending() -> None:
        sys.exit(3)

    with pytest.raises(BackendError, match=r"sys.exit\(3\)"):
        background().run(ending())


def test_a_dataset_brings_its_description_of_the_task() -> None:
    task, base = KILT_TASKS["kilt_fever"].task, RunConfig(questions="q.jsonl")
    assert changed(base, {"dataset": "kilt_fever"}).corag.task == task
    own = replace(base, corag=CoRAGConfig(task="mine"))
    assert changed(own, {"dataset": "kilt_fever"}).corag.task == "mine"
    assert changed(base, {"dataset": "kilt_fever", "corag.task": "stated"}).corag.task == "stated"


def test_so_does_one_that_is_named_for_questions_in_a_list(model: Model, tmp_path: Path) -> None:
    def options(**given: Any) -> RunConfig:
        return base_of(RunConfig, RECORDS, model, None, tmp_path, {"dataset": "kilt_fever"} | given)

    base = options(corag=CoRAGConfig(chains=2))
    assert (base.dataset, base.corag.task) == ("jsonl", KILT_TASKS["kilt_fever"].task)
    assert base.corag.chains == 2 and base.scorer != "auto" and options(scorer="musique").scorer == "musique"


def test_a_sweep_takes_a_method_that_may_not_search(
    model: Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Lent:
        async def __aenter__(self) -> object:
            return model.engine

        async def __aexit__(self, *error: object) -> None: ...

    monkeypatch.setattr(sweep_results, "lend_model", lambda options: Lent())

    def swept(limit: int) -> sweep_results.SweepResults:
        return sweep(RECORDS, {"a": plain, "b": plain}, model, out=tmp_path, limit=limit, resamples=5)

    assert swept(4).table().figures.summaries[0].n == 4
    fewer = swept(2).compare("a").figures
    assert [each.n for each in fewer.summaries] == [2, 2]


def test_paths_may_stand_in_mappings_and_none_for_no_text(tmp_path: Path) -> None:
    base = RunConfig(questions="q.jsonl")
    made = with_keywords(base, {"closed_book": {"demonstrations": tmp_path / "d.json"}})
    assert made.closed_book.demonstrations == str(tmp_path / "d.json")
    assert with_keywords(ModelConfig(), {"adapter": None}).adapter == ""
    cell = {"method": "closed_book", "closed_book.demonstrations": tmp_path}
    assert sweep_results._changes(cast("Any", base), cell, None) == cell | {
        "closed_book.demonstrations": str(tmp_path)
    }


def test_names_of_runs_are_shown_whole_and_no_figure_is_cut(model: Model, tmp_path: Path) -> None:
    long = "a long name " * 10
    made = run(RECORDS, {"corag [red]": plain, long: plain}, model, out=tmp_path)
    shown = str(made.compare("corag [red]"))
    assert "│ corag [red] " in shown and "minus corag [red]" in shown and "…" not in shown.split("minus")[0]
    assert shown.count(percent(made.table().figures.summaries[0].em)) >= 4, "EM and F1 of two runs"


def test_two_runs_do_not_share_a_folder(model: Model, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="the runs 'a b' and 'a/b' would share the folder"):
        run(RECORDS, {"a b": plain, "a/b": plain}, model, out=tmp_path)
    assert not list(tmp_path.glob("a*"))


def test_what_is_given_in_another_form_is_said(model: Model, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="Results takes run folders by name, but was given a list"):
        Results(cast("Any", ["runs/mine"]))
    with pytest.raises(ConfigError, match="give a mapping of names to"):
        run(RECORDS, cast("Any", (corag, CoRAGConfig())), model, out=tmp_path)


@dataclass(frozen=True, kw_only=True)
class HalfConfig(MethodConfig):
    """Options of half, of which one has no default."""

    hops: int


async def half(question: Question, tools: Tools, config: HalfConfig) -> Answer:
    return Answer("")


def test_a_closed_index_is_not_opened_again_by_a_sweep(model: Model, tmp_path: Path) -> None:
    class Closed:
        options = RetrieverConfig(index=["nowhere"])

        @property
        def engine(self) -> object:
            raise ConfigError("it is closed: open it again.")

    for given in ({"index": Closed()}, {"dev_index": Closed()}):
        with pytest.raises(ConfigError, match="it is closed"):
            sweep(RECORDS, {"a": closed_book}, model, out=tmp_path, **cast("Any", given))


def test_a_method_of_ones_own_is_checked_before_it_is_asked(model: Model) -> None:
    with pytest.raises(ConfigError, match=r"every option of 'half' needs a default: .*hops"):
        ask("Who?", half, model)


@pytest.mark.parametrize("queued", [True, False])
async def test_a_model_that_is_closed_says_so(queued: bool) -> None:
    """Also to what waits for its turn meanwhile: it is no failure of the question."""
    model = SimpleNamespace(generation_config=SimpleNamespace(eos_token_id=1))
    renderer = SimpleNamespace(
        eos=1, encode_within=lambda prompt, room: ([1], None), target_ids=lambda request: [1]
    )
    engine = TransformersGenerator(model, cast("Any", renderer), 64, 1, "")
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
