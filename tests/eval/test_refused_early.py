"""A run of other settings is refused before a model opens, which takes minutes where it is large."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from corag.cli.main import main
from corag.core.command_line import parse
from corag.core.runs.folder import RunFolder
from eval.experiment.run import RunConfig, method_settings


@pytest.mark.parametrize(
    ("changes", "difference"),
    [
        (["--seed", "1"], "seed: 0 -> 1"),
        (["--closed_book.max_answer_tokens", "5"], "closed_book.max_answer_tokens: 8 -> 5"),
        (["--seed", "0"], 'model: "vllm:of before" -> "transformers"'),
    ],
)
def test_a_run_of_other_settings_is_refused_before_a_model_opens(
    changes: list[str], difference: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    questions = tmp_path / "questions.jsonl"
    questions.write_text(
        json.dumps({"id": "q1", "question": "Who wrote Emma?", "answers": ["Austen"]}) + "\n"
    )
    words = ["--questions", str(questions), "--method", "closed_book", "--out", str(tmp_path / "runs")]
    words += ["--closed_book.max_answer_tokens", "8", "--model.backend", "transformers"]
    settings = method_settings(parse(RunConfig, words, "corag run", ""), "closed_book")
    model = "vllm:of before" if changes == ["--seed", "0"] else "transformers:of before"
    with RunFolder(tmp_path / "runs/closed_book", {**settings, "model": model, "retriever": ""}, {}):
        pass
    assert main(["run", *words, *changes]) == 2
    said = capsys.readouterr().err
    assert difference in said and "opening" not in said and "is open" not in said
    # What is to be replaced is not refused: the next thing that is wrong is.
    assert main(["run", *words, *changes, "--overwrite", "true", "--model.name", str(tmp_path)]) == 2
    assert "no model folder" in capsys.readouterr().err
