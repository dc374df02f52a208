"""Supervised fine-tuning on rows of chains, with TRL.

    accelerate launch training/sft.py --config training/configs/cpu.yaml --rows ROWS --out FOLDER

On several devices accelerate has options of its own (--config_file training/configs/accelerate_8gpu.yaml).

The loss is of the completions alone. The folder gets the adapter, and ``training.json``, which says how it
was made. The same command goes on from the last checkpoint, or does nothing if it had finished.

This is a program of its own, not a command: accelerate starts it once per device, each with its own rank.
"""

from __future__ import annotations

import json
import shutil
import sys
import time
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, Literal

from core.errors import ConfigError, CoragError, DataError
from core.files import replacing, write_atomically
from core.hugging_face import reading_weights
from core.options import parse
from core.runs.environment import environment
from core.runs.stamp import Stamp, refuse_differences
from eval.experiment.opening import ENGINE_LOG, log_to, quiet
from generation.adapters import TRAINING, adapter_folder, check_adapter, read_manifest
from generation.models import context_window, folder_digest, model_folder, native_dtype
from generation.rendering import Renderer
from training.config import WATCHING, SftConfig
from training.launched import check_launch, is_first, is_first_here, pin_one_gpu, process_count
from training.memory import keep_freed_memory
from training.rows import held_out_named, read_report

CHECKPOINTS = "checkpoints"
# What does not change what is learned may differ when an interrupted training goes on.
_ENVIRONMENT = ("out", "rows", *WATCHING)
ADAPTER, WEIGHTS = "adapter_config.json", "adapter_model.safetensors"


def main(config: SftConfig) -> dict[str, Any]:
    """Train, save the adapter or model with its manifest, and return the manifest.

    Raises :class:`ConfigError` or :class:`DataError` for rows that do not suit the model or the options,
    before anything is trained.
    """
    out = Path(config.out)
    folder = model_folder(config.model)
    rows = load_rows(config, folder)
    settings = settings_of(config, folder)
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
    done = f"model {config.model} and {len(rows['train'])} rows are loaded" if first else ""
    with quiet(f"loading model {config.model} and its rows", done) as say:
        trainer = make_trainer(config, folder, rows)
        if first and config.tuning == "full" and config.save_steps:
            say(f"corag: {about_checkpoints(trainer, out)}")
    # All processes have met by now, so the first one's line is written.
    if not first and read_manifest(out) is None:
        raise DataError(
            f"'{config.out}' on this machine is not the folder that the first process writes to: several "
            "machines need a --out that they share, and the same rows and model."
        )
    manifest["result"] = train(trainer, config, rows)
    if trainer.is_world_process_zero():
        write_atomically(out / TRAINING, json.dumps(manifest, indent=1) + "\n")
    return manifest


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


def train(trainer: Any, config: SftConfig, rows: Any) -> dict[str, Any]:
    """Train from the last checkpoint on, evaluate, save, and return figures for the manifest.

    ``tokens_per_second`` counts prompts too: all that the model reads.
    """
    out = Path(config.out)
    started, last = time.perf_counter(), last_checkpoint(out)
    trained = trainer.train(resume_from_checkpoint=last)
    seconds = time.perf_counter() - started
    losses = trainer.evaluate() if "validation" in rows else {}
    save(trainer, config, out)
    epochs = float(trained.metrics.get("epoch", config.epochs))
    tokens = sum(len(ids) for ids in rows["train"]["input_ids"])
    return {
        "steps": trained.global_step,
        "epochs": epochs,
        # After a resume transformers averages only what came since.
        "train_loss": None if last else trained.training_loss,
        "first_loss": next((entry["loss"] for entry in trainer.state.log_history if "loss" in entry), None),
        "evaluation": {name: value for name, value in losses.items() if name.endswith("_loss")},
        "row_tokens": tokens,
        "seconds": seconds,
        "resumed_from": Path(last).name if last else "",
        "tokens_per_second": None if last else tokens * epochs / seconds,
    }


def said_of(config: SftConfig, result: Mapping[str, Any]) -> str:
    """Say in two lines what a training made, and how to use it. All figures are in its manifest."""
    loss = "" if result["train_loss"] is None else f", mean loss {result['train_loss']:.3f}"
    losses = "".join(f", {name} {value:.3f}" for name, value in result["evaluation"].items())
    used = "name" if config.tuning == "full" else "adapter"
    made = f"{result['steps']} steps, {result['epochs']:.2f} epochs, {result['seconds']:.0f} s{loss}{losses}"
    return (
        f"{config.out}: {made} (all figures: {config.out}/{TRAINING})\n"
        f"Use it: corag run --method corag --model.{used} {config.out} ..."
    )


