"""One stage of 'corag rounds': a command in a process of its own, and a file on what its result depends on.

An engine, a trainer and a JVM in one process would not give all of their memory back. A stage that has
finished is passed over until its options have changed, or anything that it reads: then its command is started
again, which refuses a folder that was made with others.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeAlias

import yaml

from corag.core.errors import BackendError
from corag.core.json_types import to_json_types
from corag.core.options.classes import Options
from corag.core.runs.folder import TRACES, read_lines
from corag.core.runs.provenance import PROVENANCE, Input, Provenance, settings_of
from corag.core.system.files import file_digest, write_atomically
from corag.core.system.installation import require
from corag.core.system.process import kill_with_parent, mark_processes
from eval.experiment.backends import identify_indexes, identify_weights
from eval.experiment.progress import print_line
from eval.experiment.run import RunConfig
from training.chains import load_corag_options
from training.checkpoints import last_checkpoint
from training.config import WATCHING_OPTIONS, SftConfig
from training.row_tasks import extra_prompts
from training.rows import MakeRowsConfig
from training.sample import SampleRunConfig

COMMAND = (sys.executable, "-m", "corag.cli")
"""How the corag command is started: by name, since the command line stands above this package."""
SFT, DISTILL, ENCODER, RERANKER = (
    str(Path(__file__).with_name(f"{name}.py")) for name in ("sft", "distill", "encoder", "reranker")
)
_END_S = 5.0  # less than the command line gives itself: the training must not go on alone
StageOptions: TypeAlias = SampleRunConfig | MakeRowsConfig | SftConfig | RunConfig


@dataclass(frozen=True)
class Stage:
    """A command by its options, and the folder that it makes.

    ``after``: results of earlier stages that it reads.
    """

    result: Path
    options: StageOptions
    after: tuple[Path, ...] = ()

    @property
    def provenance_file(self) -> Path:
        """Where its provenance lies: beside the result, whose files are hashed as an adapter's."""
        return provenance_path(self.result)


def run_stage(stage: Stage, command: Sequence[str]) -> None:
    """Run a stage's command unless it has finished with these options on what is there now.

    Raises :class:`BackendError` if it fails, or more questions failed than may; what it had done is kept. A
    run, which no later stage reads, may lack answers, but has a row of every question: the same command asks
    for them again.
    """
    provenance = stage_provenance(stage)
    if stage.result.exists() and provenance.is_finished(stage.provenance_file):
        return
    provenance.write(stage.provenance_file)  # as unfinished, until the command has ended well
    file = stage.result.with_name(stage.result.name + ".yaml")
    print_line(f"corag: {stage.result} ...")
    status = run_with_options(command, asdict(stage.options), file)
    if not status:
        provenance.finish(stage.provenance_file)
    elif status != 1 or not isinstance(stage.options, RunConfig) or not has_all_rows(stage.options):
        raise BackendError(
            f"the stage that makes '{stage.result}' ended with exit status {status}: its own message stands "
            "above. Once that is mended, or the folder removed if it was made with other options, the same "
            "command goes on from there."
        )


def has_all_rows(options: RunConfig) -> bool:
    """Whether a run has come to its end: each question has a row, if only that of a failure."""
    folder = options.folder / options.method[0]
    ids = read_lines(folder) if (folder / TRACES).is_file() else {}
    return all(question.id in ids for question in options.load())


def run_and_wait(command: Sequence[str]) -> int:
    """Run a command and return its exit status. What ends this process ends the command and its children.

    If it is killed, the system kills the command, and what that has started watches this process. SIGTERM is
    passed on, so that a training may write a checkpoint first, and this process then ends by it.
    """
    mark_processes()
    # In a process group of its own: a terminal's Ctrl-C would else reach all of them at once.
    # torch kills the processes of a training 30 s after SIGTERM, if it is not given another time.
    environment = {"TORCH_ELASTIC_SHUTDOWN_TIMEOUT": "1800"} | os.environ
    process = subprocess.Popen(
        command, start_new_session=True, preexec_fn=kill_with_parent(os.getpid()), env=environment
    )
    try:
        with _passing_on(signal.SIGTERM, process) as passed_on:
            status = process.wait()
    except BaseException as error:
        # After Ctrl-C a training ends its step, however long that is, and writes a checkpoint.
        patience = None if isinstance(error, KeyboardInterrupt) else _END_S
        for number, seconds in ((signal.SIGTERM, patience), (signal.SIGKILL, _END_S)):
            with suppress(ProcessLookupError):
                os.killpg(process.pid, number)
            with suppress(subprocess.TimeoutExpired, KeyboardInterrupt):  # Ctrl-C again ends it at once
                process.wait(seconds)
        raise
    if passed_on:
        os.kill(os.getpid(), signal.SIGTERM)
    return status


@contextmanager
def _passing_on(number: signal.Signals, process: subprocess.Popen[bytes]) -> Iterator[list[int]]:
    """Send a process and its children what this one gets meanwhile; yields a list that is then not empty."""
    received: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        yield received
        return

    def pass_on(*_: Any) -> None:
        received.append(number)
        os.killpg(process.pid, number)

    handler = signal.signal(number, pass_on)
    try:
        yield received
    finally:
        signal.signal(number, handler)


