"""Each name of another toolkit in the guide is taken or refused, as the guide says."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from corag.core.command_line import parse
from corag.core.errors import ConfigError
from eval.experiment.registry import METHODS
from eval.experiment.run import RunConfig
from ircot.method import IRCoTConfig

PAGE = Path(__file__).parents[2] / "docs" / "guides" / "option_names.md"
METHOD_OF = {
    "IRCoT": "ircot",
    "CoRAG": "corag",
    "AutoRAG": "ircot",
    "FlashRAG": "ircot",
    "Search": "search_o1",
}


def rows() -> Iterator[tuple[str, str, str, bool]]:
    """Yield (method, their name, our option, whether theirs may be typed) of the page's tables.

    Those of training are tried in tests/training/test_launches.py.
    """
    method = ""
    for line in PAGE.read_text(encoding="utf-8").splitlines():
        if line.startswith("## "):
            of_training = line.startswith("## transformers")
            method = (
                "" if of_training else next(METHOD_OF[key] for key in METHOD_OF if line[3:].startswith(key))
            )
        row = re.match(r"\| (.+?) \| (.+?) \| (.*?) ?\|", line)
        ours = re.match(r"`--([a-z_0-9.]+)", row[2]) if row else None
        if not method or row is None or ours is None or ours[1] == "method":
            continue
        section = ours[1].partition(".")[0]
        for theirs in re.findall(r"`([a-z_]+)`", row[1]):
            yield section if section in METHODS else method, theirs, ours[1], row[3] == "yes"


ROWS = list(rows())


def reply(method: str, option: str) -> str:
    """Return the message about an option, "" if it is one."""
    words = ["--dataset", "musique", "--questions", "q.jsonl", "--method", method, f"--{option}", "4"]
    try:
        parse(RunConfig, words, "run", "a run")
    except ConfigError as error:
        return str(error)
    return ""


def test_the_page_has_the_rows_that_are_tried() -> None:
    assert len(ROWS) >= 40


@pytest.mark.parametrize(("method", "theirs", "ours", "typed"), ROWS)
def test_another_toolkits_name_is_taken_as_the_page_says(
    method: str, theirs: str, ours: str, typed: bool
) -> None:
    messages = [reply(method, option) for option in (theirs, f"{method}.{theirs}")]
    taken = [not each or f"option '{ours}' is" in each for each in messages]
    assert any(taken) == typed, messages


def test_the_pipeline_that_the_page_shows_in_our_form_is_taken(tmp_path: Path) -> None:
    (text,) = re.findall(r"```yaml\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    (file := tmp_path / "ours.yaml").write_text(text)
    config = parse(RunConfig, ["--config", str(file), "--questions", "q.jsonl"], "test", "a test")
    assert (config.method, config.batch_size, config.model.name) == (["ircot"], 16, "Qwen/Qwen3-4B")
    assert config.retriever.index == ["wiki-bm25"]
    assert config.of("ircot") == IRCoTConfig(k_per_step=4, max_steps=6)