def load_rows(config: SftConfig, folder: str) -> Any:
    """Load the rows that suit the model in ``folder``, each with something to learn and within the limits.

    Raises :class:`ConfigError` for rows of another tokenizer, :class:`DataError` naming the row that does not
    fit: it would be cut without a word, and its end is what is learned.
    """
    import datasets

    report = read_report(Path(config.rows))
    if report is None:
        raise DataError(f"'{config.rows}' is no folder of rows: make them with 'corag rows'.")
    chat: Literal["auto", "no"] = "no" if report.settings["tokenizer"].endswith("no chat") else "auto"
    if Renderer.load(folder, chat).fingerprint != report.settings["tokenizer"]:
        raise ConfigError(
            f"the rows in '{config.rows}' were written with another tokenizer or chat template than that of "
            f"'{config.model}': make them again with 'corag rows --model {config.model}'."
        )
    if (named := held_out_named(report)) and is_first():
        sys.stderr.write(
            f"corag: '{config.rows}' teaches questions of {', '.join(named)}, which by that name are for "
            "testing: do not report figures on them for this model.\n"
        )
    rows = datasets.load_from_disk(config.rows)
    limit = config.max_length or report.settings["rows"]["max_length"]
    window = context_window(folder) or limit
    for split in rows:
        for number, (ids, mask) in enumerate(
            zip(rows[split]["input_ids"], rows[split]["completion_mask"], strict=True)
        ):
            wrong = (
                f"has {len(ids)} tokens, more than max_length {limit}: training would cut off its reply"
                if len(ids) > limit
                else f"has {len(ids)} tokens, but '{config.model}' was made to read {window} at once"
                if len(ids) > window
                else "has no token to learn"
                if not any(mask)
                else ""
            )
            if wrong:
                row = rows[split][number]
                raise DataError(
                    f"row {number} of '{config.rows}/{split}' ({row['task']} of question "
                    f"'{row['question_id']}') {wrong}. Make the rows again with 'corag rows', with a "
                    "--rows.max_length that suits."
                )
    return rows


def settings_of(config: SftConfig, folder: str) -> dict[str, Any]:
    """Everything that the result depends on, as it stands in training.json.

    ``resolved``: what "auto" came to on this machine. Weights are known by their digests, wherever they lie.
    """
    report = read_report(Path(config.rows))
    assert report is not None
    options = {name: value for name, value in asdict(config).items() if name not in _ENVIRONMENT}
    if config.adapter:
        options["adapter"] = {
            "name": config.adapter,
            "digest": folder_digest(adapter_folder(config.adapter), weights_only=True),
        }
    resolved = {
        "precision": precision_of(config),
        "batching": batching_of(config),
        "rows_per_update": config.batch_size * config.accumulation * process_count(),
    }
    base = {"name": config.model, "digest": folder_digest(folder, weights_only=True)}
    settings = {
        "base": base,
        "options": options,
        "resolved": resolved,
        "rows": report.settings | {"questions": report.questions, "tokens": report.tokens},
    }
    plain: dict[str, Any] = json.loads(json.dumps(settings))
    return plain


def make_trainer(config: SftConfig, folder: str, rows: Any) -> Any:
    """Build TRL's trainer."""
    from transformers import AutoTokenizer
    from transformers.trainer_callback import PrinterCallback

    from training.trainer import CompletionTrainer, SpokenSteps

    tokenizer = AutoTokenizer.from_pretrained(folder)
    # The collator wants some token to pad with; which one does not matter, as padding is never looked at.
    if tokenizer.pad_token is None:
        tokenizer.pad_token = tokenizer.eos_token
    # TRL would tokenise the texts again, and not as decoding does: it gets tokens and mask alone.
    columns = ["input_ids", "completion_mask"]
    validation = rows.get("validation")
    evaluated = validation and {
        task: validation.filter(lambda row, task=task: row["task"] == task).select_columns(columns)
        for task in sorted(set(validation["task"]))
    }
    # Before the model: it starts the process group.
    chosen = arguments(config, rows, evaluates=bool(evaluated))
    model, peft_config = make_model(config, folder)
    trainer = CompletionTrainer(
        model=model,
        args=chosen,
        train_dataset=rows["train"].select_columns(columns),
        eval_dataset=evaluated,
        processing_class=tokenizer,
        peft_config=peft_config,
        callbacks=[SpokenSteps()],
    )
    trainer.remove_callback(PrinterCallback)
    # CompletionTrainer computes the loss itself, and knows of no other term.
    if trainer.aux_loss_enabled:
        raise ConfigError(
            f"'{config.model}' is a mixture of experts, whose balancing loss is not computed here: use TRL's "
            "own SFTTrainer."
        )
    for weight in trainer.model.parameters():
        # TRL rounds adapters of 4-bit models to bfloat16, in which small updates are lost
        if weight.requires_grad:
            weight.data = weight.data.float()
    return trainer


