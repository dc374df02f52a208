"""From nothing to the first table: a world, its indexes, a model, one answer with its chain, four methods.

corag quickstart
corag quickstart --limit 30 --model.backend transformers

Everything lies in one folder afterwards. Run it again: it goes on where it was. All four methods ask one
model, the small one with an adapter that comes with the package, which is trained for CoRAG's prompts. The
last row is its fair neighbour: one step with an adapter that was trained for it, on the same questions.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Annotated

from annotated_types import Ge, Le

from corag.baselines.closed_book import ClosedBookConfig, closed_book
from corag.baselines.one_step import OneStepConfig, one_step
from corag.chains.config import CoRAGConfig
from corag.chains.method import corag
from corag.cli.result import CommandResult
from corag.core.errors import BackendError, ConfigError
from corag.core.method import MethodConfig
from corag.core.options.classes import Options
from corag.core.options.names import LocalPath
from corag.core.system.installation import missing, require
from corag.generation.config import ModelConfig
from corag.generation.engines import ENGINES
from eval.api.ask import COLUMNS, AnyMethod, ask
from eval.api.opened import Index, Model, open_index, open_model
from eval.api.results import Results, report, run
from eval.datasets import load_questions
from eval.datasets.world import write_world
from eval.experiment.opening import ENGINE_LOG, log_to
from eval.tables.printing import wide_console
from ircot import IRCoTConfig, ircot

PASSAGES, TRAIN, DEV, TEST = 1000, 100, 30, 30
PROMPT_PASSAGES = 6  # by one-step retrieval and by IRCoT
Rows = Mapping[str, tuple[AnyMethod, MethodConfig]]
FAIR = "one_step_trained"
INDEX = (sys.executable, "-m", "corag.cli", "index")
NEXT = """\
Next (in a clone first: source .venv/bin/activate):
  corag ask --index {indexes} --model.adapter default --method corag --corag.preset small_model \\
    --corag.max_hops 4 --corag.stop learned
  corag index FOLDER --out indexes/mine      # your own documents, of any kind"""


@dataclass(frozen=True)
class QuickstartOptions(Options):
    """Options of 'corag quickstart'."""

    out: LocalPath = "quickstart"
    """the folder for all that it makes."""

    limit: Annotated[int, Ge(1), Le(TEST)] = 20
    """how many of the world's 30 test questions each method answers."""

    model: ModelConfig = field(default_factory=lambda: ModelConfig(backend="auto"))
    """the engine of the small model: its backend, memory and the like."""

    def __post_init__(self) -> None:
        if self.model.name != "default" or self.model.adapter or self.model.urls:
            raise ConfigError(
                "the quickstart asks the small model and the adapters that come with the package: leave out "
                "model.name, model.adapter and model.urls, and ask other models with 'corag run'."
            )


def main(config: QuickstartOptions) -> CommandResult:
    """Perform it, and say how many seconds it took to the first answer and to the end."""
    # scripts/quickstart.sh installs first, and the seconds count from there.
    started_at = float(os.environ.get("CORAG_BEGUN", time.time()))
    out, console = Path(config.out), wide_console(COLUMNS)
    require("the quickstart", "sentence_transformers", "faiss", "peft")
    log_to(out / ENGINE_LOG)
    write_world(out / "world", passages=PASSAGES, train=TRAIN, dev=DEV, test=TEST)
    with ExitStack() as stack:
        builder = stack.enter_context(ThreadPoolExecutor(1))  # one after the other, beside the engine's start
        building = [builder.submit(build_index, out, kind) for kind in ("bm25", "dense")]
        with open_small_model(config.model, "default") as model:
            with open_index(building[0].result()) as lexical:  # the first answer does not wait for the other
                question, *_ = load_questions(out / "world/dev.jsonl")
                console.print(ask(question, corag, model, lexical, corag_config()))
            console.print(f"First answer after {time.time() - started_at:.0f} s.\n", style="bold")
            index = stack.enter_context(open_index(*(indexes := [built.result() for built in building])))
            runs = answer_all(METHODS, model, index, config).runs
        # In an engine of its own, which opens when the first has given its memory back.
        again = config.model if model.options.backend == "vllm" else model.options
        with open_small_model(again, "one_step") as tuned_model:
            runs |= answer_all({FAIR: METHODS["one_step"]}, tuned_model, index, config).runs
        results = Results(runs, load_questions(out / "world/test.jsonl")[: config.limit])
        print(results.compare(baseline=FAIR))
        page = report(results, out / "report.html", index, baseline=FAIR)
    seconds = time.time() - started_at
    print(f"Every answer with its chain, to look at in a browser: {page}")
    print(NEXT.format(indexes=",".join(indexes)))
    console.print(f"Done after {seconds:.0f} s.", style="bold")
    return CommandResult(0, [{"report": str(page), "seconds": round(seconds, 1)}])


def build_index(out: Path, kind: str) -> str:
    """Build an index of the world in a process beside this one, which opens its model; return its folder.

    Raises :class:`BackendError` with what the process printed if it failed.
    """
    folder = str(out / kind)
    arguments = [str(out / "world/corpus.jsonl"), "--kind", kind, "--out", folder]
    ended = subprocess.run([*INDEX, *arguments], capture_output=True, text=True, check=False)
    if ended.returncode:
        raise BackendError(f"the index {folder} was not built: {ended.stderr.strip()}")
    return folder


def open_small_model(options: ModelConfig, adapter: str) -> Model:
    """Open the small model with an adapter; by transformers where vLLM was not named and does not start.

    vLLM takes 4 GB for its cache at the start, which may be gone although they were free a minute before.
    """
    try:
        return open_model(**asdict(options) | {"adapter": adapter})
    except BackendError as error:
        if options.backend != "auto" or missing(ENGINES["transformers"].packages):
            raise
        print(
            f"corag: {error} The quickstart goes on with transformers, which needs less memory "
            "(model.backend=vllm does not).",
            file=sys.stderr,
        )
    return open_small_model(replace(options, backend="transformers"), adapter)


def corag_config() -> CoRAGConfig:
    """As the adapter was trained (training/configs/world_rounds.yaml)."""
    return CoRAGConfig(preset="small_model", max_hops=4, stop="learned")


# With the prompts of chat models, sized for two slow cores.
METHODS: Rows = {
    "closed_book": (closed_book, ClosedBookConfig(max_answer_tokens=16)),
    "one_step": (one_step, OneStepConfig(k=PROMPT_PASSAGES, max_answer_tokens=16)),
    "ircot": (
        ircot,
        IRCoTConfig(
            k_per_step=2,
            max_steps=5,
            paragraph_budget=PROMPT_PASSAGES,
            max_thought_tokens=40,
            max_answer_tokens=16,
        ),
    ),
    "corag": (corag, corag_config()),
}


def answer_all(methods: Rows, model: Model, index: Index, config: QuickstartOptions) -> Results:
    """Answer the first test questions with some methods."""
    out = Path(config.out)
    return run(
        out / "world/test.jsonl", methods, model, index, out=out / "runs", limit=config.limit,
        recall_at=PROMPT_PASSAGES,
    )  # fmt: skip
