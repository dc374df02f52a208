"""What the training programs share: the model, its arithmetic, checkpoints, the manifest, the saved adapter.

A program (sft.py, dpo.py, grpo.py) says what it trains on and with which of TRL's trainers; all else of a
training that can be interrupted and told how it was made stands here.
"""

from __future__ import annotations

import json
import shutil
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar

from core.errors import ConfigError, CoragError, DataError
from core.files import replacing, write_atomically
from core.hugging_face import reading_weights
from core.options import parse
from core.runs.environment import environment
from core.runs.stamp import Stamp, refuse_differences
from eval.experiment.opening import ENGINE_LOG, log_to, quiet
from generation.adapters import TRAINING, adapter_folder, check_adapter, read_manifest
from generation.models import folder_digest, native_dtype
from generation.rendering import Renderer
from training.config import WATCHING, LoraOptions, ProgramOptions
from training.held_out import MadeOfChains, held_out_named
from training.launched import check_launch, is_first, is_first_here, pin_one_gpu, process_count
from training.memory import keep_freed_memory

CHECKPOINTS, METRICS = "checkpoints", "metrics.jsonl"
ADAPTER, WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
Options = TypeVar("Options", bound=ProgramOptions)


def perform(
    config: ProgramOptions,
    settings: dict[str, Any],
    loaded: str,
    make: Callable[[], Any],
    train: Callable[[Any], dict[str, Any]],
) -> dict[str, Any]:
    """Train into ``config.out`` and return the manifest; what has finished is left as it is.

    ``settings``: all that the result depends on. ``loaded``: what to call what ``make`` loads, which returns
    a trainer. ``train`` returns the figures for the manifest, which also gets the attention used.
    """
    out = Path(config.out)
    earlier = read_manifest(out)
    if earlier is not None:
        refuse_differences(f"'{out}'", Stamp(earlier["settings"]), Stamp(settings))
        if earlier["result"] is not None:
            return earlier
    manifest = {"settings": settings, "result": None, "start": environment()}
    out.mkdir(parents=True, exist_ok=True)
    # Of several processes one writes and says it.
    if first := is_first():
        # Before training: checkpoints beside it are then known to be of these settings.
        write_atomically(out / TRAINING, json.dumps(manifest, indent=1) + "\n")
    log_to(out / ENGINE_LOG)
    done = f"{loaded} are loaded" if first else ""
    with quiet(f"loading {loaded}", done) as say:
        trainer = make()
        if first and config.tuning == "full" and config.save_steps:
            say(f"corag: {about_checkpoints(trainer, out)}")
    # All processes have met by now, so the first one's line is written.
    if not first and read_manifest(out) is None:
        raise DataError(
            f"'{config.out}' on this machine is not the folder that the first process writes to: several "
            "machines need a --out that they share, and the same rows and model."
        )
    manifest["result"] = train(trainer) | {"attention": trainer.model.config._attn_implementation}
    if trainer.is_world_process_zero():
        write_atomically(out / TRAINING, json.dumps(manifest, indent=1) + "\n")
    return manifest


@dataclass(frozen=True, slots=True)
class Trained:
    """What a training did. ``resumed_from``: the checkpoint's name, "" for a fresh start.

    ``loss``: the mean of all steps; None after a resume, when transformers averages only what came since.
    """

    steps: int
    epochs: float
    loss: float | None
    first_loss: float | None
    seconds: float
    resumed_from: str


def go_on(trainer: Any, config: ProgramOptions) -> Trained:
    """Train from the last checkpoint on."""
    started, last = time.perf_counter(), last_checkpoint(Path(config.out))
    trained = trainer.train(resume_from_checkpoint=last)
    return Trained(
        trained.global_step,
        float(trained.metrics.get("epoch", config.epochs)),
        None if last else trained.training_loss,
        next((entry["loss"] for entry in trainer.state.log_history if "loss" in entry), None),
        time.perf_counter() - started,
        Path(last).name if last else "",
    )


def start_program(
    kind: type[Options],
    main: Callable[[Options], dict[str, Any]],
    said_of: Callable[[Options, dict[str, Any]], str],
    program: str,
    summary: str,
) -> None:
    """Perform what accelerate has started this process for: parse, train, print the result.

    ``said_of``: what to say of a configuration and its result.
    """
    pinned = pin_one_gpu()  # first: torch keeps to the GPUs that it saw when it was first asked for any
    import torch

    if not torch.cuda.is_available():
        keep_freed_memory()  # of this process; main() leaves its caller's alone
    try:
        options = parse(kind, sys.argv[1:], program, summary)
        for line in filter(None, (pinned, check_launch())):
            print(f"corag: {line}", file=sys.stderr)  # noqa: T201
        outcome = main(options)
    except CoragError as error:
        if is_first_here():
            print(f"corag: {error}", file=sys.stderr)  # noqa: T201
        sys.exit(2)
    if is_first():
        print(said_of(options, outcome["result"]))  # noqa: T201


