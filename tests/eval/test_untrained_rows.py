"""What tables say beside a row: its model was trained for other prompts, its budget allowed no call."""

import json
from dataclasses import replace

from corag.baselines.one_step import OneStepConfig
from corag.chains.comparison import ComputedAnswer
from corag.chains.config import CoRAGConfig
from corag.chains.method import CoRAGAnswer
from corag.cli.main import main
from corag.core.runs.manifest import Manifest
from corag.core.tools import GenerateStep
from corag.core.types import TokenUsage
from eval.experiment.run import RunConfig, run_environment
from eval.tables.cautions import find_untrained, training_note
from tests.eval.runs import QUESTIONS, make_run, row, run_of

READER, CHAIN = OneStepConfig().qa_template().identity, CoRAGConfig().prompt("final_answer").identity
TRAINED = {"corag": [CHAIN]}
MODEL = {"name": "model", "adapter": "adapters/mine"}


def runs(folder):
    """A run that asks what its adapter was taught, one that does not, and one without an adapter."""
    start = {"model": MODEL, "trained_for": TRAINED}
    return [
        run_of(folder / "chains", range(12), {"method": "corag", "prompts": [CHAIN]}, **start),
        run_of(folder / "reader", range(6), {"prompts": [READER]}, **start),
        run_of(folder / "base", range(3), {"prompts": [READER]}),
    ]


def test_the_mark_and_the_sentence_are_printed_and_in_json(tmp_path, capsys):
    folders = [str(folder) for folder in runs(tmp_path)]
    assert main(["table", *folders, "--json"]) == 0
    *lines, last = capsys.readouterr().out.splitlines()
    rows = {
        name: next(line for line in lines if f"│ {name}" in line) for name in ("chains", "reader", "base")
    }
    assert {name: "†" in line for name, line in rows.items()} == {
        "chains": False,
        "reader": True,
        "base": False,
    }
    said = (
        "† reader: the adapter 'adapters/mine' was trained for corag, and for no other prompts, so such a "
        "row may be far below what its method can do with a model trained for it; that was not measured."
    )
    assert said in lines
    conditions = json.loads(last)["conditions"]
    assert conditions["trained_for_others"] == {"reader": ["corag"]} and conditions["training_note"] == said
    assert main(["table", folders[0], folders[2], "--json"]) == 0
    printed = capsys.readouterr().out
    assert "†" not in printed and "trained_for_others" not in printed


def test_a_run_notes_what_its_adapter_was_trained_for(tmp_path):
    def noted(**model):
        config = RunConfig(method=["closed_book"], questions="q.jsonl", model=model)
        return run_environment(config, {"method": "one_step", "retriever": ""}, None)["trained_for"]

    assert list(noted(adapter="default")) == ["corag"] and noted() == {}
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "training.json").write_text('{"somebody": "else"}')
    assert noted(name=str(mine)) == {}, "a file of that name that training here did not write"
    manifest = {"settings": {"base": {"name": "x", "digest": "y"}}, "result": {"trained_for": TRAINED}}
    (mine / "training.json").write_text(json.dumps(manifest))
    assert noted(name=str(mine)) == TRAINED, "a whole model that was fine-tuned"
    (mine / "training.json").rename(mine / "merged_training.json")
    assert noted(name=str(mine)) == TRAINED, "a model into which an adapter was folded"
    both = noted(name=str(mine), adapter="default")
    assert CHAIN in both["corag"] and len(both["corag"]) > 1


def test_without_hops_chains_ask_for_the_final_answer_alone(tmp_path):
    asked = CoRAGConfig(max_hops=0).templates()
    assert [each.identity for each in asked] == [CHAIN]
    start = {"model": MODEL, "trained_for": TRAINED}
    with_hops = [each.identity for each in CoRAGConfig(max_hops=1).templates()]
    folders = {
        "none": run_of(tmp_path / "none", [], {"prompts": [CHAIN]}, **start),
        "one": run_of(tmp_path / "one", [], {"prompts": with_hops}, **start),
    }
    found = find_untrained({name: Manifest.read(folder) for name, folder in folders.items()})
    assert list(found) == ["one"], "what was trained without chains was not trained to ask sub-queries"


def test_an_own_method_is_not_known_to_be_what_was_trained_for(tmp_path):
    start = {"model": MODEL, "trained_for": TRAINED}
    mine = run_of(tmp_path / "mine", [], {"method": "mine", "code": "0" * 16, "prompts": []}, **start)
    other = run_of(tmp_path / "other", [], {"method": "none", "prompts": []}, **start)
    manifests = {"mine": Manifest.read(mine), "other": Manifest.read(other)}
    assert find_untrained(manifests) == {"mine": ("corag",)}, "one that asks nothing was not asked otherwise"
    assert "was trained for corag, and for no other prompts" in training_note(
        find_untrained(manifests), manifests
    )


def test_a_budget_that_allowed_no_call_is_told(tmp_path, capsys):
    """A row of zeros else looks like a method that answers nothing right."""
    asked, unasked, fewer = (row(QUESTIONS[n], "") for n in range(3))
    fewer = replace(fewer, answer=replace(fewer.answer, stopped="budget"))
    unasked = replace(fewer, question=unasked.question, usage={}, steps=())
    assert main(["table", str(make_run(tmp_path / "poor", [asked, unasked, fewer])), "--json"]) == 0
    *lines, last = capsys.readouterr().out.splitlines()
    said = "poor: the budget allowed no call of the model for 1 of 3 questions."
    assert said in lines and json.loads(last)["runs"]["poor"]["unasked"] == 1
    assert json.loads(last)["runs"]["poor"]["cut_by_budget"] == 1
    assert "the budget ended or narrowed its work on 1 of 3 questions" in " ".join(lines)
    assert main(["table", str(make_run(tmp_path / "rich", [asked]))]) == 0
    assert "allowed no call" not in capsys.readouterr().out


def test_answers_that_rules_computed_are_counted(tmp_path, capsys):
    """A row says how often the rule decided, and how often rightly."""
    rule = ComputedAnswer("earlier birth", ("a", "b"), ("1", "2"), "a")
    answers = [(QUESTIONS[0].answers[0], rule), ("x", rule), ("x", None)]
    rows = [
        replace(row(question, text), answer=CoRAGAnswer(text, comparison=comparison))
        for question, (text, comparison) in zip(QUESTIONS, answers, strict=False)
    ]
    assert main(["table", str(make_run(tmp_path / "ruled", rows)), "--json"]) == 0
    *lines, last = capsys.readouterr().out.splitlines()
    assert "ruled: rules computed 2 of 3 answers (compare rules); 1 of these are right (EM)." in lines
    figures = json.loads(last)["runs"]["ruled"]
    assert (figures["computed_answers"], figures["computed_right"]) == (2, 1)


def test_thoughts_that_reached_their_budget_are_told(tmp_path, capsys):
    asked = row(QUESTIONS[0], "")
    (step,) = (each for each in asked.steps if isinstance(each, GenerateStep))
    cut = replace(asked, steps=(replace(step, thinking=TokenUsage(generated=9), thoughts_cut=2),))
    assert main(["table", str(make_run(tmp_path / "deep", [cut])), "--json"]) == 0
    *lines, last = capsys.readouterr().out.splitlines()
    assert any("deep: 2 of the model's thoughts reached the end of their budget" in line for line in lines)
    assert json.loads(last)["runs"]["deep"]["thoughts_cut"] == 2
