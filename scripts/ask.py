"""Answer one question and show every step as it happens.

corag ask "Which river flows through the birthplace of Mara Velden?" --retriever.index indexes/world-bm25
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from dataclasses import asdict, dataclass

from rich.console import Console
from rich.markup import escape

from core.errors import ConfigError
from core.records import Row
from core.runner import answer_question
from core.tools import GenerateStep, SearchStep, Step, Tools
from core.types import Question
from scripts.backends import Setup, open_backends
from scripts.methods import bind


@dataclass(frozen=True)
class Config(Setup):
    """Options of 'corag ask'.

    Attributes:
        question: the question.
        show_text: how many characters of each passage to show; 0 for titles only.
        json: print the result as one line of JSON at the end.
    """

    question: str = ""
    show_text: int = 120
    json: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.question.strip():
            raise ConfigError('the question is empty: write it as corag ask "Who ...?".')


def main(config: Config) -> int:
    """Answer with each method in turn; return 1 if one failed."""
    return asyncio.run(_ask(config))


async def _ask(config: Config) -> int:
    console = Console(highlight=False)
    question = Question("asked", config.question)
    failed = False
    async with open_backends(config) as (generator, retriever):
        for name in config.method:
            console.rule(name)
            tools = Tools(
                question,
                generator,
                retriever,
                config.seed,
                config.budget,
                watch=step_printer(console, config.show_text),
            )
            row = await answer_question(question, bind(name, config), tools)
            show_result(console, row)
            failed |= bool(row.error)
            if config.json:
                print(json.dumps({"method": name, "answer": row.answer and asdict(row.answer), "error": row.error}))
    return int(failed)


def step_printer(console: Console, show_text: int) -> Callable[[Step], None]:
    """Return a watcher that prints each step of a question: searches with what they found, texts with what they cost."""

    def show(step: Step) -> None:
        if isinstance(step, SearchStep):
            console.print("[bold]search[/bold] " + (escape(repr(step.query)) if step.query else "skipped: empty query"))
            for rank, hit in enumerate(step.hits, 1):
                text = " ".join(hit.passage.text.split())
                clipped = f": {text[:show_text]}{'…' if len(text) > show_text else ''}" if show_text else ""
                console.print(f"  {rank:>2}. {hit.passage.title} ({hit.score:.3f}){clipped}", style="dim", markup=False)
        elif isinstance(step, GenerateStep):
            for text in step.texts:
                console.print(f"[bold]{step.role}[/bold] ", end="")
                console.print(text.strip() or "(nothing)", markup=False)
            if step.shortening:
                dropped = ", ".join(f"{count} {kind}(s)" for kind, count in step.shortening.dropped)
                console.print(
                    f"  prompt shortened: {dropped or 'no segment'} dropped, {step.shortening.cut_tokens} tokens cut",
                    style="yellow",
                )

    return show


def show_result(console: Console, row: Row) -> None:
    """Print the answer, why the method stopped and what it cost."""
    if row.answer is None:
        console.print(f"failed: {row.error}", style="red", markup=False)
        return
    usage = row.total_usage
    console.print(f"[bold green]answer[/bold green] {escape(row.answer.text)}")
    console.print(
        f"{row.answer.steps} steps, stopped: {row.answer.stopped}; {len(row.answer.passage_ids)} passages; {usage.calls} calls; "
        f"{usage.total} tokens ({usage.computed} computed); {row.seconds:.1f} s",
        style="dim",
    )
    console.print("passages: " + " ".join(row.answer.passage_ids), style="dim")