def passed(result: dict[str, Any]) -> str:
    """Say how long a training was and what its loss was, of the figures in its manifest."""
    loss = "" if result["train_loss"] is None else f", mean loss {result['train_loss']:.3f}"
    return f"{result['steps']} steps, {result['epochs']:.2f} epochs, {result['seconds']:.0f} s{loss}"


def how_to_use(config: ProgramOptions, made: str) -> str:
    """Say in two lines what a training made, and how to use it. All figures are in its manifest."""
    used = "name" if config.tuning == "full" else "adapter"
    return (
        f"{config.out}: {made} (all figures: {config.out}/{TRAINING})\n"
        f"Use it: corag run --method corag --model.{used} {config.out} ..."
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


def warn_of_held_out(what: str, report: MadeOfChains) -> None:
    """Say on standard error if something teaches questions that are for testing by their names."""
    if (named := held_out_named(report)) and is_first():
        sys.stderr.write(
            f"corag: '{what}' teaches questions of {', '.join(named)}, which by that name are for "
            "testing: do not report figures on them for this model.\n"
        )


def identity_of_training(
    config: ProgramOptions, folder: str, batching: str, learned_from: Mapping[str, Any]
) -> dict[str, Any]:
    """Return everything that a training's result depends on, as it stands in training.json.

    ``resolved``: what "auto" came to on this machine. Weights are known by their digests, wherever they lie.
    ``learned_from``: what a program notes by itself, in the place of the options in ``PLACES``.
    """
    left_out = (*config.PLACES, *WATCHING)
    options = {name: value for name, value in asdict(config).items() if name not in left_out}
    options["lora"] = size_of(config, folder)
    if config.adapter:
        options["adapter"] = {
            "name": config.adapter,
            "digest": folder_digest(adapter_folder(config.adapter), weights_only=True),
        }
    resolved = {
        "precision": precision_of(config),
        "batching": batching,
        "rows_per_update": config.batch_size * config.accumulation * process_count(),
    }
    base = {"name": config.model, "digest": folder_digest(folder, weights_only=True)}
    settings = {"base": base, "options": options, "resolved": resolved, **learned_from}
    plain: dict[str, Any] = json.loads(json.dumps(settings))
    return plain


def size_of(config: ProgramOptions, folder: str) -> dict[str, Any]:
    """Return the size of the adapter that is trained: that of the one gone on with, or what is asked.

    Raises :class:`ConfigError` if another size is asked than that of the adapter that is gone on with.
    """
    asked = asdict(config.lora)
    if not config.adapter:
        return asked
    read = check_adapter(adapter_folder(config.adapter), folder)
    targets = read.get("target_modules") or ()  # a pattern in some adapters from elsewhere
    theirs = {
        "rank": read.get("r"),
        "alpha": read.get("lora_alpha"),
        "dropout": read.get("lora_dropout"),
        "targets": [targets] if isinstance(targets, str) else sorted(targets),
    }
    default = asdict(LoraOptions())
    for name, own in theirs.items():
        wanted = sorted(asked[name]) if name == "targets" else asked[name]
        if wanted != own and asked[name] != default[name]:
            raise ConfigError(
                f"lora.{name} is {asked[name]}, but the adapter '{config.adapter}' that is trained on has "
                f"{own}: leave lora.{name} out, or adapter for a new one."
            )
    return theirs


def load_tokenizer(folder: str) -> Any:
    """Load a tokenizer that can pad."""
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder)
    # Collators want some token to pad with; which one does not matter, as padding is never looked at.
    if tokenizer.pad_token is None:
        tokenizer.pad_token = tokenizer.eos_token
    return tokenizer


def ready(trainer: Any) -> Any:
    """Return a trainer of TRL's as every program wants it: in float32, and silent but for our callbacks."""
    from transformers.trainer_callback import PrinterCallback

    trainer.remove_callback(PrinterCallback)
    keep_float32(trainer.model)
    return trainer


def keep_float32(model: Any) -> None:
    """Keep trained weights in float32: TRL rounds adapters of 4-bit models to bfloat16."""
    for weight in model.parameters():
        # In bfloat16 small updates are lost.
        if weight.requires_grad:
            weight.data = weight.data.float()


