"""One training from its command line to its manifest, with a trainer of TRL's or sentence-transformers'.

A program (sft.py, distill.py, encoder.py, reranker.py) loads what it trains on and builds a trainer. What all
of them share stands here, in the order in which it happens: launch, options, identity, arguments, folder,
training, report. What accelerate, TRL or transformers refuse by themselves is not refused here before.
"""

from __future__ import annotations

import ctypes
import json
import os
import re
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypeVar

from corag.core.errors import BackendError, ConfigError, CoragError, DataError
from corag.core.json_types import to_json_types
from corag.core.options.command_line import parse
from corag.core.options.names import Mark, marked_options
from corag.core.runs.environment import environment
from corag.core.runs.provenance import Provenance
from corag.core.system.files import share_files, write_atomically
from corag.core.system.folder_lock import lock_folder
from corag.core.system.installation import cpu_build_note
from corag.core.system.process import end_with_owner, kill_with_parent
from corag.generation.adapters import TRAINING, read_manifest
from corag.generation.models import folder_digest, native_dtype
from eval.experiment.opening import ENGINE_LOG, log_to, quiet
from training.checkpoints import (
    CHECKPOINTS,
    METRICS,
    describe_resume,
    full_disk_refused,
    last_checkpoint,
    mean_loss,
    peak_memory_until,
    seconds_until,
)
from training.config import WATCHING_OPTIONS, LoopOptions

Options = TypeVar("Options", bound=LoopOptions)
# Parameters of mallopt, from glibc's malloc.h.
_TRIM_THRESHOLD, _TOP_PAD, _MMAP_MAX, _ARENA_MAX = -1, -2, -4, -8
_PAD_BYTES = 2**28


# ---- launch: accelerate and torchrun say in the environment which process this is


def start_program(
    kind: type[Options],
    main: Callable[[Options], dict[str, Any]],
    summarise: Callable[[Options, dict[str, Any]], str],
    program: str,
    summary: str,
) -> None:
    """Parse this process's command line, train, and print the result.

    Args:
        kind: the program's options.
        main: trains, and returns the manifest.
        summarise: returns what to print, from the options and the manifest.
        program: its name, for the help.
        summary: what it does, in a line.
    """
    end_with_launcher()
    drop_assumed_threads()
    try:
        options = parse(kind, sys.argv[1:], program, summary)
        manifest = main(options)
    except CoragError as error:
        if int(os.environ.get("LOCAL_RANK", "0")) == 0:  # errors may be of one machine alone
            print(f"corag: {error}", file=sys.stderr)  # noqa: T201
        sys.exit(1 if isinstance(error, BackendError) else 2)
    if is_first():
        print(summarise(options, manifest))  # noqa: T201


def end_with_launcher() -> None:
    """End this process when what has launched it ends, however it does: accelerate, torchrun, 'corag train'.

    Alone it would train on unseen, in a folder that the same command given again is to write. It gets
    SIGTERM, and thus may write a checkpoint first.
    """
    end_with_owner()
    kill_with_parent(os.getppid(), signal.SIGTERM)()


def drop_assumed_threads() -> None:
    """Leave the number of threads to torch where accelerate has assumed one: 'corag train' does the same.

    For a process that trains alone accelerate sets OMP_NUM_THREADS, to 1 as a rule, if no number was asked
    for. torch reads it once, so this comes before torch is loaded.
    """
    if process_count() > 1 or not any(name.startswith("ACCELERATE_") for name in os.environ):
        return
    launcher = Path(f"/proc/{os.getppid()}")
    with suppress(OSError):  # where the launcher cannot be seen, its number stays
        given = b"\0".join([b"", (launcher / "environ").read_bytes(), (launcher / "cmdline").read_bytes()])
        if not re.search(rb"\0(OMP_NUM_THREADS=|--num[-_]cpu[-_]threads)", given):
            os.environ.pop("OMP_NUM_THREADS", None)


def process_count() -> int:
    """Return how many processes train together, on all machines."""
    return int(os.environ.get("WORLD_SIZE", "1"))


def is_first() -> bool:
    """Whether this process speaks and writes for all."""
    return int(os.environ.get("RANK", "0")) == 0


# ---- what identifies a training


