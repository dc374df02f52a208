"""Answer one question and show every step: as a tree that grows in a terminal, in lines elsewhere.

corag ask "Which river flows through the birthplace of Mara Velden?" --retriever.index indexes/world-bm25
corag ask "..." --method corag --corag.strategy tree --retriever.index indexes/world-bm25
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass

from rich.console import Console
from rich.markup import escape

from core.errors import ConfigError
from core.protocols import Generator, Retriever
from core.runner import answer_question
from core.runs.rows import Row
from core.tools import GenerateStep, SearchStep, Step, Tools
from core.types import Question
from eval.experiment.backends import Setup, open_backends
from eval.experiment.drawing import Drawing, live
from eval.experiment.registry import bind


@dataclass(frozen=True)
class AskOptions(Setup):
    """Options of 'corag ask'.

    Attributes:
        question: the question.
        plain: print the steps in lines, with the passages that were found, and draw nothing.
        show_text: how many characters of each passage to show in lines; 0 for titles only.
        json: print the result as one line of JSON at the end.
    """

    question: str = ""
    plain: bool = False
    show_text: int = 120
    json: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.question.strip():
            raise ConfigError('the question is empty: write it as corag ask "Who ...?".')


def main(config: AskOptions) -> int:
    """Answer with each method in turn; return 1 if one failed."""
    return asyncio.run(_ask(config))


async def _ask(config: AskOptions) -> int:
    console = Console(highlight=False, emoji=False)  # a model's :text: is no emoji
    failed = False
    async with open_backends(config) as (generator, retriever):
        for name in config.method:
            row = await answer_and_show(name, config, console, generator, retriever)
            failed |= bool(row.error)
            if config.json:
                print(
                    json.dumps(
                        {"method": name, "answer": row.answer and asdict(row.answer), "error": row.error}
                    )
                )
    return int(failed)


async def answer_and_show(
    name: str, config: AskOptions, console: Console, generator: Generator, retriever: Retriever | None
) -> Row:
    """Answer with one method; show its steps while it works, then its result."""
    question = Question("asked", config.question)
    drawing = Drawing(config.question, getattr(config.of(name), "refusal", ""))
    console.rule(name)
    with shown(drawing, config, console) as watch:
        tools = Tools(question, generator, retriever, config.seed, config.budget, watch=watch)
        row = await answer_question(question, bind(name, config), tools)
        drawing.finish(row.answer)
    show_result(console, row)
    return row


@contextmanager
def shown(drawing: Drawing, config: AskOptions, console: Console) -> Iterator[Callable[[Step], None]]:
    """Show steps as they come: drawn in a terminal; as lines, then drawn, elsewhere; or as lines only."""
    # By itself, is_interactive is also true of a coloured pipe.
    if not config.plain and console.is_interactive and console.file.isatty():
        with live(drawing, console) as watch:
            yield watch
        return
    print_step = step_printer(console, config.show_text)

    def print_and_add(step: Step) -> None:
        print_step(step)
        drawing.add(step)

    yield print_and_add
    if not config.plain:
        console.print(drawing.finished(console))


def step_printer(console: Console, show_text: int) -> Callable[[Step], None]:
    """Return a watcher that prints searches with what they found, and texts with what their prompts lost."""

    def show(step: Step) -> None:
        if isinstance(step, SearchStep):
            console.print(
                "[bold]search[/bold] " + (escape(repr(step.query)) if step.query else "skipped: empty query")
            )
            for rank, hit in enumerate(step.hits, 1):
                text = " ".join(hit.passage.text.split())
                clipped = f": {text[:show_text]}{'…' if len(text) > show_text else ''}" if show_text else ""
                cited = hit.passage.citation
                console.print(f"  {rank:>2}. {cited} ({hit.score:.3f}){clipped}", style="dim", markup=False)
        elif isinstance(step, GenerateStep):
            for text in step.texts:
                console.print(f"[bold]{step.role}[/bold] ", end="")
                console.print(text.strip() or "(nothing)", markup=False)
            if step.shortening:
                dropped = ", ".join(f"{count} {kind}(s)" for kind, count in step.shortening.dropped)
                console.print(
                    f"  prompt shortened: {dropped or 'no segment'} dropped, {step.shortening.cut_tokens} "
                    "tokens cut",
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
        f"{row.answer.steps} steps, stopped: {row.answer.stopped}; {len(row.answer.passage_ids)} passages; "
        f"{usage.calls} calls; {usage.total} tokens ({usage.computed} computed); {row.seconds:.1f} s",
        style="dim",
    )
    console.print("passages: " + " ".join(row.answer.passage_ids), style="dim")
