"""A method of one's own: the page in docs/ is run as it stands there."""

import re
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
import uvicorn
from starlette.applications import Starlette

from corag.cli.main import main
from corag.core.errors import ConfigError
from corag.core.options.classes import change_options
from corag.core.options.command_line import parse
from corag.core.runner import answer_question
from corag.core.runs.manifest import Manifest
from corag.core.tools import GenerateStep, SearchStep, Tools
from eval.experiment.executor import LocalExecutor
from eval.experiment.own_methods import load_method
from eval.experiment.registry import bind
from eval.experiment.run import RunConfig, answer_with
from eval.tables.results import TableView, table_of_runs
from retrieval.config import RetrieverConfig
from tests.fakes import ScriptedGenerator, WordRetriever
from tests.messages import raises_message
from tests.serving import free_port
from tests.story import QUESTION, WORLD

PAGE = Path(__file__).parents[2] / "docs/guides/your_own_method.md"


def method_of_the_page(folder: Path) -> str:
    """Write the page's example to a file, and return how to name it."""
    (code,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert len(code.splitlines()) <= 64
    (folder / "my_method.py").write_text(code)
    return f"{folder / 'my_method.py'}:my_method"


@pytest.fixture
def method(tmp_path: Path) -> str:
    return method_of_the_page(tmp_path)


def configured(*argv: str) -> RunConfig:
    return parse(RunConfig, ["--questions", "q.jsonl", *argv], "corag run", "")


async def answered(method: str, replies: list[str], *argv: str, passages=WORLD):
    """Answer with the page's method and scripted replies."""
    config = configured("--method", method, "--my_method.k", "1", *argv)
    generator = ScriptedGenerator(replies)
    tools = Tools(QUESTION, generator, WordRetriever(passages))
    return await answer_question(QUESTION, bind("my_method", config), tools), generator


async def test_the_page_searches_twice_and_reads(method: str) -> None:
    row, generator = await answered(method, ["Search: Mara Velden, writer", "Tarn Hollow."])
    assert row.answer is not None, row.error
    assert (row.answer.text, row.answer.steps, row.answer.stopped) == ("Tarn Hollow", 2, "max_searches")
    assert [step.query for step in row.steps if isinstance(step, SearchStep)] == [
        QUESTION.text,
        "Mara Velden, writer",
    ]
    assert row.answer.passage_ids == ("the glass orchard", "mara velden")
    first, second = generator.prompts
    assert "what to look up" in first and "what to look up" not in second, (
        "after the last search it must answer"
    )
    assert "Mara Velden is a writer" in second
    spent = sum(step.usage.total for step in row.steps if isinstance(step, GenerateStep))
    assert row.usage["read"].calls == 2 and row.total_usage.total == spent > 0


async def test_the_page_stops_early_and_at_its_cap(method: str) -> None:
    row, generator = await answered(method, ["Issel."])
    assert row.answer is not None and (row.answer.text, row.answer.stopped, row.answer.steps) == (
        "Issel",
        "answer",
        1,
    )
    replies = ["Search: Mara Velden", "Search: Tarn Hollow", "Issel"]
    row, generator = await answered(method, replies, "--my_method.max_searches", "3")
    assert row.answer is not None and (row.answer.steps, row.answer.stopped) == (3, "max_searches")
    assert len(generator.requests) == 3


async def test_the_page_survives_blank_and_unasked_replies(method: str) -> None:
    row, _ = await answered(method, ["Search:", "Search: more"], passages=[])
    assert row.answer is not None and row.answer.text == "Search: more", "what is no answer counts as one"
    assert [step.query for step in row.steps if isinstance(step, SearchStep)] == [QUESTION.text] * 2


async def test_a_run_of_an_own_method_resumes_and_notices_changed_code(
    method: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("q.jsonl").write_text("{}\n")
    file = tmp_path / "my_method.py"
    config = configured("--method", "my_method.py:my_method", "--my_method.k", "1")
    generator = ScriptedGenerator(lambda request: "Issel")
    executor = LocalExecutor(generator, WordRetriever(WORLD))
    folder = await answer_with(config, "my_method", [QUESTION], executor)
    again = await answer_with(config, "my_method", [QUESTION], executor)
    assert folder == again and folder.name.startswith("my_method-") and len(generator.requests) == 1
    manifest = Manifest.read(folder)
    assert manifest.options["k"] == 1 and len(manifest.prompts) == 2 and manifest.settings["code"]
    table = table_of_runs({"my_method": folder}, TableView(), [QUESTION])
    assert table.status == 0 and table.to_json()["runs"]["my_method"]["em"] == 1.0
    assert main(["table", str(folder)]) == 0, "a process that has not loaded the method can print its table"
    assert main(["table", str(folder), "--ledger"]) == 0

    file.write_text(file.read_text().replace("template, 200", "template, 100"))
    edited = configured("--method", "my_method.py:my_method", "--my_method.k", "1")
    assert await answer_with(edited, "my_method", [QUESTION], executor) != folder


@contextmanager
def served_app(app: Starlette) -> Iterator[str]:
    """Serve an application from a thread."""
    port = free_port()
    server = uvicorn.Server(uvicorn.Config(app, port=port, log_level="error", lifespan="off"))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    yield f"http://127.0.0.1:{port}"
    server.should_exit = True
    thread.join(5)


def test_options_of_an_own_method_are_checked_as_any(method: str, tmp_path: Path) -> None:
    config = configured("--method", f"one_step,{method}", "--my_method.k=7")
    assert config.method == ["one_step", "my_method"] and vars(config)["my_method"].k == 7
    assert isinstance(config, RunConfig) and config.find_method("my_method").searches
    other = change_options(config, {"my_method.max_searches": 3})
    assert (vars(other)["my_method"].k, vars(other)["my_method"].max_searches) == (7, 3)
    assert change_options(other, {"method": method}).method == ["my_method"], "naming it again is no clash"
    for argv, complaint in [
        (["--my_method.kk", "1"], "unknown option 'my_method.kk': did you mean 'my_method.k'"),
        (["--my_method.k", "0"], "'my_method.k' is '0', but it should be greater than or equal to 1"),
    ]:
        with pytest.raises(ConfigError, match=complaint):
            configured("--method", method, *argv)
    with raises_message(ConfigError):
        configured("--my_method.k", "1")


CONFIG = """
from __future__ import annotations
from dataclasses import dataclass
from typing import ClassVar, Literal
from corag.core.method import Method, MethodConfig
from corag.core.tools import Tools
from corag.core.types import Answer, Question

@dataclass(frozen=True)
class Options(MethodConfig):
    preset: Literal["quick", "slow"] = "quick"
    hops: int = 1
    flag: bool = False
    ALIASES: ClassVar = {"L": "hops"}
    PRESETS: ClassVar = {"quick": {}, "slow": {"hops": 9}}
"""
FUNCTION = "async def mine(question: Question, tools: Tools, config: Options) -> Answer: return Answer('x')\n"
GOOD = CONFIG + FUNCTION + "mine = Method(mine, searches=False)\n"


def test_an_own_method_may_have_presets_aliases_flags_and_no_index(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "quiet_module.py").write_text(GOOD)
    monkeypatch.syspath_prepend(str(tmp_path))
    config = configured("--method", "quiet_module:mine", "--mine.preset", "slow", "--mine.flag")
    options = vars(config)["mine"]
    assert (options.hops, options.flag, config.searches) == (9, True, False)
    assert vars(configured("--mine.L", "4", "--method=quiet_module:mine"))["mine"].hops == 4


@pytest.mark.parametrize(
    ("code", "complaint"),
    [
        ("", "has no 'async def mine': it has none at all"),
        ("def mine(question, tools, config): ...", "has no 'async def mine'"),
        ("x = 1\nasync def mine(question, tools, config:", r"SyntaxError: .*mine\.py, line 2"),
        ("async def mine(question, model): ...", r"takes \(question, model\), but a method takes"),
        ("async def mine(question, tools, config: int): ...", "must be annotated with a class of options"),
        (
            GOOD.replace("hops: int = 1", "hops: int").replace(' = "quick"', ""),
            "every option of .* needs a default",
        ),
    ],
)
def test_what_is_wrong_with_an_own_method_is_said(tmp_path: Path, code: str, complaint: str) -> None:
    (tmp_path / "mine.py").write_text(code)
    with pytest.raises(ConfigError, match=complaint):
        load_method(f"{tmp_path / 'mine.py'}:mine")


async def test_an_own_method_may_have_no_options(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        "from corag.core.types import Answer\nasync def mine(question, tools): return Answer('x')\n"
    )
    config = configured("--method", f"{tmp_path / 'mine.py'}:mine")
    assert not config.searches, "no index was named: its first search will tell"
    assert replace(config, retriever=RetrieverConfig(index=["some"])).searches
    tools = Tools(QUESTION, ScriptedGenerator([]), WordRetriever(WORLD))
    row = await answer_question(QUESTION, bind("mine", config), tools)
    assert row.answer is not None and row.answer.text == "x"


def test_names_that_are_taken_or_lead_nowhere(tmp_path: Path) -> None:
    method = FUNCTION
    (tmp_path / "a.py").write_text(
        GOOD + method.replace("def mine", "def corag") + method.replace("def mine", "def seed")
    )
    (tmp_path / "b.py").write_text(GOOD + "# another\n")
    file = tmp_path / "a.py"
    for names, complaint in [
        (f"{file}:corag", "'corag' has the name of another method"),
        (f"{file}:seed", "'seed' has the name of another option"),
        (f"{file}:mine,{tmp_path / 'b.py'}:mine", "'mine' has the name of another method"),
        ("nowhere.py:mine", "there is no file 'nowhere.py'"),
    ]:
        with pytest.raises(ConfigError, match=re.escape(complaint)):
            configured("--method", names)
