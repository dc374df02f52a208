"""One training from its command line to its manifest, with a trainer of TRL's or sentence-transformers'.

A program (sft.py, encoder.py, reranker.py ...) loads what it trains on and builds a trainer.
Everything else of a training that can be interrupted, and that notes how it was made, stands here.
"""

from __future__ import annotations

import ctypes
import json
import re
import resource
import shutil
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol, TypeVar

from corag.core.command_line import parse
from corag.core.errors import BackendError, ConfigError, CoragError, DataError
from corag.core.files import share_files, write_atomically
from corag.core.folder_lock import lock_folder
from corag.core.installation import cpu_build_note
from corag.core.runs.environment import environment
from corag.core.runs.provenance import Provenance
from corag.generation.adapters import TRAINING, read_manifest
from corag.generation.rendering import Renderer
from corag.generation.thinking import ThinkingOptions
from eval.experiment.opening import ENGINE_LOG, log_to, quiet
from training.checkpoints import describe_resume, full_disk_refused, last_checkpoint
from training.checks import requested_identity
from training.config import LoopOptions, ProgramOptions
from training.launched import (
    check_launch,
    drop_assumed_threads,
    end_with_launcher,
    is_first,
    is_first_here,
    pin_one_gpu,
    process_count,
    report_status,
)
from training.model_setup import resolve_precision

Options = TypeVar("Options", bound=LoopOptions)
# Parameters of mallopt, from glibc's malloc.h.
_TRIM_THRESHOLD, _TOP_PAD, _MMAP_MAX, _ARENA_MAX = -1, -2, -4, -8
_PAD_BYTES = 2**28
_TEST_NAME = re.compile(r"(?:^|[^a-z])(test|dev|valid|validation|eval)(?:[^a-z]|$)")


class TrainedInto(Protocol):
    """Options of a program that trains into a folder."""

    @property
    def out(self) -> str: ...  # noqa: D102
    @property
    def epochs(self) -> float: ...  # noqa: D102
    @property
    def save_steps(self) -> int: ...  # noqa: D102
    @property
    def writes_model(self) -> bool: ...  # noqa: D102


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
        loss: the mean of all steps, those before a resume included.
        first_loss: the first that was logged.
        seconds: of all steps that count; what a killed start trained after its last checkpoint does not.
        tokens: that the model read in them, padding left out; None where the trainer does not count them.
        resumed_from: the checkpoint's name, "" for a fresh start.
    """

    steps: int
    epochs: float
    loss: float | None
    first_loss: float | None
    seconds: float
    tokens: int | None
    resumed_from: str


def start_program(
    kind: type[Options],
    check: Callable[[Options], None],
    main: Callable[[Options], dict[str, Any]],
    summarise: Callable[[Options, dict[str, Any]], str],
    program: str,
    summary: str,
) -> None:
    """Parse the command line that accelerate has started this process with, train, and print the result.

    Args:
        kind: the program's options.
        check: refuses what cannot be done, before torch is loaded.
        main: trains, and returns the manifest.
        summarise: returns what to print, from the options and the manifest.
        program: its name, for the help.
        summary: what it does, in a line.
    """
    end_with_launcher()
    drop_assumed_threads()
    try:
        options = parse(kind, sys.argv[1:], program, summary)
        check(options)
        gpu_line = pin_one_gpu()  # first: torch keeps to the GPUs that it saw when it was first asked for any
        import torch

        if not torch.cuda.is_available():
            keep_freed_memory()  # of this process; main() leaves its caller's alone
        for line in filter(None, (gpu_line, check_launch())):
            print(f"corag: {line}", file=sys.stderr)  # noqa: T201
        manifest = main(options)
    except CoragError as error:
        if is_first_here():
            print(f"corag: {error}", file=sys.stderr)  # noqa: T201
        status = 1 if isinstance(error, BackendError) else 2
        report_status(status)
        sys.exit(status)
    if is_first():
        print(summarise(options, manifest))  # noqa: T201


def run_training(
    config: TrainedInto,
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
        make_trainer: loads the model and returns a trainer of TRL's or sentence-transformers'.
        train: trains with it and returns the figures for the manifest, which also gets the attention used.

    Raises:
        ConfigError: if the folder was begun with other settings, or another training is at work in it.
        DataError: if processes on several machines do not share the folder.
    """
    out = Path(config.out)
    if (manifest := _finished_manifest(out, settings)) is not None:
        return manifest
    # Of several processes one writes and prints.
    with lock_folder(out, work="corag train") if is_first() else nullcontext():
        if (manifest := _finished_manifest(out, settings)) is not None:  # by who had the lock until now
            return manifest
        return _train_into(out, config, settings, contents, make_trainer, train)


