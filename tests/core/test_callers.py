"""Messages name options as their reader writes them: as a shell does, or as Python does in programs."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import training.retriever_config
import training.rounds
from corag import (
    CoRAGConfig,
    IRCoTConfig,
    ModelConfig,
    OneStepConfig,
    build_index,
    open_index,
    open_model,
    run,
)
from corag.cli.main import main
from corag.core.callers import in_python
from corag.core.command_line import parse
from corag.core.errors import ConfigError
from corag.core.types import Question, TokenUsage
from eval.api import Results
from eval.experiment.run import RunConfig
from eval.exporting import ExportConfig
from eval.sweeps.sweep import SweepConfig
from tests.eval.runs import make_run, row
from tests.messages import messages, raises_message

ASKED = [("Who wrote Emma?", "Jane Austen")]
LOADED = (ExportConfig, SweepConfig, training.retriever_config, training.rounds)  # options of the messages


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("choose another --out, or remove it.", "choose another out=, or remove it."),
        ("Replace it with --overwrite true.", "Replace it with overwrite=True."),
        ("Lacks 2 (--shard 1/2): run it.", 'Lacks 2 (shard="1/2"): run it.'),
        ("add --corag.rank_by vote, or leave it.", 'add CoRAGConfig(rank_by="vote"), or leave it.'),
        (
            "choose --corag.rank_by refusals or --corag.rank_by vote.",
            'choose CoRAGConfig(rank_by="refusals") or CoRAGConfig(rank_by="vote").',
        ),
        (
            "choose --corag.rank_by refusals or leave it.",
            'choose CoRAGConfig(rank_by="refusals") or leave it.',
        ),
        (
            "write --model.backend server --model.urls http://localhost:8000.",
            'write open_model(backend="server", urls="http://localhost:8000").',
        ),
        ("--model.tokenizer counts them.", "open_model(tokenizer=...) counts them."),
        ("option 'corag.stop': expected text", "option CoRAGConfig(stop=...): expected text"),
        ("unknown option 'ircot.kk': so", "unknown option IRCoTConfig(kk=...): so"),
        ("name it with --retriever.url.", "name it with open_index(url=...)."),
        ("the same --retriever options.", "the same open_index(...) options."),
        ("add --workers ray.", "add ray_workers(...)."),
        ("Name others with --dev.questions.", "Name others with dev=."),
        ("make it with 'corag index X --out Y', or", "make it with 'corag index X --out Y', or"),
        ("write corag rounds --out FOLDER.", "write corag rounds --out FOLDER."),
        ("pip install --no-deps x, or start it with --logprobs-mode raw.",) * 2,
        ("start it with vllm serve NAME --seed 1, or ask again.",) * 2,
        ("the question 'what's git --limit 5 for?' failed",) * 2,
        (
            'of "git --limit 5", `--seed 1` and its runs\' --out',
            'of "git --limit 5", `--seed 1` and its runs\' out=',
        ),
        ("'corag.baselines' and 'x.yaml' are no options.",) * 2,
    ],
)
def test_options_are_written_as_in_python(text: str, expected: str) -> None:
    assert in_python(text) == expected


def test_no_message_on_file_keeps_a_shells_option_in_python() -> None:
    """But commands, which are typed into a shell, and options of other programs."""
    programs = "multi_gpu|num_processes|nproc_per_node|logprobs-mode|served-model-name|presets|help"
    others = rf"'[^']*'|`[^`]*`|corag [a-z]+ .*|--- \w+|--({programs})"
    left = {
        text
        for tests in messages().values()
        for texts in tests.values()
        for text in texts
        if re.search(r"(?<!\w)--\w", re.sub(others, "", in_python(text)))
    }
    assert not left


@pytest.mark.usefixtures("called_from_python")
@pytest.mark.parametrize(
    "wrong",
    [
        lambda out: CoRAGConfig(max_hop=2),
        lambda out: OneStepConfig(kk=3),
        lambda out: OneStepConfig(zzz=3),
        lambda out: CoRAGConfig(preset="small"),
        lambda out: CoRAGConfig(strategy="adaptive"),
        lambda out: IRCoTConfig(preset="paper"),
        lambda out: ModelConfig(backend="openai"),
        lambda out: open_model(tempurature=0.2),
        lambda out: open_index("indexes/none", urll="http://localhost:1"),
        lambda out: build_index("docs", out=out, overwrit=True),
        lambda out: run(ASKED, ["closed_book"], ModelConfig(), out=out, n=4),
        lambda out: run(ASKED, ["closed_book"], ModelConfig(), out=out, limt=4),
        lambda out: run(ASKED, ["closed_book"], ModelConfig(), out=out, top_title={"k": 2}),
        lambda out: run(ASKED, ["corag"], ModelConfig(), out=out, corag={"max_hop": 2}),
        lambda out: Results({"mine": out}).table(basline="x"),
    ],
)
def test_wrong_names_and_values_in_python(wrong: Callable[[Any], object], tmp_path: Path) -> None:
    with raises_message(ConfigError):
        wrong(tmp_path)


@pytest.mark.usefixtures("called_from_python")
def test_what_users_wrote_stays_in_tables(tmp_path: Path) -> None:
    """Names of runs, questions and replies are drawn as they are; sentences are as Python has them."""
    usage = {"reader": TokenUsage(1, 10, 2, 10, 2, estimated=3)}
    asked = Question("q", "What is --seed 1?", ("a",))
    rows = [row(asked, reply) for reply in ("use --limit 5", "a")]
    runs = {
        "with --seed 1": make_run(tmp_path / "one", [replace(rows[0], usage=usage)]),
        "other": make_run(tmp_path / "other", [rows[1]], {"seed": 1}),
    }
    compared = Results(runs).compare("other", disagreements=1)
    text = str(compared)
    assert all(each in text for each in ("│ with --seed 1 ", "q: What is --seed 1?", "use --limit 5"))
    assert len({len(line) for line in text.splitlines()[:4]}) == 1, "no column is shifted"
    for form in (text, str(compared.to_json()), Results(runs).to_latex(), Results(runs).to_markdown()):
        assert "--model.tokenizer" not in form and "tokenizer=" in form


@pytest.mark.usefixtures("called_from_python")
def test_options_of_a_file_are_named_as_it_has_them(tmp_path: Path) -> None:
    file = tmp_path / "c.yaml"
    file.write_text("ircot:\n  budget_polcy: x\n")
    with raises_message(ConfigError):
        parse(RunConfig, ["--config", str(file), "--method", "ircot"], "corag run", "Answer questions.")


def test_a_command_says_it_as_a_shell_does(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("CORAG_CALLED_FROM")
    assert main(["run", "--questions", "q.jsonl", "--corag.max_hop", "2"]) == 2
    assert "'corag.max_hop': did you mean 'corag.max_hops'?" in capsys.readouterr().err
    with pytest.raises(ConfigError, match=r"did you mean CoRAGConfig\(max_hops=\.\.\.\)\?"):
        CoRAGConfig(max_hop=2)
