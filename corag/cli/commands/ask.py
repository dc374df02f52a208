"""Answer one question, or, without one, question after question on one engine.

corag ask "Which river flows through the birthplace of Mara Velden?" --index indexes/world-bm25
corag ask "..." --method corag --corag.strategy tree --index indexes/world-bm25
corag ask --index indexes/world-bm25

The chain or the search tree is drawn at the end. A line on standard error says every 30 s how far it is.
"""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any

from rich.console import Console
from rich.live import Live
from rich.text import Text

from corag.cli.result import CommandResult
from corag.core.errors import ConfigError
from corag.core.language.text import printable
from corag.core.pace import clock, reporting
from corag.core.protocols import Generator, Retriever
from corag.core.system.installation import missing
from corag.core.system.machine import visible_gpus
from corag.core.tools import Tools
from corag.core.types import Question
from corag.generation.config import Backend, ModelConfig
from eval.api.ask import COLUMNS, Answered, answer_one
from eval.experiment.backends import check_model, check_setup, open_backends
from eval.experiment.progress import QUIET_SECONDS
from eval.experiment.prompts import AskSetup
from eval.experiment.registry import bind
from eval.tables.printing import wide_console


@dataclass(frozen=True)
class AskOptions(AskSetup):
    """Options of 'corag ask'."""

    question: str = ""
    """the question; without one, questions are asked for in the terminal until an empty line."""

    def settled_model(self) -> ModelConfig:
        """Return the model's options as they are: the command chooses the engine that answers sooner."""
        return self.model


def main(config: AskOptions) -> CommandResult:
    """Answer with each method in turn. The status is 1 if one failed."""
    if not (config.question.strip() or sys.stdin.isatty()):
        config = replace(config, question=piped_question())
    check_setup(config)
    if config.model.backend == "auto":
        config = replace(config, model=replace(config.model, backend=sooner_backend(config)))
    return asyncio.run(_ask(config))


def piped_question() -> str:
    """Return the question that standard input holds. ConfigError unless it is exactly one."""
    lines = [line.strip() for line in sys.stdin if line.strip()]
    if len(lines) != 1:
        raise ConfigError(f"{len(lines)} questions on standard input, not one: corag run --questions FILE.")
    return lines[0]


def sooner_backend(config: AskOptions) -> Backend:
    """Choose what answers sooner, its start included, and say so if it is not vLLM.

    Seen on two cores without a GPU, with the default model: transformers starts in 11 s and vLLM in 55. One
    greedy answer takes 19 to 34 s with the former and 76 with the latter; best of four chains 87 and 90.
    """
    model = config.model.with_engine()
    if model.backend == "transformers" or missing(["torch"]):
        return model.backend
    wide = any(config.of(name).chains_at_once > 1 for name in config.method)
    if not config.question or len(config.method) > 1 or wide or visible_gpus():
        return "vllm"
    print(
        "corag: transformers answers a single question sooner than vLLM here, which takes longer to start "
        "(model.backend=vllm overrules).",
        file=sys.stderr,
    )
    return "transformers"


async def _ask(config: AskOptions) -> CommandResult:
    console = wide_console(COLUMNS)
    records: list[dict[str, Any]] = []
    async with open_backends(config) as (generator, retriever):
        for name in config.method:
            check_model(name, config.of(name), config.model, generator)
        if len(config.method) == 1:  # of several each has a heading
            print(f"corag: answering by {config.method[0]} ('method' takes another).", file=sys.stderr)
        for question in questions(config.question, console):
            for name in config.method:
                result = await answer_and_show(name, question, config, console, generator, retriever)
                answer = result.answer and asdict(result.answer)
                citations = [asdict(claim) for claim in result.citations]
                records.append(
                    {
                        "method": name, "question": question, "answer": answer, "citations": citations,
                        "error": result.error,
                    }
                )  # fmt: skip
    return CommandResult(int(any(record["error"] for record in records)), records)


def questions(question: str, console: Console) -> Iterator[str]:
    """Yield the question of the command line; without one, those that are typed, to an empty line."""
    if question.strip():
        yield question
        return
    with suppress(ImportError):
        import readline  # noqa: F401 - which gives the prompt its editing and history
    console.print("Ask. An empty line or Ctrl-D ends.", style="dim")
    while question := typed_line():
        yield question


def typed_line() -> str:
    """Ask for a line; "" at Ctrl-D and Ctrl-C."""
    # asyncio's own handler would only note Ctrl-C, and the prompt would go on waiting.
    handler = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        return input("> ").strip()
    except (EOFError, KeyboardInterrupt):
        print()
        return ""
    finally:
        signal.signal(signal.SIGINT, handler)


async def answer_and_show(
    name: str,
    question: str,
    config: AskOptions,
    console: Console,
    generator: Generator,
    retriever: Retriever | None,
) -> Answered:
    """Answer with one method, and show what led to the answer, the answer, its sources and its cost."""
    asked_question = Question("asked", question)
    refusal = asdict(config.of(name)).get("refusal", "")
    if len(config.method) > 1:
        console.print(f"── {name}", style="bold")

    tools = Tools(asked_question, generator, retriever, config.seed, config.budget)
    with (
        growing(console, tools),
        reporting(progress_line(name, tools), partial(print, file=sys.stderr, flush=True), QUIET_SECONDS),
    ):
        answer = await answer_one(
            name, asked_question, bind(name, config), tools, retriever, refusal,
            cites=config.of(name).cites,
        )  # fmt: skip
    console.print(answer.tree())
    for line in answer.ending():
        console.print(line, soft_wrap=True)
    return answer


@contextmanager
def growing(console: Console, tools: Tools) -> Iterator[None]:
    """Show an answer in a terminal while it is written, until the block ends."""
    if not console.is_terminal:
        yield
        return
    with Live(
        console=console, auto_refresh=False, transient=True, vertical_overflow="visible",
        redirect_stderr=sys.stderr.isatty(),
    ) as live:  # fmt: skip
        tools.watch_answer = lambda text: live.update(Text(printable(text)), refresh=True)
        yield


def progress_line(name: str, tools: Tools) -> Callable[[float], str]:
    """Return what says how far an answer is: on CPUs it may take minutes."""

    def line(seconds: float) -> str:
        usage = tools.spent
        calls = f"{usage.calls:,} call{'s'[: usage.calls != 1]}"
        return f"corag: {name}: {calls} answered, {usage.total:,} tokens, {clock(seconds)} so far"

    return line