def trainer_arguments(
    kind: Callable[..., Any], config: ProgramOptions, own: Mapping[str, Any], *, evaluates: bool
) -> Any:
    """Say it to a trainer of TRL. ``kind``: the class of its arguments; ``own``: those of one program alone.

    It comes before the model is loaded, since transformers starts the process group here. Raises
    :class:`ConfigError` for what the machine does not have or would do wrongly.
    """
    said = kind(**own, **common_arguments(config, evaluates=evaluates))
    check_one_gpu(said)
    return said


def common_arguments(config: ProgramOptions, *, evaluates: bool) -> dict[str, Any]:
    """Return what every trainer of transformers is told, by its own names.

    TRL's defaults compute activations twice everywhere and report to whatever is installed.
    """
    import torch

    check_report_to(config)
    on_gpu = torch.cuda.is_available()
    checkpointing = (
        on_gpu if config.gradient_checkpointing == "auto" else config.gradient_checkpointing == "yes"
    )
    return {
        "output_dir": str(Path(config.out) / CHECKPOINTS),
        "num_train_epochs": config.epochs,
        "max_steps": config.max_steps or -1,
        "per_device_train_batch_size": config.batch_size,
        "per_device_eval_batch_size": config.batch_size,
        "gradient_accumulation_steps": config.accumulation,
        "gradient_checkpointing": checkpointing,
        "learning_rate": config.learning_rate,
        "lr_scheduler_type": "constant_with_warmup" if config.schedule == "constant" else config.schedule,
        "warmup_steps": config.warmup,
        "weight_decay": config.weight_decay,
        "bf16": precision_of(config) == "bfloat16",
        "use_cpu": not on_gpu,
        "eval_strategy": "steps" if evaluates and config.eval_steps else "no",
        "eval_steps": config.eval_steps or None,
        "save_strategy": "steps" if config.save_steps else "no",
        "save_steps": config.save_steps or 500,
        # The last may be half written when the power fails; whole models are too large to keep two.
        "save_total_limit": 1 if config.tuning == "full" else 2,
        "logging_steps": config.logging_steps,
        "logging_first_step": True,
        "report_to": list(config.report_to),
        "disable_tqdm": True,  # SpokenSteps says how far it is
        "seed": config.seed,
        "data_seed": config.seed,
        "dataloader_pin_memory": on_gpu,
    }


def check_report_to(config: ProgramOptions) -> None:
    """Raise :class:`ConfigError` if a training is to be reported to a package that is not there."""
    import importlib.util

    for name in config.report_to:
        known = name in ("tensorboard", "trackio", "wandb")
        if known and importlib.util.find_spec(name) is None:
            raise ConfigError(
                f"--report_to {name} wants the package {name}, which is not installed: install it, or leave "
                "the option out."
            )


def check_one_gpu(arguments: Any) -> None:
    """Raise :class:`ConfigError` if transformers would copy the model over several GPUs."""
    if arguments.n_gpu > 1:
        raise ConfigError(
            f"this process sees {arguments.n_gpu} GPUs, over which transformers would copy the model: set "
            "CUDA_VISIBLE_DEVICES to one of them, or start a process for each with corag train "
            f"--launch=--multi_gpu,--num_processes,{arguments.n_gpu} ..."
        )


def about_checkpoints(trainer: Any, out: Path) -> str:
    """Say what a checkpoint of a whole model takes on disk: float32 weights and Adam's two moments.

    Under FSDP accelerate writes the weights once more, for itself.
    """
    weights = sum(weight.numel() for weight in trainer.model.parameters())
    size = weights * 4 * (4 if trainer.is_fsdp_enabled else 3) / 1e9
    free = shutil.disk_usage(out).free / 1e9
    return (
        f"a checkpoint takes about {size:,.1f} GB in {out}, where {free:,.0f} GB are free. One is kept, and "
        "two lie there while the next is written (--save_steps 0 for none)."
    )


