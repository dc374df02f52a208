"""The table of commands. Each has a file here: parse, call a lower layer, print."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from dataclasses import dataclass
from types import ModuleType


@dataclass(frozen=True, slots=True)
class Command:
    """A sub-command; :func:`load_command` says where it is.

    Attributes:
        positional: the option that a bare argument sets; of two, the second takes the rest.
    """

    summary: str
    positional: str = ""


COMMANDS = {
    "quickstart": Command("build a small demo corpus and answer its first questions"),
    "run": Command("run one or more methods on a dataset and print the results"),
    "sweep": Command("run many settings on a dataset with one engine and print one table"),
    "ask": Command("answer a question; without one, interactively", "question"),
    "sample": Command("sample chains for training and keep the best one per question"),
    "rows": Command("convert sampled chains to training rows", "chains"),
    "pairs": Command(
        "make training pairs for retrievers: queries with positives and hard negatives", "chains"
    ),
    "train": Command("fine-tune on training rows (training/sft.py)"),
    "train distill": Command("distil a larger model, or privileged context, into a model"),
    "train encoder": Command("train the query encoder of later hops on retriever pairs"),
    "train reranker": Command("train a re-ranker (cross-encoder) on retriever pairs"),
    "rounds": Command("sample, make rows, fine-tune and decode, in one or several rounds"),
    "merge": Command("merge a LoRA adapter into its base model", "adapter"),
    "table": Command("compare finished runs in one table, or an HTML report; join shards", "runs"),
    "show": Command("show a question of a run, of sampled chains or of training rows", "folder id"),
    "export": Command("write a run as an official prediction file or TREC run", "run"),
    "push": Command("share an adapter, model, chains or run on the Hugging Face hub", "folder name"),
    "index": Command("build an index of documents or a corpus", "corpus"),
    "search": Command("search an index and show the passages", "index query"),
    "serve": Command("serve an index over HTTP", "index"),
    "serve answers": Command("serve answers over HTTP: OpenAI-compatible API, MCP, web page"),
    "world": Command("write the bundled fictional dataset: corpus, questions, demonstrations", "out"),
    "list": Command("list methods with their presets, and datasets with their scorers"),
    "doctor": Command("say what this machine lacks, or whether an index is as it was built", "indexes"),
}


def usage() -> str:
    """Return the overview that ``corag --help`` prints."""
    width = max(map(len, COMMANDS))
    lines = [f"  {name:<{width}}  {command.summary}" for name, command in COMMANDS.items()]
    return "\n".join(
        [
            "corag: retrieval-augmented question answering in many steps with local models",
            "",
            "usage: corag COMMAND [--config FILE.yaml] [--option value ...]",
            "",
            *lines,
            "",
            "'corag COMMAND --help' lists a command's options; --json prints figures as JSON at the end.",
        ]
    )


def split_command(arguments: Sequence[str]) -> tuple[str, Sequence[str]]:
    """Split a command line into the command, of one word or two, and its arguments.

    >>> split_command(["serve", "answers", "--port", "1"]), split_command(["serve", "my_index"])
    (('serve answers', ['--port', '1']), ('serve', ['my_index']))
    """
    longer = " ".join(arguments[:2])
    if longer in COMMANDS:
        return longer, arguments[2:]
    return arguments[0], arguments[1:]


def load_command(name: str) -> ModuleType:
    """Import the module of a command.

    The class that annotates the parameter of its ``main`` holds the options; what ``main`` returns is an exit
    status, or one with figures for ``--json``.
    """
    return importlib.import_module(f"corag.cli.commands.{name.replace(' ', '_')}")