def training_settings(
    config: LoopOptions,
    base: tuple[str, str],
    sources: Mapping[str, Any],
    resolved: Mapping[str, Any],
    **overrides: Any,
) -> dict[str, Any]:
    """Return everything that a training's result depends on, as it stands in training.json.

    Weights are known by their digests, wherever they lie.

    Args:
        config: the program's options.
        base: of what is trained: its name, and where it lies.
        sources: what a program notes by itself, in the place of the options that are places.
        resolved: what its "auto" came to on this machine.
        overrides: options that stand there otherwise than they were given.
    """
    names_left_out = (*marked_options(type(config), Mark.PLACE, Mark.PRIVATE), *WATCHING_OPTIONS, "launch")
    options = {name: value for name, value in asdict(config).items() if name not in names_left_out}
    rows = config.batch_size * config.accumulation * process_count()
    settings: dict[str, Any] = to_json_types(
        {
            "base": {"name": base[0], "digest": folder_digest(base[1], weights_only=True)},
            "options": options | overrides,
            **sources,
            "resolved": {"precision": resolve_precision(config), **resolved, "rows_per_update": rows},
        }
    )
    return settings


def resolve_precision(config: LoopOptions) -> str:
    """Return the precision of the arithmetic."""
    if config.precision != "auto":
        return config.precision
    native = native_dtype(on_cpu=not has_gpu())
    return native if native == "bfloat16" else "float32"  # small gradients vanish in float16


def has_gpu() -> bool:
    """Whether there is a GPU."""
    import torch

    return bool(torch.cuda.is_available())


# ---- the trainer's arguments


def build_arguments(
    kind: type[Any],
    config: LoopOptions,
    values: Mapping[str, Any],
    *,
    out: str,
    defaults: Mapping[str, Any] | None = None,
) -> Any:
    """Build the arguments of a trainer. It comes before the model, since it starts the process group.

    Args:
        kind: the class of the arguments.
        config: the options that all trainings share.
        values: what one program alone sets, by the trainer's names.
        out: folder of the result, whose checkpoints lie within it.
        defaults: of the program, where they differ from the trainer's.

    Raises:
        ConfigError: for what the option ``trainer`` has that is set here, or that the class does not take.
    """
    fixed = {
        "output_dir": str(Path(out) / CHECKPOINTS),
        "num_train_epochs": config.epochs,
        "max_steps": config.max_steps or -1,
        "per_device_train_batch_size": config.batch_size,
        "per_device_eval_batch_size": config.batch_size,
        "auto_find_batch_size": False,  # the rows of an update are part of what identifies a training
        "gradient_accumulation_steps": config.accumulation,
        "learning_rate": config.learning_rate,
        "lr_scheduler_type": "constant_with_warmup" if config.schedule == "constant" else config.schedule,
        "warmup_steps": config.warmup,
        "bf16": resolve_precision(config) == "bfloat16",
        "use_cpu": not has_gpu(),
        "save_strategy": "steps" if config.save_steps else "no",
        "save_steps": config.save_steps or 500,
        "save_total_limit": 1,
        "logging_steps": config.logging_steps,
        "logging_first_step": True,
        "report_to": list(config.report_to),  # transformers' default is whatever is installed
        "disable_tqdm": True,  # ProgressLines shows the progress
        "seed": config.seed,
        "data_seed": config.seed,
        "dataloader_pin_memory": has_gpu(),
        **values,
    }
    try:
        arguments = kind(**{**(defaults or {}), **config.trainer}, **fixed)
    except (ValueError, TypeError, ImportError) as error:
        raise ConfigError(f"{kind.__name__} does not take these options: {error}") from error
    # Of several GPUs that one process sees: transformers would copy the model to all, which TRL refuses.
    arguments._n_gpu = min(1, arguments.n_gpu)
    return arguments


# ---- the folder


