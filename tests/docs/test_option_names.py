"""Each name of another toolkit in the guide is taken or answered with ours, bare and in its section."""

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
from tests.messages import raises_message

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
def test_a_name_of_another_toolkit_leads_to_ours(method: str, theirs: str, ours: str, typed: bool) -> None:
    for option in (theirs, f"{method}.{theirs}"):
        message = reply(method, option)
        taken = typed and (not message or f"option '{ours}': expected" in message)
        assert taken or re.search(rf"'{ours}'|--{ours}\b", message), f"{option}: {message}"


PIPELINE = """
_target_: autorag_research.pipelines.generation.ircot.IRCoTPipelineConfig
name: ircot_bm25
llm: Qwen/Qwen3-4B
retrieval_pipeline_name: wiki-bm25
k_per_step: 4
max_steps: 6
paragraph_budget: 10
batch_size: 16
stop_sequence: "\\nQuestion:"
max_retries: 3
"""


def test_a_pipeline_of_autorag_research_is_answered_with_the_file_to_write(tmp_path: Path) -> None:
    file = tmp_path / "theirs.yaml"
    file.write_text(PIPELINE)
    with raises_message(ConfigError) as error:
        parse(RunConfig, ["--config", str(file), "--questions", "q.jsonl"], "test", "a test")
    _, text, _ = re.split(r"write:\n\n|\n\n(?=\'retriever)", str(error.value))
    file.write_text(text)
    config = parse(RunConfig, ["--config", str(file), "--questions", "q.jsonl"], "test", "a test")
    ircot = config.of("ircot")
    assert (config.method, config.batch_size, config.model.name) == (["ircot"], 16, "Qwen/Qwen3-4B")
    assert config.retriever.index == ["wiki-bm25"]
    assert ircot == IRCoTConfig(k_per_step=4, max_steps=6, paragraph_budget=10, stop_sequence="\nQuestion:")
    file.write_text(PIPELINE.replace("ircot", "et2rag"))
    with raises_message(ConfigError):
        parse(RunConfig, ["--config", str(file), "--questions", "q.jsonl"], "test", "a test")
