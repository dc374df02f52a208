"""Messages name options as their reader writes them: as a shell does, or as Python does in programs."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import training.experimental.pairs
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
from corag.core.errors import ConfigError
from eval.api import Results
from eval.exporting import ExportConfig
from eval.sweeps.sweep import SweepConfig
from tests.messages import messages, raises_message

ASKED = [("Who wrote Emma?", "Jane Austen")]
LOADED = (ExportConfig, SweepConfig, training.rounds, training.experimental.pairs)  # options of the messages


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("choose another --out, or remove it.", "choose another out=, or remove it."),
        ("Replace it with --overwrite true.", "Replace it with overwrite=True."),
        ("Lacks 2 (--shard 1/2): run it.", 'Lacks 2 (shard="1/2"): run it.'),
        ("add --corag.rank_by vote, or leave it.", 'add CoRAGConfig(rank_by="vote"), or leave it.'),
        ("choose --corag.rank_by refusals or vote.", 'choose CoRAGConfig(rank_by="refusals") or vote.'),
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
        ("'corag.baselines' and 'x.yaml' are no options.",) * 2,
    ],
)
def test_options_are_written_as_in_python(text: str, expected: str) -> None:
    assert in_python(text) == expected


def test_no_message_on_file_keeps_a_shells_option_in_python() -> None:
    """But commands, which are typed into a shell, and options of other programs."""
    others = r"'[^']*'|`[^`]*`|corag [a-z]+ .*|--- \w+|--(logprobs-mode|served-model-name|presets|help)"
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


def test_a_command_says_it_as_a_shell_does(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("CORAG_CALLED_FROM")
    assert main(["run", "--questions", "q.jsonl", "--corag.max_hop", "2"]) == 2
    assert "'corag.max_hop': did you mean 'corag.max_hops'?" in capsys.readouterr().err
    with pytest.raises(ConfigError, match=r"did you mean CoRAGConfig\(max_hops=\.\.\.\)\?"):
        CoRAGConfig(max_hop=2)