def make_model(config: SftConfig, folder: str) -> tuple[Any, Any]:
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


def arguments(config: SftConfig, rows: Any, *, evaluates: bool) -> Any:
    """Say it to TRL.

    Its own defaults cut rows at 1,024 tokens, compute activations twice everywhere and pad at random.
    """
    import torch
    from trl import SFTConfig

    on_gpu = torch.cuda.is_available()
    longest = max(len(ids) for split in rows for ids in rows[split]["input_ids"])
    checkpointing = (
        on_gpu if config.gradient_checkpointing == "auto" else config.gradient_checkpointing == "yes"
    )
    batching = batching_of(config)
    # TRL cuts what is longer than max_length, so it is the longest row there is. Rows behind one another have
    # no length of their own: any limit would cut the batch.
    said = SFTConfig(
        output_dir=str(Path(config.out) / CHECKPOINTS),
        max_length=None if batching == "padding_free" else longest,
        completion_only_loss=True,
        padding_free=batching == "padding_free",
        train_sampling_strategy="group_by_length" if batching == "by_length" else "random",
        num_train_epochs=config.epochs,
        max_steps=config.max_steps or -1,
        per_device_train_batch_size=config.batch_size,
        per_device_eval_batch_size=config.batch_size,
        gradient_accumulation_steps=config.accumulation,
        gradient_checkpointing=checkpointing,
        learning_rate=config.learning_rate,
        lr_scheduler_type="constant_with_warmup" if config.schedule == "constant" else config.schedule,
        warmup_steps=config.warmup,
        weight_decay=config.weight_decay,
        bf16=precision_of(config) == "bfloat16",
        use_cpu=not on_gpu,
        eval_strategy="steps" if evaluates and config.eval_steps else "no",
        eval_steps=config.eval_steps or None,
        save_strategy="steps" if config.save_steps else "no",
        save_steps=config.save_steps or 500,
        # The last may be half written when the power fails; whole models are too large to keep two.
        save_total_limit=1 if config.tuning == "full" else 2,
        logging_steps=config.logging_steps,
        logging_first_step=True,
        report_to=list(config.report_to),
        disable_tqdm=True,  # SpokenSteps says how far it is
        seed=config.seed,
        data_seed=config.seed,
        dataloader_pin_memory=on_gpu,
    )
    if said.n_gpu > 1:
        raise ConfigError(
            f"this process sees {said.n_gpu} GPUs, over which transformers would copy the model: set "
            "CUDA_VISIBLE_DEVICES to one of them, or start a process for each with corag train "
            f"--launch=--multi_gpu,--num_processes,{said.n_gpu} ..."
        )
    return said


def precision_of(config: SftConfig) -> str:
    """Return the precision of the arithmetic."""
    import torch

    if config.precision != "auto":
        return config.precision
    native = native_dtype(on_cpu=not torch.cuda.is_available())
    return native if native == "bfloat16" else "float32"  # small gradients vanish in float16


def batching_of(config: SftConfig) -> str:
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


def attention_of(config: SftConfig, folder: str) -> str:
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


def save(trainer: Any, config: SftConfig, out: Path) -> None:
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


if __name__ == "__main__":
    pinned = pin_one_gpu()  # first: torch keeps to the GPUs that it saw when it was first asked for any
    import torch

    if not torch.cuda.is_available():
        keep_freed_memory()  # of this process; main() leaves its caller's alone
    try:
        summary = "fine-tune a model on training rows"
        options = parse(SftConfig, sys.argv[1:], "training/sft.py", summary)
        for line in filter(None, (pinned, check_launch())):
            print(f"corag: {line}", file=sys.stderr)  # noqa: T201
        outcome = main(options)
    except CoragError as error:
        if is_first_here():
            print(f"corag: {error}", file=sys.stderr)  # noqa: T201
        sys.exit(2)
    if is_first():
        print(said_of(options, outcome["result"]))  # noqa: T201