def run_with_options(command: Sequence[str], options: Mapping[str, Any], file: Path) -> int:
    """Run a command with options, which are written to ``file``, and return its exit status."""
    write_atomically(file, yaml.safe_dump(to_json_types(options), sort_keys=False, width=120))
    return run_and_wait([*command, "--config", str(file)])


def stage_command(stage: Stage, launch: Sequence[str]) -> list[str]:
    """Return the command of a stage without its options.

    ``launch``: arguments of 'accelerate launch', as for :func:`launch_command`.
    """
    if isinstance(stage.options, SftConfig):
        return launch_command(SFT, launch, stage.options.tuning)
    name = {SampleRunConfig: "sample", MakeRowsConfig: "rows", RunConfig: "run"}[type(stage.options)]
    return [*COMMAND, name]


@dataclass(frozen=True)
class LaunchOptions(Options):
    """How a training program is launched: a base of the options of the commands that start one."""

    launch: tuple[str, ...] = ()
    """arguments of 'accelerate launch', written --launch=--config_file,accelerate.yaml; without them one
    process for each GPU, or one on the CPU."""


@dataclass(frozen=True)
class TrainOptions(LaunchOptions, SftConfig):
    """Options of 'corag train': those of training/sft.py, and how it is launched."""


def launch_program(program: str, config: LaunchOptions) -> int:
    """Start a training program with options and return its exit status; it has printed what went wrong."""
    require("training", "torch", "accelerate", "trl")  # of which the first says how many GPUs there are
    options = asdict(config)
    launch = options.pop("launch")  # accelerate's, not the training's
    command = launch_command(program, launch, options.get("tuning", ""))
    with tempfile.TemporaryDirectory(prefix="corag-") as folder:
        try:
            status = run_with_options(command, options, Path(folder) / "options.yaml")
        except KeyboardInterrupt:
            raise KeyboardInterrupt(interruption_note(Path(options["out"]))) from None
    if status == -signal.SIGKILL:  # its process could say nothing
        kept = interruption_note(Path(options["out"]))
        print_line(
            f"corag: killed, as the system does where memory ends: {kept} A smaller batch_size needs less."
        )
    return status


def launch_command(program: str, launch: Sequence[str], tuning: str) -> list[str]:
    """Return the command that starts a training program, without its options.

    Args:
        program: its file.
        launch: arguments of 'accelerate launch'; without them one process for each GPU, or one on the CPU.
        tuning: a whole model is spread over several GPUs (FSDP), an adapter trained on each.
    """
    import torch

    gpus = torch.cuda.device_count() if not launch else 0
    if not launch and gpus < 2:
        return [sys.executable, program]  # without accelerate its exit status tells what went wrong
    if not launch and tuning == "full":
        launch = ["--config_file", str(Path(__file__).parent / "configs" / "accelerate_8gpu.yaml")]
    elif not launch:
        # No mixed precision: the training's own options decide what to compute in.
        launch = ["--multi_gpu", "--num_machines", "1", "--mixed_precision", "no", "--dynamo_backend", "no"]
    count = ["--num_processes", str(gpus)] if gpus else []
    # quiet: accelerate else reports a failure of the training as one of its own, in thirty lines.
    return [sys.executable, "-m", "accelerate.commands.launch", "--quiet", *launch, *count, program]


def interruption_note(out: Path) -> str:
    """Return a sentence on what an interrupted training leaves."""
    if checkpoint := last_checkpoint(out):
        name = Path(checkpoint).name
        return f"of the training {name} is kept in '{out}', from which the same command goes on."
    return f"the training had written no checkpoint into '{out}': the same command begins it anew."


def stage_provenance(stage: Stage) -> Provenance:
    """Return what a stage's result depends on: its options, and what it reads, by content."""
    options = stage.options
    is_training = isinstance(options, SftConfig)
    left_out = WATCHING_OPTIONS if is_training else ("batch_size", "max_failed", "workers")
    settings = {name: value for name, value in settings_of(options).items() if name not in left_out}
    # Of the stages that it follows: what was made anew is another, whatever its options.
    inputs = {"after": [Input(str(path), file_digest(provenance_path(path))) for path in stage.after]}
    match options:
        case SftConfig():
            return Provenance(settings, inputs | identify_weights(options.model, options.adapter))
        case MakeRowsConfig():
            # Prompts are those of the chains but for these, which sampling does not use.
            corag = load_corag_options([Path(chains) for chains in options.chains])
            prompts = [corag.prompt(name) for name in extra_prompts(options.rows.tasks).values()]
            inputs |= identify_weights(options.model)
        case _:
            prompts = list(options.corag.templates())
            files = {"questions": options.questions, "aliases": options.aliases, **options.corag.files()}
            inputs |= {part: [Input(file, file_digest(file))] for part, file in files.items() if file}
            inputs |= identify_weights(
                options.model.name, options.model.adapter, backend=options.model.backend
            )
    settings["prompts"] = [prompt.identity for prompt in prompts]
    return Provenance(settings, inputs | identify_indexes(options.retriever))


def provenance_path(result: Path) -> Path:
    """Return where the provenance of a stage's result lies."""
    return result.with_name(f"{result.name}.{PROVENANCE}")