def make_model(config: ProgramOptions, folder: str) -> tuple[Any, Any]:
    """Load the base model; return it with the options of a new adapter, if there is to be one."""
    import torch
    from peft import LoraConfig, PeftModel
    from transformers import AutoModelForCausalLM

    precision = precision_of(config)
    # Frozen weights may be coarse; trained ones are kept in float32, as small updates would be lost.
    options: dict[str, Any] = {
        "dtype": torch.float32 if config.tuning == "full" else getattr(torch, precision)
    }
    if (attention := attention_of(config, folder)) != "auto":
        options["attn_implementation"] = attention
    if config.tuning == "qlora":
        options["quantization_config"] = four_bits(precision)
    with reading_weights(f"the model in '{folder}'"):
        model = AutoModelForCausalLM.from_pretrained(folder, **options)
    if config.tuning == "full":
        return model, None
    if config.adapter:
        adapter = adapter_folder(config.adapter)
        check_adapter(adapter, folder)
        with reading_weights(f"the adapter '{adapter}'"):
            adapted = PeftModel.from_pretrained(model, adapter, is_trainable=True)
        # It names its base as its trainer did ("default"), where PEFT would look for a configuration.
        adapted.peft_config["default"].base_model_name_or_path = folder
        return adapted, None
    # PEFT takes "all-linear" as a word, and names of layers as a list.
    targets = config.lora.targets[0] if config.lora.targets == ("all-linear",) else list(config.lora.targets)
    lora = LoraConfig(
        r=config.lora.rank,
        lora_alpha=config.lora.alpha,
        lora_dropout=config.lora.dropout,
        target_modules=targets,
        task_type="CAUSAL_LM",
    )
    return model, lora


def four_bits(precision: str) -> Any:
    """Return QLoRA's quantisation: 4-bit normal floats, their scales quantised too (Dettmers et al. 2023).

    ``precision``: of the arithmetic. Raises :class:`ConfigError` where it cannot be had.
    """
    import importlib.util

    import torch
    from transformers import BitsAndBytesConfig

    if not torch.cuda.is_available() or importlib.util.find_spec("bitsandbytes") is None:
        raise ConfigError(
            "tuning 'qlora' wants a CUDA GPU and the package bitsandbytes: install it, or choose tuning "
            "'lora'."
        )
    return BitsAndBytesConfig(
        load_in_4bit=True,
        bnb_4bit_quant_type="nf4",
        bnb_4bit_use_double_quant=True,
        bnb_4bit_compute_dtype=getattr(torch, precision),
    )


def precision_of(config: ProgramOptions) -> str:
    """Return the precision of the arithmetic."""
    import torch

    if config.precision != "auto":
        return config.precision
    native = native_dtype(on_cpu=not torch.cuda.is_available())
    return native if native == "bfloat16" else "float32"  # small gradients vanish in float16


def batching_of(config: ProgramOptions) -> str:
    """Return how rows are put into batches.

    Rows behind one another waste nothing, but only FlashAttention keeps them apart: other kernels would let a
    row look at the ones before it.
    """
    import importlib.util

    import torch

    if config.batching != "auto":
        return config.batching
    return (
        "padding_free"
        if torch.cuda.is_available() and importlib.util.find_spec("flash_attn")
        else "by_length"
    )


def attention_of(config: ProgramOptions, folder: str) -> str:
    """Return the name of the attention; "auto" leaves it to transformers, but for ours on a CPU."""
    import torch
    from transformers import AutoConfig

    from training import attention

    if config.attention != "auto":
        return config.attention
    if batching_of(config) == "padding_free":
        return "flash_attention_2"
    if torch.cuda.is_available() or not attention.suits(AutoConfig.from_pretrained(folder)):
        return "auto"
    attention.register()
    return attention.NAME


def last_checkpoint(out: Path) -> str | None:
    """Return the newest whole checkpoint of an interrupted training.

    transformers writes trainer_state.json last, so a checkpoint without it is torn.
    """
    found = sorted(
        (out / CHECKPOINTS).glob("checkpoint-*"), key=lambda path: int(path.name.rpartition("-")[2])
    )
    whole = [path for path in found if (path / "trainer_state.json").is_file()]
    return str(whole[-1]) if whole else None


def save(trainer: Any, config: ProgramOptions, out: Path) -> None:
    """Write adapter or model. An adapter names its base model as the user did, not by its place here."""
    trainer.save_model(str(out))
    if config.tuning != "full" and trainer.is_world_process_zero():
        round_weights(out / WEIGHTS, config.save_precision)
        # Not before: PEFT looks for the base model's configuration when it saves, on the network if the name
        # is no folder.
        settings = json.loads((out / ADAPTER).read_text(encoding="utf-8"))
        write_atomically(
            out / ADAPTER, json.dumps(settings | {"base_model_name_or_path": config.model}, indent=2) + "\n"
        )


def round_weights(file: Path, precision: str) -> None:
    """Write an adapter's weights again in this precision.

    As they lie on disk: while they are spread over GPUs (FSDP) the model's own keep the precision in which
    they were trained, whatever one sets them to.
    """
    import torch
    from safetensors.torch import load_file, save_file

    wanted = getattr(torch, precision)
    weights = {name: weight.to(wanted) for name, weight in load_file(file).items()}
    with replacing(file) as temporary:
        save_file(weights, temporary, metadata={"format": "pt"})
