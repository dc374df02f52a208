"""A language model as judge of chains of thought: what it is shown, and what is counted."""

import asyncio
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from corag.cli.commands.judge import print_chains
from corag.core.errors import BackendError, ConfigError
from corag.core.runs.folder import read_rows
from corag.core.runs.rows import Row
from corag.core.types import Question
from eval.judging import JudgingConfig
from eval.judging_thoughts import JudgedChains, judge_chains, read_reasoning
from eval.tables.conditions import describe_conditions
from eval.tables.runs import read_run
from ircot.method import IRCoTAnswer
from tests.eval.runs import make_run, row
from tests.fakes import ScriptedGenerator
from tests.messages import raises_message

TEXTS = {
    "p0": "Lost Gravity\nLost Gravity was made by Mack Rides.",
    "p1": "Mack Rides\nMack Rides is based in Germany.",
    "other": "Nessie\nNessie lives in Scotland.",
}
QUESTIONS = [Question(str(n), f"Where was ride {n} made?", ("Germany",), ("p0", "p1")) for n in range(5)]
CHAINS: list[tuple[str, ...]] = [
    ("Lost Gravity was made by Mack Rides.", "Mack Rides is based in Germany.", "So the answer is: Germany."),
    ("Lost Gravity was made by Mack Rides.", "Mack Rides is based in France.", "So the answer is: France."),
    ("Nessie lives in Scotland.",),
    ("So the answer is: Germany.",),
]


def thought_row(question: Question, chain: tuple[str, ...]) -> Row:
    """IRCoT's answer, which had collected the first gold passage and one that is not gold."""
    plain = row(question, "Germany", ["p0", "other"])
    return replace(plain, answer=IRCoTAnswer("Germany", ("p0", "other"), len(chain), "answer", chain))


def ircot_run(folder: Path) -> Path:
    rows = [thought_row(question, chain) for question, chain in zip(QUESTIONS, CHAINS, strict=False)]
    return make_run(
        folder, [*rows, row(QUESTIONS[4], None)], {"method": "ircot", "options": {"reader": "direct"}}
    )


@pytest.fixture(autouse=True)
def index(monkeypatch: pytest.MonkeyPatch) -> None:
    """The texts of the passages, as the store beside an index has them."""
    monkeypatch.setattr(
        "eval.judging_thoughts.passage_texts", lambda folder, start: lambda ids: [TEXTS[name] for name in ids]
    )


def supports(request: Any) -> str:
    """Say yes if a paragraph holds the statement's words."""
    paragraphs, _, rest = request.prompt.text.partition("Question:")
    statement = rest.partition("The statement: ")[2].splitlines()[0]
    if "Nessie" in statement and "p0" not in paragraphs and "Mack Rides is based" in paragraphs:
        return "I cannot tell."
    return "Yes" if statement in paragraphs else "No, it does not."


def judged(run: Path, generator: ScriptedGenerator) -> JudgedChains:
    read = read_run(run.name, run)
    config = JudgingConfig([str(run)], {"what": "thoughts"})
    return asyncio.run(judge_chains(read, config, generator, read_reasoning([read])[read.name]))


def test_each_statement_is_judged_by_gold_paragraphs_and_by_what_was_retrieved(tmp_path: Path) -> None:
    generator = ScriptedGenerator(supports)
    one = judged(ircot_run(tmp_path / "run"), generator)
    assert (one.by_gold.n, one.by_gold.statements, one.by_gold.out, one.by_gold.unreadable) == (3, 5, 3, 1)
    assert one.by_gold.faulty is not None and one.by_gold.faulty.mean == pytest.approx(2 / 3)
    assert (one.by_retrieved.out, one.by_retrieved.statements) == (3, 5), "Germany is in gold alone"
    assert (one.without, one.judge_failed, one.asked) == (2, 0, 3)
    prompts = [request.prompt.text for request in generator.requests]
    assert len(prompts) == 10 and not any("The statement: So the answer" in prompt for prompt in prompts)
    second = next(prompt for prompt in prompts if "The statement: Mack Rides is based in Germany" in prompt)
    assert "Earlier statements: Lost Gravity was made by Mack Rides." in second
    assert {request.sampling.temperature for request in generator.requests} == {0.0}
    assert json.loads(json.dumps(one.to_json()))["by_gold"]["faulty"] == pytest.approx(0.6667, abs=1e-3)


def test_verdicts_are_kept_and_only_what_is_new_is_asked(tmp_path: Path) -> None:
    run = ircot_run(tmp_path / "run")

    def broken(request: Any) -> str:
        if "ride 2" in request.prompt.text:
            raise BackendError("the engine is gone.")
        return supports(request)

    with pytest.raises(BackendError):
        judged(run, ScriptedGenerator(broken))
    generator = ScriptedGenerator(supports)
    one = judged(run, generator)
    assert 0 < len(generator.requests) < 10
    again = ScriptedGenerator(supports)
    assert judged(run, again) == one and not again.requests
    assert len(read_rows(Path(one.folder))) == 3


def test_a_readers_chain_is_judged_where_it_reasons(tmp_path: Path) -> None:
    """As in the paper, whose count compares the readers' chains of one-step retrieval and IRCoT."""
    text = "Mack Rides is based in Germany. So the answer is: Germany."
    rows = [row(question, text, ["p1"]) for question in QUESTIONS[:2]]
    run = make_run(tmp_path / "one", rows, {"options": {"reader": "cot"}})
    one = judged(run, ScriptedGenerator(supports))
    assert (one.by_gold.statements, one.by_gold.out, one.by_retrieved.out) == (2, 2, 2)


def test_what_cannot_be_judged_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = make_run(tmp_path / "plain", [row(QUESTIONS[0], "Germany", ["p0"])])
    with raises_message(ConfigError):
        read_reasoning([read_run("plain", plain)])

    def gone(folder: Path, start: object) -> object:
        raise ConfigError("no index.")

    monkeypatch.setattr("eval.judging_thoughts.passage_texts", gone)
    with raises_message(ConfigError):
        read_reasoning([read_run("plain", plain)])


def test_the_table_says_what_is_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = ircot_run(tmp_path / "run")
    one = judged(run, ScriptedGenerator(supports))
    print_chains(
        {"mine": one},
        "model, prompt thoughts v1",
        describe_conditions({"mine": read_run("mine", run).manifest}),
    )
    printed = " ".join(capsys.readouterr().out.split())
    assert "66.7" in printed and "3 of 5" in printed and "at least one statement" in printed
