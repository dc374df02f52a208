"""One training from its command line to its manifest, whichever of TRL's trainers it uses.

A program (sft.py, experimental/dpo.py, experimental/grpo.py) loads what it trains on and builds a trainer.
Everything else of a training that can be interrupted, and that notes how it was made, stands here.
"""

from __future__ import annotations

import ctypes
import json
import re
import shutil
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, Protocol, TypeVar

from corag.core.command_line import parse
from corag.core.errors import ConfigError, CoragError, DataError
from corag.core.files import write_atomically
from corag.core.json_types import to_json_types
from corag.core.option_names import Mark, marked
from corag.core.runs.environment import environment
from corag.core.runs.stamp import Stamp, refuse_differences
from corag.generation.adapters import TRAINING, adapter_folder, read_manifest
from corag.generation.models import folder_digest
from corag.generation.rendering import Renderer
from eval.experiment.opening import ENGINE_LOG, log_to, quiet
from training.config import WATCHING, ProgramOptions
from training.launched import check_launch, is_first, is_first_here, pin_one_gpu, process_count
from training.model_setup import resolve_adapter_size, resolve_precision
from training.trl_arguments import CHECKPOINTS

Options = TypeVar("Options", bound=ProgramOptions)
# Parameters of mallopt, from glibc's malloc.h.
_TRIM_THRESHOLD, _TOP_PAD, _MMAP_MAX, _ARENA_MAX = -1, -2, -4, -8
_PAD_BYTES = 2**28
_TEST_NAME = re.compile(r"(?:^|[^a-z])(test|dev|valid|validation|eval)(?:[^a-z]|$)")


class ChainsReport(Protocol):
    """A report of what was made of chains: which they were, and for which question files."""

    @property
    def settings(self) -> dict[str, Any]: ...  # noqa: D102
    @property
    def files(self) -> list[str]: ...  # noqa: D102


@dataclass(frozen=True, slots=True)
class TrainingSummary:
    """What a training did.

    Attributes:
        steps: updates, those before a resume included.
        epochs: passes over the data.
        loss: the mean of all steps; None after a resume, when transformers averages only what came since.
        first_loss: the first that was logged.
        seconds: of this process.
        resumed_from: the checkpoint's name, "" for a fresh start.
    """

    steps: int
    epochs: float
    loss: float | None
    first_loss: float | None
    seconds: float
    resumed_from: str


def start_program(
    kind: type[Options],
    main: Callable[[Options], dict[str, Any]],
    summarise: Callable[[Options, dict[str, Any]], str],
    program: str,
    summary: str,
) -> None:
    """Parse the command line that accelerate has started this process with, train, and print the result.

    ``summarise``: returns what to print, from the options and the manifest's result.
    """
    pinned = pin_one_gpu()  # first: torch keeps to the GPUs that it saw when it was first asked for any
    import torch

    if not torch.cuda.is_available():
        keep_freed_memory()  # of this process; main() leaves its caller's alone
    try:
        options = parse(kind, sys.argv[1:], program, summary)
        for line in filter(None, (pinned, check_launch())):
            print(f"corag: {line}", file=sys.stderr)  # noqa: T201
        manifest = main(options)
    except CoragError as error:
        if is_first_here():
            print(f"corag: {error}", file=sys.stderr)  # noqa: T201
        sys.exit(2)
    if is_first():
        print(summarise(options, manifest["result"]))  # noqa: T201


