"""A language model as judge: what it is asked, how its replies are read, what counts as wrong, and
resuming.
"""

import asyncio
import json

import pytest

from corag import ModelConfig
from corag.cli.main import main
from corag.core.errors import BackendError, ConfigError
from corag.core.runs.folder import TRACES, read_rows
from corag.core.runs.manifest import Manifest
from corag.core.types import Question
from eval.api import judge
from eval.judging import judge_run
from eval.scoring.judge import JudgeConfig, parse_verdict
from eval.tables.runs import read_run
from tests.eval.runs import make_run, row
from tests.fakes import ScriptedGenerator
from tests.messages import raises_message

QUESTIONS = [Question(str(n), f"Who wrote book {n}?", (f"Author {n}", f"Mrs {n}")) for n in range(6)]


def judged(run, generator, **judge):
    model = ModelConfig(backend="server", urls=["http://x"])
    return asyncio.run(judge_run(read_run(run.name, run), JudgeConfig(**judge), generator, model))


def a_run(folder):
    """Answers: right, right in other words, wrong, blank, failed, and one question without gold answers."""
    said = ["Author 0", "the lady called 1", "someone else", "", None]
    rows = [row(question, text) for question, text in zip(QUESTIONS, said, strict=False)]
    return make_run(folder, [*rows, row(Question("9", "Who knows?"), "x")])


def reply(request):
    prompt = request.prompt.text
    if "book 3" in prompt:
        return "I cannot say."
    return "Yes." if "Author 0\n" in prompt.partition("The answer:")[2] or "called 1" in prompt else "No"


@pytest.mark.parametrize(
    ("text", "verdict"),
    [
        ("Yes", "yes"),
        ("**No**, it is not. Yes would be wrong", "no"),
        ("The answer is not right: no.", "no"),
        ("", "unreadable"),
        ("Either yes or no", "unreadable"),
    ],
)
def test_replies_are_read_or_said_to_be_unreadable(text, verdict):
    assert parse_verdict(text) == verdict


def test_a_judge_sees_question_gold_answers_and_prediction_and_decodes_greedily(tmp_path):
    generator = ScriptedGenerator(reply)
    judged(a_run(tmp_path / "run"), generator)
    assert len(generator.requests) == 4, (
        "neither the failed question nor the one without gold answers is asked about"
    )
    asked = {request.prompt.text for request in generator.requests}
    (first,) = [prompt for prompt in asked if "book 0" in prompt]
    assert "Author 0; Mrs 0" in first and "The answer: Author 0" in first
    assert any("The answer: (none)" in prompt for prompt in asked)
    assert {request.sampling.temperature for request in generator.requests} == {0.0}


def test_failures_and_unreadable_replies_count_as_wrong(tmp_path):
    one = judged(a_run(tmp_path / "run"), ScriptedGenerator(reply))
    assert (one.right.mean, one.em.mean, one.n) == (0.4, 0.2, 5)
    assert (one.failed, one.judge_failed, one.unreadable) == (1, 0, 1)
    assert str(one).startswith("judged right 40.0 [") and "1 failed, 0 the judge failed at, 1 unread" in str(
        one
    )
    assert json.loads(json.dumps(one.to_json()))["right"] == 0.4


def test_verdicts_none_of_which_can_be_read_are_no_figure(tmp_path):
    run = a_run(tmp_path / "run")
    one = judged(run, ScriptedGenerator(lambda request: "I cannot say."))
    assert one.right is None and one.to_json()["right"] is None


def test_verdicts_are_kept_and_only_what_is_new_is_asked(tmp_path):
    run = a_run(tmp_path / "run")

    def broken(request):
        if "book 2" in request.prompt.text:
            raise BackendError("the engine is gone.")
        return reply(request)

    with pytest.raises(BackendError):
        judged(run, ScriptedGenerator(broken))
    generator = ScriptedGenerator(reply)
    one = judged(run, generator)
    assert 1 <= len(generator.requests) < 4 and one.right.mean == 0.4
    again = ScriptedGenerator(reply)
    assert judged(run, again) == one and not again.requests
    (folder,) = run.glob("judge-*")
    assert str(folder) == one.folder and len(read_rows(folder)) == 4
    assert Manifest.read(folder).settings["judged"] == Manifest.read(run).settings
    assert (folder / TRACES).read_bytes().count(b"\n") == 4
    judged(run, again, prompt="Is {prediction} right for {query}, given {answers}?")
    assert len(list(run.glob("judge-*"))) == 2 and len(again.requests) == 4, "another prompt is another judge"


def test_what_cannot_be_judged_is_refused(tmp_path, capsys):
    bare = make_run(tmp_path / "bare", [row(Question("9", "Who knows?"), "x")])
    with raises_message(ConfigError):
        judged(bare, ScriptedGenerator(reply))
    run = a_run(tmp_path / "run")
    with raises_message(ConfigError):
        judged(run, ScriptedGenerator(reply), prompt="{gold}?")
    judged(run, ScriptedGenerator(reply))
    (folder,) = (folder for folder in run.glob("judge-*") if (folder / TRACES).stat().st_size)
    assert main(["table", str(folder)]) == 2
    assert "holds a judge's verdicts" in capsys.readouterr().err
    with raises_message(ConfigError):
        judge(run, lambda prompt: "yes", prompt="gone")


def test_from_python_every_run_is_judged_by_a_model_of_ones_own(tmp_path):
    runs = {name: a_run(tmp_path / name) for name in ("a", "b")}
    verdicts = judge(runs, lambda prompt: "Yes.")
    assert {name: one.right.mean for name, one in verdicts.items()} == {"a": 0.8, "b": 0.8}


def test_verdicts_on_answers_that_were_made_anew_do_not_count(tmp_path):
    run = a_run(tmp_path / "run")
    assert judged(run, ScriptedGenerator(reply)).right.mean == 0.4
    (run / TRACES).unlink()
    make_run(run, [row(question, "someone else") for question in QUESTIONS[:5]])
    generator = ScriptedGenerator(reply)
    one = judged(run, generator)
    assert one.right.mean == 0 and len(generator.requests) == 4, "one had this answer before"