def _finished_manifest(out: Path, settings: dict[str, Any]) -> dict[str, Any] | None:
    """Return the manifest of a training that has finished; refuse one that was begun with other settings."""
    earlier = read_manifest(out)
    if earlier is None:
        return None
    Provenance(settings).refuse_other(f"'{out}'", Provenance(earlier["settings"]))
    return earlier if earlier["result"] is not None else None


def _train_into(
    out: Path,
    config: TrainedInto,
    settings: dict[str, Any],
    contents: str,
    make_trainer: Callable[[], Any],
    train: Callable[[Any], dict[str, Any]],
) -> dict[str, Any]:
    """Train into a folder that is locked, as :func:`run_training` says."""
    first = is_first()
    checkpoint = last_checkpoint(out)
    base = settings["base"]["name"]
    start = environment() | {
        "resumed_from": Path(checkpoint).name if checkpoint else "",
        # Later nobody can tell "models/tuned" from a name of the hub.
        "base_folder": base if base != "default" and Path(base).is_dir() else "",
    }
    earlier = (read_manifest(out) or {}).get("starts", [])
    manifest = {"settings": settings, "result": None, "starts": [*earlier, start]}
    out.mkdir(parents=True, exist_ok=True)
    if first:
        # Before training: checkpoints beside it are then known to be of these settings.
        write_atomically(out / TRAINING, json.dumps(manifest, indent=1) + "\n")
    log_to(out / ENGINE_LOG)
    with quiet(f"loading {contents}", f"{contents} are loaded" if first else "") as print_line:
        if first and (note := cpu_build_note()):
            print_line(f"corag: {note}")
        trainer = make_trainer()
        if first:
            print_line(f"corag: {describe_start(trainer, settings['resolved'], out)}")
        if first and config.writes_model and config.save_steps:
            print_line(f"corag: {describe_checkpoint_size(trainer, out)}")
    # Building a trainer is a barrier, so the first process has written its manifest by now.
    if not first and read_manifest(out) is None:
        raise DataError(
            f"'{config.out}' on this machine is not the folder that the first process writes to: several "
            "machines need a folder 'out' that they share, and the same rows and model."
        )
    with full_disk_refused(out):
        result = train(trainer)
    manifest["result"] = result | {"attention": attention_of(trainer.model)} | peak_memory()
    if trainer.is_world_process_zero():
        share_files(out)
        write_atomically(out / TRAINING, json.dumps(manifest, indent=1) + "\n")
    return manifest


def describe_start(trainer: Any, resolved_settings: Mapping[str, Any], out: Path) -> str:
    """Return a line on how a training computes, and where it goes on from."""
    return (
        f"{describe_resume(out)}: {resolved_settings['precision']}, "
        f"{resolved_settings['rows_per_update']} rows a step, attention {attention_of(trainer.model)}, "
        f"device {trainer.args.device}"
    )


def attention_of(model: Any) -> str | None:
    """Return the implementation of attention of a model of transformers, or of the first one within it."""
    configs = [each.config for each in model.modules() if hasattr(each, "config")]
    # What transformers has noted, under a name of its own; sentence-transformers' modules have none.
    return getattr(configs[0], "_attn_implementation", None) if configs else None