def run_training(
    config: ProgramOptions,
    settings: dict[str, Any],
    contents: str,
    make_trainer: Callable[[], Any],
    train: Callable[[Any], dict[str, Any]],
) -> dict[str, Any]:
    """Train into ``config.out`` and return the manifest; what has finished is left as it is.

    Args:
        config: the program's options.
        settings: all that the result depends on.
        contents: names what ``make_trainer`` loads, for the reader.
        make_trainer: loads the model and returns one of TRL's trainers.
        train: trains with it and returns the figures for the manifest, which also gets the attention used.

    Raises:
        ConfigError: if the folder was begun with other settings.
        DataError: if processes on several machines do not share the folder.
    """
    out = Path(config.out)
    earlier = read_manifest(out)
    if earlier is not None:
        refuse_differences(f"'{out}'", Stamp(earlier["settings"]), Stamp(settings))
        if earlier["result"] is not None:
            return earlier
    manifest = {"settings": settings, "result": None, "start": environment()}
    out.mkdir(parents=True, exist_ok=True)
    # Of several processes one writes and prints.
    if first := is_first():
        # Before training: checkpoints beside it are then known to be of these settings.
        write_atomically(out / TRAINING, json.dumps(manifest, indent=1) + "\n")
    log_to(out / ENGINE_LOG)
    with quiet(f"loading {contents}", f"{contents} are loaded" if first else "") as say:
        trainer = make_trainer()
        if first and config.tuning == "full" and config.save_steps:
            say(f"corag: {describe_checkpoint_size(trainer, out)}")
    # Building a trainer is a barrier, so the first process has written its manifest by now.
    if not first and read_manifest(out) is None:
        raise DataError(
            f"'{config.out}' on this machine is not the folder that the first process writes to: several "
            "machines need a --out that they share, and the same rows and model."
        )
    manifest["result"] = train(trainer) | {"attention": trainer.model.config._attn_implementation}
    if trainer.is_world_process_zero():
        write_atomically(out / TRAINING, json.dumps(manifest, indent=1) + "\n")
    return manifest


def train_or_resume(trainer: Any, config: ProgramOptions) -> TrainingSummary:
    """Train, from the last checkpoint if there is one."""
    start, checkpoint = time.perf_counter(), last_checkpoint(Path(config.out))
    output = trainer.train(resume_from_checkpoint=checkpoint)
    return TrainingSummary(
        output.global_step,
        float(output.metrics.get("epoch", config.epochs)),
        None if checkpoint else output.training_loss,
        next((entry["loss"] for entry in trainer.state.log_history if "loss" in entry), None),
        time.perf_counter() - start,
        Path(checkpoint).name if checkpoint else "",
    )


def last_checkpoint(out: Path) -> str | None:
    """Return the newest whole checkpoint of an interrupted training.

    transformers writes trainer_state.json last, so a checkpoint without it is torn.
    """
    checkpoints = sorted(
        (out / CHECKPOINTS).glob("checkpoint-*"), key=lambda path: int(path.name.rpartition("-")[2])
    )
    whole = [path for path in checkpoints if (path / "trainer_state.json").is_file()]
    return str(whole[-1]) if whole else None


def summary_line(result: dict[str, Any]) -> str:
    """Write a training's steps, seconds and mean loss, of the figures in its manifest."""
    loss = "" if result["train_loss"] is None else f", mean loss {result['train_loss']:.3f}"
    return f"{result['steps']} steps, {result['epochs']:.2f} epochs, {result['seconds']:.0f} s{loss}"


def with_usage(config: ProgramOptions, summary: str) -> str:
    """Return two lines: what a training made, and how to use it. All figures are in its manifest."""
    option = "name" if config.tuning == "full" else "adapter"
    return (
        f"{config.out}: {summary} (all figures: {config.out}/{TRAINING})\n"
        f"Use it: corag run --method corag --model.{option} {config.out} ..."
    )


def describe_checkpoint_size(trainer: Any, out: Path) -> str:
    """Return a sentence on what a checkpoint of a whole model takes on disk."""
    weights = sum(weight.numel() for weight in trainer.model.parameters())
    # Float32 weights and Adam's two moments. Under FSDP accelerate writes the weights once more, for itself.
    size = weights * 4 * (4 if trainer.is_fsdp_enabled else 3) / 1e9
    free = shutil.disk_usage(out).free / 1e9
    return (
        f"a checkpoint takes about {size:,.1f} GB in {out}, where {free:,.0f} GB are free. One is kept, and "
        "two lie there while the next is written (--save_steps 0 for none)."
    )