def finished_manifest(out: str, settings: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the manifest of a training that has finished in a folder; None where it has not.

    Raises :class:`ConfigError` if the folder was begun with other settings.
    """
    earlier = read_manifest(Path(out))
    if earlier is None:
        return None
    Provenance(settings).refuse_other(f"'{out}'", Provenance(earlier["settings"]))
    return earlier if earlier["result"] is not None else None


@contextmanager
def training_folder(out: Path, settings: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Begin a training's folder, or go on in it, and yield its manifest, for :func:`finish`.

    Raises :class:`ConfigError` if another training is at work there.
    """
    # Of several processes one writes and prints.
    with lock_folder(out, work="corag train") if is_first() else nullcontext(), full_disk_refused(out):
        checkpoint, base = last_checkpoint(out), settings["base"]["name"]
        start = environment() | {
            "resumed_from": Path(checkpoint).name if checkpoint else "",
            # Later "models/tuned" would look like a name of the hub.
            "base_folder": base if base != "default" and Path(base).is_dir() else "",
        }
        earlier = (read_manifest(out) or {}).get("starts", [])
        manifest = {"settings": settings, "result": None, "starts": [*earlier, start]}
        out.mkdir(parents=True, exist_ok=True)
        if is_first():
            # Before training: checkpoints beside it are then known to be of these settings.
            write_atomically(out / TRAINING, json.dumps(manifest, indent=1) + "\n")
        log_to(out / ENGINE_LOG)
        if not has_gpu():
            keep_freed_memory()
        yield manifest


@contextmanager
def loading(out: Path, contents: str) -> Iterator[None]:
    """Around what loads a model and builds its trainer. ``contents``: what is loaded, for the reader.

    Raises :class:`DataError` if processes on several machines do not share the folder ``out``.
    """
    with quiet(f"loading {contents}", f"{contents} are loaded" if is_first() else "") as print_line:
        if is_first() and (note := cpu_build_note()):
            print_line(f"corag: {note}")
        yield
    # Building a trainer is a barrier, so the first process has written its manifest by now.
    if not is_first() and read_manifest(out) is None:
        raise DataError(
            f"'{out}' on this machine is not the folder that the first process writes to: several "
            "machines need a folder 'out' that they share, and the same rows and model."
        )


def finish(trainer: Any, out: Path, manifest: dict[str, Any], result: Mapping[str, Any]) -> dict[str, Any]:
    """Write a training's result into its manifest, and return it."""
    memory = peak_memory_until(out / METRICS, trainer.state.global_step)
    manifest["result"] = {**result, "attention": attention_of(trainer.model)} | memory
    if trainer.is_world_process_zero():
        share_files(out)
        write_atomically(out / TRAINING, json.dumps(manifest, indent=1) + "\n")
    return manifest


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


def attention_of(model: Any) -> str | None:
    """Return the implementation of attention of a model of transformers, or of the first one within it."""
    configs = [each.config for each in model.modules() if hasattr(each, "config")]
    # What transformers has noted, under a name of its own; sentence-transformers' modules have none.
    return getattr(configs[0], "_attn_implementation", None) if configs else None


# ---- training


def train_or_resume(trainer: Any, out: Path) -> dict[str, Any]:
    """Train, from the last checkpoint if there is one, and return the first figures of a manifest's result.

    All are of the whole training, steps before a resume included: ``steps`` (updates), ``epochs`` (passes),
    ``train_loss`` (the mean), ``first_loss`` (the first that was logged), ``seconds`` (what a killed start
    trained after its last checkpoint does not count), ``tokens_read`` (padding left out; None where the
    trainer does not count), ``resumed_from`` (the checkpoint's name).

    Raises :class:`BackendError` if SIGTERM stopped it early.
    """
    from transformers.trainer_callback import PrinterCallback

    from training.callbacks import training_callbacks

    trainer.remove_callback(PrinterCallback)
    for callback in training_callbacks(out):
        trainer.add_callback(callback)
    if is_first():
        how = f"{'bfloat16' if trainer.args.bf16 else 'float32'}, attention {attention_of(trainer.model)}"
        sys.stderr.write(f"corag: {describe_resume(out)}: {how}, device {trainer.args.device}\n")
    start, checkpoint = time.perf_counter(), last_checkpoint(out)
    step = int(Path(checkpoint).name.rpartition("-")[2]) if checkpoint else 0
    before = seconds_until(out / METRICS, step)
    output = trainer.train(resume_from_checkpoint=checkpoint)
    if output.global_step < trainer.state.max_steps:
        # transformers returns as from a whole training.
        kept = Path(last_checkpoint(out) or "").name
        raise BackendError(
            f"SIGTERM stopped the training: {kept} is kept in '{out}', from which the same command goes on."
        )
    log = trainer.state.log_history  # goes on from the checkpoint's
    return {
        "steps": output.global_step,
        "epochs": float(trainer.state.epoch),
        # transformers divides the losses since a resume by all steps.
        "train_loss": mean_loss(log) if checkpoint else output.training_loss,
        "first_loss": next((entry["loss"] for entry in log if "loss" in entry), None),
        "seconds": before + time.perf_counter() - start,
        "tokens_read": trainer.state.num_input_tokens_seen or None,
        "resumed_from": Path(checkpoint).name if checkpoint else "",
    }


def summary_line(out: str, result: Mapping[str, Any], more: str = "") -> str:
    """Write a training's steps, seconds and mean loss, of the figures in its manifest."""
    loss = "" if result["train_loss"] is None else f", mean loss {result['train_loss']:.3f}"
    memory = f", {result['peak_memory_gb']:.1f} GB of memory" if "peak_memory_gb" in result else ""
    return (
        f"{out}: {result['steps']} steps, {result['epochs']:.2f} epochs, {result['seconds']:.0f} s{memory}"
        f"{loss}{more} (all figures: {out}/{TRAINING})"
    )