def peak_memory() -> dict[str, float]:
    """Return the most memory that this process had, and had on its GPU, in GB."""
    import torch

    # In kilobytes, but for macOS.
    unit = 1 if sys.platform == "darwin" else 1024
    figures = {"peak_memory_gb": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 1e9, 2)}
    if torch.cuda.is_available():
        figures["peak_gpu_memory_gb"] = round(torch.cuda.max_memory_allocated() / 1e9, 2)
    return figures


def train_or_resume(trainer: Any, config: TrainedInto) -> TrainingSummary:
    """Train, from the last checkpoint if there is one.

    Raises :class:`BackendError` if SIGTERM stopped it early.
    """
    from training.callbacks import METRICS, heartbeats, mean_loss, seconds_until

    start, checkpoint = time.perf_counter(), last_checkpoint(Path(config.out))
    step = int(Path(checkpoint).name.rpartition("-")[2]) if checkpoint else 0
    before = seconds_until(Path(config.out) / METRICS, step)
    with heartbeats(trainer):
        output = trainer.train(resume_from_checkpoint=checkpoint)
    if output.global_step < trainer.state.max_steps:
        # transformers returns as from a whole training.
        kept = Path(last_checkpoint(Path(config.out)) or "").name
        raise BackendError(
            f"SIGTERM stopped the training: {kept} is kept in '{config.out}', from which the same command "
            "goes on."
        )
    log = trainer.state.log_history  # goes on from the checkpoint's
    return TrainingSummary(
        output.global_step,
        float(output.metrics.get("epoch", config.epochs)),
        # transformers divides the losses since a resume by all steps.
        mean_loss(log) if checkpoint else output.training_loss,
        next((entry["loss"] for entry in log if "loss" in entry), None),
        before + time.perf_counter() - start,
        trainer.state.num_input_tokens_seen or None,
        Path(checkpoint).name if checkpoint else "",
    )


def describe_checkpoint_size(trainer: Any, out: Path) -> str:
    """Return a sentence on what a checkpoint of a whole model takes on disk."""
    weights = sum(weight.numel() for weight in trainer.model.parameters())
    # Float32 weights and Adam's two moments. Under FSDP accelerate writes the weights for itself, and
    # transformers once more, unless they are in shards.
    is_sharded = trainer.is_fsdp_enabled and "SHARDED" in str(
        trainer.accelerator.state.fsdp_plugin.state_dict_type
    )
    size = weights * 4 * (4 if trainer.is_fsdp_enabled and not is_sharded else 3) / 1e9
    free = shutil.disk_usage(out).free / 1e9
    return (
        f"a checkpoint takes about {size:,.1f} GB in {out}, where {free:,.0f} GB are free. One is kept, and "
        "two lie there while the next is written (save_steps=0 for none)."
    )


def check_tokenizer(
    what: str, settings: Mapping[str, Any], config: ProgramOptions, folder: str, remake: str
) -> None:
    """Raise :class:`ConfigError` if something was written with another tokenizer than the model's.

    ``what``: it, for the message; ``settings``: what it was written with; ``remake``: the command that makes
    it anew.
    """
    fingerprint = settings["tokenizer"]
    chat: Literal["auto", "no"] = "no" if fingerprint.endswith("no chat") else "auto"
    options = ThinkingOptions("auto", settings.get("template_args", {}))
    if Renderer.load(folder, chat, options).fingerprint != fingerprint:
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
    splits = [
        each.get("questions", {}).get("split", "") for each in (*report.settings["chains"], report.settings)
    ]
    names = [*(Path(file).name for file in report.files), *splits]
    return [name for name in dict.fromkeys(names) if _TEST_NAME.search(name.lower())]


def training_identity(
    config: ProgramOptions, folder: str, batching: str, sources: Mapping[str, Any]
) -> dict[str, Any]:
    """Return everything that a training's result depends on, as it stands in training.json.

    ``resolved``: what "auto" came to on this machine. The rest is as :func:`requested_identity` says.
    """
    return requested_identity(config, folder, sources) | {
        "resolved": {
            "precision": resolve_precision(config),
            "batching": batching,
            "rows_per_update": config.batch_size * config.accumulation * process_count(),
        }
    }


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
    results = [mallopt(parameter, value) for parameter, value in settings]
    return all(results)