def check_tokenizer(what: str, fingerprint: str, config: ProgramOptions, folder: str, remake: str) -> None:
    """Raise :class:`ConfigError` if something was written with another tokenizer than the model's.

    ``what``: it, for the message; ``remake``: the command that makes it anew.
    """
    chat: Literal["auto", "no"] = "no" if fingerprint.endswith("no chat") else "auto"
    if Renderer.load(folder, chat).fingerprint != fingerprint:
        raise ConfigError(
            f"{what} were written with another tokenizer or chat template than that of '{config.model}': "
            f"make them again with '{remake} --model {config.model}'."
        )


def warn_of_test_questions(what: str, report: ChainsReport) -> None:
    """Warn on standard error if something teaches questions that are for testing by their names."""
    if (names := find_test_names(report)) and is_first():
        sys.stderr.write(
            f"corag: '{what}' teaches questions of {', '.join(names)}, which by that name are for "
            "testing: do not report figures on them for this model.\n"
        )


def find_test_names(report: ChainsReport) -> list[str]:
    """Return the question files and splits of some rows that are for testing by their names.

    Names are all that there is to go by: of questions from Hugging Face the split that was loaded, of files
    what they are called, since what a file is for stands nowhere in it. A test set called questions.jsonl is
    not noticed. ('corag rounds' compares the questions themselves with those of its option ``test``.)

    >>> from types import SimpleNamespace
    >>> settings = {"chains": [{"questions": {"split": "validation"}}]}
    >>> find_test_names(SimpleNamespace(settings=settings, files=["x/dev.json"]))
    ['dev.json', 'validation']
    """
    splits = [chains.get("questions", {}).get("split", "") for chains in report.settings["chains"]]
    names = [*(Path(file).name for file in report.files), *splits]
    return [name for name in dict.fromkeys(names) if _TEST_NAME.search(name.lower())]


def training_identity(
    config: ProgramOptions, folder: str, batching: str, learned_from: Mapping[str, Any]
) -> dict[str, Any]:
    """Return everything that a training's result depends on, as it stands in training.json.

    ``resolved``: what "auto" came to on this machine. Weights are known by their digests, wherever they lie.
    ``learned_from``: what a program notes by itself, in the place of the options that are places.
    """
    excluded = (*marked(type(config), Mark.PLACE), *WATCHING)
    options = {name: value for name, value in asdict(config).items() if name not in excluded}
    options["lora"] = resolve_adapter_size(config, folder)
    if config.adapter:
        options["adapter"] = {
            "name": config.adapter,
            "digest": folder_digest(adapter_folder(config.adapter), weights_only=True),
        }
    resolved = {
        "precision": resolve_precision(config),
        "batching": batching,
        "rows_per_update": config.batch_size * config.accumulation * process_count(),
    }
    base = {"name": config.model, "digest": folder_digest(folder, weights_only=True)}
    settings: dict[str, Any] = to_json_types(
        {"base": base, "options": options, "resolved": resolved, **learned_from}
    )
    return settings


def keep_freed_memory() -> bool:
    """Let glibc keep freed memory instead of giving it back to the system; return whether it does.

    A training on a CPU frees in every step what the next one allocates again, and memory that is touched for
    the first time is slow: without this a first step of 8 rows of 689 tokens took 40 s instead of 18. Where
    the C library is another, nothing changes.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):
        return False
    # Large blocks from the heap instead of maps of their own (which are unmapped when freed), its top never
    # trimmed and grown in large steps; one arena, so that what one thread freed serves the others.
    settings = ((_MMAP_MAX, 0), (_TRIM_THRESHOLD, -1), (_TOP_PAD, _PAD_BYTES), (_ARENA_MAX, 1))
    accepted = [mallopt(parameter, value) for parameter, value in settings]
    return all(accepted)
