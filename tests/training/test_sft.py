"""Fine-tuning with TRL's real trainer on a tiny real model: what is learned, and what is refused."""

from __future__ import annotations

import itertools
import json
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import datasets
import pytest
import torch
from peft import AutoPeftModelForCausalLM
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, AutoTokenizer

from corag.core.errors import ConfigError, DataError
from corag.generation.adapters import merge_adapter, read_manifest
from corag.generation.models import folder_digest, model_folder
from tests.fakes import passage
from tests.messages import raises_message
from tests.tiny import save_tiny_base_model, save_tiny_mixture
from tests.training.conftest import PASSAGES, make_rows
from tests.training.launching import launched, write_options
from training.checkpoints import describe_resume, full_disk_refused, last_checkpoint
from training.config import LoraOptions, SftConfig
from training.sft import load_rows, main, make_trainer
from training.trainer import CompletionTrainer

pytestmark = pytest.mark.slow

Options = Callable[..., SftConfig]
SFT = str(Path(__file__).parents[2] / "training/sft.py")


def trainer_of(config: SftConfig) -> Any:
    trainer = make_trainer(config, config.model, load_rows(config, config.model))
    trainer.model.train()
    return trainer


def batch_of(trainer: Any, rows: datasets.Dataset, numbers: list[int]) -> dict[str, torch.Tensor]:
    batch = trainer.data_collator([trainer.train_dataset[number] for number in numbers])
    assert len({len(rows[number]["input_ids"]) for number in numbers}) == len(numbers)  # so there is padding
    return {name: values.to(trainer.model.device) for name, values in batch.items()}


def by_hand(model: Any, rows: datasets.Dataset, numbers: list[int]) -> torch.Tensor:
    """Mean negative log-likelihood of all completion tokens, one row at a time, without padding."""
    total, count = torch.zeros((), device=model.device), 0
    for number in numbers:
        ids = torch.tensor(rows[number]["input_ids"], device=model.device)
        logprobs = model(input_ids=ids[None]).logits[0].float().log_softmax(-1)
        for place, learned in enumerate(rows[number]["completion_mask"]):
            if learned:
                total, count = total - logprobs[place - 1, ids[place]], count + 1
    return total / count


def gradients(model: Any, loss: torch.Tensor) -> dict[str, torch.Tensor]:
    model.zero_grad()
    loss.backward()
    return {name: weight.grad.clone() for name, weight in model.named_parameters() if weight.grad is not None}


def trl_trainer_of(config: SftConfig, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The trainer as a machine with a GPU has it: its output layer is TRL's."""
    with monkeypatch.context() as patch:
        patch.setattr("training.sft.has_gpu", lambda: True)
        return trainer_of(config)


@pytest.mark.parametrize("tuning", ["full", "lora"])
def test_the_loss_is_that_of_the_completion_tokens_alone(
    tuning: str, options: Options, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By hand, as we compute it on a CPU, and as TRL does, which a GPU leaves it to."""
    config = options(tuning=tuning)
    rows = load_rows(config, config.model)["train"]
    trainers = [trainer_of(config), trl_trainer_of(config, monkeypatch)]
    assert "compute_loss" not in vars(CompletionTrainer)
    numbers = [0, 4, 9, 12]
    expected = by_hand(trainers[0].model, rows, numbers)
    by_name = gradients(trainers[0].model, expected)
    assert any(gradient.abs().max() > 1e-3 for gradient in by_name.values())
    for trainer in trainers:
        loss = trainer.compute_loss(trainer.model, batch_of(trainer, rows, numbers))
        assert loss.item() == pytest.approx(expected.item(), abs=1e-5)
        found = gradients(trainer.model, loss)
        assert found.keys() == by_name.keys()
        for name, gradient in by_name.items():
            torch.testing.assert_close(found[name], gradient, rtol=1e-4, atol=1e-6)
    logged = [trainer._metrics["train"] for trainer in trainers]
    for name in ("entropy", "mean_token_accuracy", "num_tokens"):
        assert logged[0][name] == pytest.approx(logged[1][name], abs=1e-5)


def test_a_mixture_of_experts_is_trained_with_its_balancing_loss(
    options: Options, tiny_model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = save_tiny_mixture(tmp_path / "mixture", tiny_model)
    config = options(model=folder, batching="padded", max_steps=1)
    rows = load_rows(config, config.model)["train"]
    found = []
    for trainer in (trainer_of(config), trl_trainer_of(config, monkeypatch)):
        assert trainer.aux_loss_enabled
        loss = trainer.compute_loss(trainer.model, batch_of(trainer, rows, [0, 4, 9]))
        found.append([loss.item(), *trainer._metrics["train"]["aux_loss"]])
    assert found[0] == pytest.approx(found[1], abs=1e-5)
    assert found[0][1] > 0 and found[0][0] > by_hand(trainer.model, rows, [0, 4, 9]).item()
    manifest = main(config)
    assert manifest["result"]["steps"] == 1 and manifest["starts"][0]["base_folder"] == folder
    (step, *_) = [line for line in metrics_of(config) if "loss" in line]
    assert step["aux_loss"] > 0


def test_a_micro_batch_counts_by_its_share_of_the_tokens(
    options: Options, monkeypatch: pytest.MonkeyPatch
) -> None:
    trainer = trainer_of(options())
    batches = [trainer.data_collator([trainer.train_dataset[number]]) for number in (0, 4)]
    batches = [{name: values.to(trainer.model.device) for name, values in batch.items()} for batch in batches]
    tokens = [int((batch["labels"] != -100).sum()) for batch in batches]
    assert tokens[0] != tokens[1]
    alone = [trainer.compute_loss(trainer.model, dict(batch)).item() for batch in batches]
    share = [
        trainer.compute_loss(trainer.model, dict(b), num_items_in_batch=sum(tokens)).item() for b in batches
    ]
    assert sum(share) == pytest.approx(
        sum(n * loss for n, loss in zip(tokens, alone, strict=True)) / sum(tokens)
    )
    trl = trl_trainer_of(options(), monkeypatch)
    theirs = [trl.compute_loss(trl.model, dict(b), num_items_in_batch=sum(tokens)).item() for b in batches]
    assert share == pytest.approx(theirs, abs=1e-5)


@pytest.mark.parametrize("fused", [False, True])
def test_a_task_counts_in_the_loss_as_its_weight_says(
    fused: bool, options: Options, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain, weights = options(), {"sub_query": 2.0, "final_answer": 0.0}
    make = partial(trl_trainer_of, monkeypatch=monkeypatch) if fused else trainer_of
    trainers = [make(each) for each in (plain, replace(plain, task_weights=weights))]
    rows = load_rows(plain, plain.model)["train"]
    assert "weight" not in trainers[1].eval_dataset["final_answer"].column_names, "evaluated as ever"
    numbers = [rows["task"].index(task) for task in ("sub_query", "sub_answer", "final_answer")]
    learned = [sum(rows[each]["completion_mask"]) for each in numbers]
    means = [by_hand(trainers[0].model, rows, [each]) for each in numbers]
    for trainer, factors in zip(trainers, ((1, 1, 1), (2, 1, 0)), strict=True):
        loss = trainer.compute_loss(trainer.model, batch_of(trainer, rows, numbers))
        parts = zip(factors, means, learned, strict=True)
        expected = sum(factor * mean * count for factor, mean, count in parts) / sum(learned)
        assert loss.item() == pytest.approx(expected.item(), abs=1e-5)


def test_the_trainer_gets_every_token_of_every_row(options: Options, tiny_model: str, tmp_path: Path) -> None:
    # TRL would cut rows at 1,024 tokens.
    long = [
        *PASSAGES[:2],
        passage("Mayor of Bost", "The mayor of Bost is Mara Velden the 1th. " * 100),
        *PASSAGES[3:],
    ]
    config = options(rows=[make_rows(tmp_path / "long", tiny_model, long)])
    rows = load_rows(config, tiny_model)
    assert max(map(len, rows["train"]["input_ids"])) > 1100
    trainer = trainer_of(config)
    assert list(trainer.train_dataset["input_ids"]) == list(rows["train"]["input_ids"])
    for row, label in zip(rows["train"], trainer.train_dataset["labels"], strict=True):
        learned = [
            token for token, mask in zip(row["input_ids"], row["completion_mask"], strict=True) if mask
        ]
        assert [token for token in label if token != -100] == learned
        assert learned[-1] == trainer.processing_class.convert_tokens_to_ids("<|im_end|>")
        assert trainer.processing_class.decode(learned[:-1]) == row["completion"]


def test_a_row_that_does_not_fit_is_named_not_cut(options: Options) -> None:
    rows = load_rows(options(), options().model)
    lengths = {split: [len(ids) for ids in rows[split]["input_ids"]] for split in rows}
    longest = max(itertools.chain(*lengths.values()))
    split = next(split for split in lengths if longest in lengths[split])
    where = rf"row {lengths[split].index(longest)} of '.*/{split}' \(\w+ of question 'q\d'\)"
    short = options(max_length=longest - 1)
    with pytest.raises(DataError, match=f"{where} has {longest} tokens, more than .*{longest - 1}"):
        load_rows(short, short.model)
    assert main(options(max_length=longest, max_steps=1))["result"]["steps"] == 1


def test_an_adapter_keeps_its_size(options: Options, tmp_path: Path) -> None:
    start = options(max_steps=1, lora=LoraOptions(rank=4))
    main(start)
    (tmp_path / "plain").touch()
    for file in (Path(start.out) / "adapter_model.safetensors", Path(start.out) / "adapter_config.json"):
        assert file.stat().st_mode == (tmp_path / "plain").stat().st_mode, "others read it as the umask says"
    further = options(adapter=start.out, max_steps=1, out=str(tmp_path / "further"))
    assert main(replace(further, lora=LoraOptions(rank=4)))["result"]["steps"] == 1
    with pytest.raises(ConfigError, match=r"lora.rank is 8.* that is trained on has 4"):
        main(replace(further, lora=LoraOptions(rank=8), out=str(tmp_path / "other")))


def test_a_row_with_nothing_to_learn_is_named(options: Options, rows: str, tmp_path: Path) -> None:
    def blank(row: dict[str, Any], number: int) -> dict[str, Any]:
        return {"completion_mask": [0] * len(row["completion_mask"])} if number == 5 else {}

    spoilt = datasets.load_from_disk(rows)
    spoilt["train"] = spoilt["train"].map(blank, with_indices=True)
    spoilt.save_to_disk(tmp_path / "spoilt")
    (tmp_path / "spoilt/report.json").write_bytes((Path(rows) / "report.json").read_bytes())
    with raises_message(DataError):
        main(options(rows=[str(tmp_path / "spoilt")]))
    assert not (tmp_path / "adapter").exists()


def test_rows_for_another_chat_template_are_refused(
    options: Options, tiny_model: str, tmp_path: Path
) -> None:
    other = tmp_path / "other"
    AutoModelForCausalLM.from_pretrained(tiny_model).save_pretrained(other)
    tokenizer = AutoTokenizer.from_pretrained(tiny_model)
    tokenizer.chat_template = str(tokenizer.chat_template).replace("<|im_start|>", "<|turn|>")
    tokenizer.save_pretrained(other)
    with pytest.raises(ConfigError, match=f"another tokenizer or chat template.*corag rows --model {other}"):
        main(options(model=str(other)))


def test_rows_of_several_folders_are_learned_from_together(
    options: Options, rows: str, tiny_model: str, tmp_path: Path
) -> None:
    more = make_rows(tmp_path / "more", tiny_model)
    both = options(rows=[rows, more], out=str(tmp_path / "both"), max_steps=1)
    alone = {name: load_rows(options(rows=[name]), tiny_model) for name in (rows, more)}
    loaded = load_rows(both, tiny_model)
    for split, found in loaded.items():
        assert found["input_ids"] == [*alone[rows][split]["input_ids"], *alone[more][split]["input_ids"]]
    assert [each["tokenizer"] for each in main(both)["settings"]["rows"]] == [
        main(options(max_steps=1))["settings"]["rows"][0]["tokenizer"]
    ] * 2


def test_a_folder_without_rows_is_refused(options: Options, tmp_path: Path) -> None:
    with raises_message(DataError):
        main(options(rows=[str(tmp_path)]))


@pytest.mark.filterwarnings("error:Unable to fetch remote file")
def test_training_learns_and_says_how_it_was_made(
    options: Options, tiny_model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Under the name "default" the base model has another name than its folder.
    (tmp_path / "cache/models").mkdir(parents=True)
    (tmp_path / "cache/models/SmolLM2-135M-Instruct").symlink_to(tiny_model)
    monkeypatch.setenv("CORAG_CACHE", str(tmp_path / "cache"))
    config = options(model="default", max_steps=30, learning_rate=2e-2, lora=LoraOptions(rank=8, alpha=16))
    manifest = main(config)
    result = manifest["result"]
    assert result["steps"] == 30
    is_fast = torch.cuda.is_available() or torch.cpu._is_amx_tile_supported()
    assert result["attention"] == ("sdpa" if is_fast else "corag_blockwise")
    assert result["train_loss"] < 0.7 * result["first_loss"]
    assert sorted(result["evaluation"]) == [
        f"eval_{t}_loss" for t in ("final_answer", "sub_answer", "sub_query")
    ]
    assert all(0 < loss < result["first_loss"] for loss in result["evaluation"].values())
    assert manifest == read_manifest(tmp_path / "adapter")
    settings = manifest["settings"]
    assert settings["base"]["name"] == "default"
    assert settings["options"]["learning_rate"] == 2e-2 and settings["options"]["lora"]["rank"] == 8
    assert settings["rows"][0]["questions"] == 8 and settings["rows"][0]["chains"][0]["model"] == "by hand"
    assert [each["resumed_from"] for each in manifest["starts"]] == [""] and manifest["starts"][0]["versions"]
    assert manifest["starts"][0]["base_folder"] == "", "the default model is the project's own"
    adapter = json.loads((tmp_path / "adapter/adapter_config.json").read_text())
    assert adapter["r"] == 8
    plain = AutoPeftModelForCausalLM.from_pretrained(str(tmp_path / "adapter"))
    assert plain.peft_config["default"].base_model_name_or_path == model_folder("default")
    assert any(weights.abs().max() > 0 for name, weights in weights_of(config).items() if "lora_B" in name)


def metrics_of(config: SftConfig) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (Path(config.out) / "metrics.jsonl").read_text().splitlines()]


def test_what_is_logged_stands_in_a_file(options: Options) -> None:
    config = options(max_steps=3, logging_steps=1)
    result = main(config)["result"]
    lines = metrics_of(config)
    steps = [line for line in lines if "loss" in line]
    assert [line["step"] for line in steps] == [1, 2, 3] and steps[0]["loss"] == result["first_loss"]
    assert all({"entropy", "mean_token_accuracy", "learning_rate"} <= line.keys() for line in steps)
    figures: dict[str, float] = {}
    for line in lines:
        figures |= line
    assert result["evaluation"].items() <= figures.items()


def test_figures_of_a_resumed_training_are_of_all_its_starts(options: Options) -> None:
    config = options(max_steps=4, save_steps=2, logging_steps=10)
    whole = main(config)["result"]
    out = Path(config.out)
    shutil.rmtree(out / "checkpoints/checkpoint-4")
    manifest = json.loads((out / "training.json").read_text())
    (out / "training.json").write_text(json.dumps(manifest | {"result": None}))
    metrics = out / "metrics.jsonl"  # as if the first start had taken a hundred times the memory and more
    metrics.write_text(metrics.read_text().replace('"peak_memory_gb": ', '"peak_memory_gb": 99'))
    manifest = main(config)
    # Without the evaluation that follows, which is logged at the last step too.
    result = manifest["result"]
    seconds = {line["step"]: line["seconds"] for line in metrics_of(config) if "loss" in line}
    assert [each["resumed_from"] for each in manifest["starts"]] == ["", "checkpoint-2"]
    assert result["train_loss"] == pytest.approx(whole["train_loss"], abs=1e-3)
    assert result["tokens_read"] == whole["tokens_read"] < 4 * result["row_tokens"]
    assert result["peak_memory_gb"] > 100 > whole["peak_memory_gb"]
    assert result["seconds"] >= seconds[2] + (seconds[4] - seconds[2]) > seconds[2]
    assert result["tokens_per_second"] == pytest.approx(result["tokens_read"] / result["seconds"])


def test_the_tokens_that_were_read_are_those_of_the_rows_times_the_epochs(options: Options) -> None:
    result = main(options(max_steps=0, epochs=2.0))["result"]
    assert result["epochs"] == 2.0 and result["tokens_read"] == 2 * result["row_tokens"]
    assert 0.1 < result["peak_memory_gb"] < 100


def weights_of(config: SftConfig) -> dict[str, torch.Tensor]:
    return dict(load_file(Path(config.out) / "adapter_model.safetensors"))


def test_the_same_command_again_does_nothing_and_another_is_refused(options: Options) -> None:
    config = options()
    first = main(config)
    written = {path: path.stat().st_mtime_ns for path in Path(config.out).iterdir()}
    assert main(options(report_to=("none",), logging_steps=5)) == first
    assert written == {path: path.stat().st_mtime_ns for path in Path(config.out).iterdir()}
    with raises_message(ConfigError):
        main(options(learning_rate=0.01))


def test_the_seed_decides_and_weights_are_saved_in_the_precision_asked_for(
    options: Options, tmp_path: Path
) -> None:
    def train(number: int, **changes: Any) -> tuple[float, dict[str, torch.Tensor]]:
        config = options(out=str(tmp_path / str(number)), **changes)
        return main(config)["result"]["train_loss"], weights_of(config)

    (loss, exact), (loss_again, rounded), (_, other) = (
        train(1, seed=1, save_precision="float32"),
        train(2, seed=1),
        train(3, seed=2),
    )
    assert loss == loss_again
    assert {weights.dtype for weights in exact.values()} == {torch.float32}
    assert {weights.dtype for weights in rounded.values()} == {torch.bfloat16}
    assert all(torch.equal(weights, exact[name].bfloat16()) for name, weights in rounded.items())
    assert not all(torch.equal(rounded[name], other[name]) for name in rounded)


def test_an_adapter_can_be_trained_further(options: Options, tmp_path: Path) -> None:
    start = options()
    main(start)
    further = options(adapter=start.out, out=str(tmp_path / "further"), max_steps=2)
    assert main(further)["settings"]["options"]["adapter"] == {
        "name": start.out,
        "digest": folder_digest(start.out, weights_only=True),
    }
    before, after = weights_of(start), weights_of(further)
    assert before.keys() == after.keys()
    changed = [(before[name] - after[name]).abs().max().item() for name in before]
    assert min(changed) > 0 and max(changed) < 0.1  # moved from where it was, not begun anew
    with raises_message(ConfigError):
        main(options(adapter=str(tmp_path), out=str(tmp_path / "third")))


def test_full_tuning_writes_a_model(options: Options, tiny_model: str) -> None:
    config = options(tuning="full", learning_rate=1e-3)
    main(config)
    assert not (Path(config.out) / "adapter_config.json").exists()
    saved = load_file(Path(config.out) / "model.safetensors")
    assert {weight.dtype for weight in saved.values()} == {torch.bfloat16}, (
        "half of the space, as it is served"
    )
    assert json.loads((Path(config.out) / "config.json").read_text())["dtype"] == "bfloat16"
    trained, base = (
        AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
        for folder in (config.out, tiny_model)
    )
    moved = [
        not torch.equal(a, b)
        for a, b in zip(trained.state_dict().values(), base.state_dict().values(), strict=True)
    ]
    assert all(moved)
    assert (
        AutoTokenizer.from_pretrained(config.out).chat_template
        == AutoTokenizer.from_pretrained(tiny_model).chat_template
    )


def test_a_base_model_that_was_taught_turns_is_saved_with_the_token_that_ends_them(
    options: Options, tmp_path: Path
) -> None:
    base = save_tiny_base_model(tmp_path / "base")
    rows = make_rows(tmp_path / "rows", base)
    ends = {}
    for tuning in ("full", "lora"):
        config = options(tuning=tuning, model=base, rows=[rows], out=str(tmp_path / tuning))
        main(config)
        folder = config.out
        if tuning == "lora":
            folder = str(tmp_path / "merged")
            merge_adapter(base, config.out, Path(folder), "float32")
        tokenizer = AutoTokenizer.from_pretrained(folder)
        saved = json.loads((Path(folder) / "generation_config.json").read_text())["eos_token_id"]
        ends[tuning] = set(tokenizer.convert_ids_to_tokens(saved))
    assert ends == {"full": {"<|endoftext|>", "<|im_end|>"}, "lora": {"<|endoftext|>", "<|im_end|>"}}


def test_only_whole_checkpoints_are_gone_on_from(tmp_path: Path) -> None:
    assert last_checkpoint(tmp_path) is None and describe_resume(tmp_path) == "begins"

    def write(step: int, state: str | None = "{}", cut: str = "") -> None:
        folder = tmp_path / f"checkpoints/checkpoint-{step}"
        folder.mkdir(parents=True)
        save_file({"a": torch.ones(3)}, folder / "adapter_model.safetensors")
        for name in ("optimizer.pt", "scheduler.pt"):
            torch.save({"step": step}, folder / name)
        if state is not None:
            (folder / "trainer_state.json").write_text(state)
        if cut:
            (folder / cut).write_bytes((folder / cut).read_bytes()[:-9])

    for step, state in ((4, "{}"), (10, "{}"), (12, None), (14, ""), (16, '{"epoch": 1')):
        write(step, state)
    for step, cut in ((18, "adapter_model.safetensors"), (20, "optimizer.pt"), (22, "scheduler.pt")):
        write(step, cut=cut)
    assert Path(last_checkpoint(tmp_path) or "").name == "checkpoint-10"
    torn = ", ".join(f"checkpoint-{step}" for step in range(22, 10, -2))
    assert describe_resume(tmp_path) == f"goes on from checkpoint-10 ({torn}: torn, left out)"
    write(24)
    (tmp_path / "checkpoints/checkpoint-24/optimizer.pt").unlink()
    assert "checkpoint-24, which lacks the optimizer's state" in describe_resume(tmp_path)


@pytest.mark.parametrize("write", [torch.save, save_file, lambda value, path: path.write_bytes(bytes(10**6))])
def test_a_disk_that_is_full_at_a_checkpoint_is_a_sentence(
    tmp_path: Path, write: Callable[..., object]
) -> None:
    usual = resource.getrlimit(resource.RLIMIT_FSIZE)
    with pytest.raises(DataError, match="the disk is full"), full_disk_refused(tmp_path):
        resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, usual[1]))
        try:
            write({"weights": torch.zeros(10**5)}, tmp_path / "weights")
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, usual)
    with pytest.raises(RuntimeError), full_disk_refused(tmp_path):
        raise RuntimeError("expected scalar type Float")


def test_killed_in_the_middle_it_ends_as_if_it_had_not_been(options: Options, tmp_path: Path) -> None:
    once = options(
        max_steps=30,
        save_steps=2,
        lora=LoraOptions(dropout=0.1),
        save_precision="float32",
        out=str(tmp_path / "once"),
    )
    twice = replace(once, out=str(tmp_path / "twice"))
    with (tmp_path / "log").open("w") as log:
        process = launched(SFT, twice, tmp_path, log, dies_after=14)  # in a later epoch
    assert process.wait() == -signal.SIGKILL, (tmp_path / "log").read_text()
    begun = read_manifest(tmp_path / "twice")
    assert begun is not None and begun["result"] is None  # it had not finished
    assert not (tmp_path / "twice/adapter_config.json").exists()
    torn = tmp_path / "twice/checkpoints/checkpoint-28"
    torn.mkdir()
    (torn / "adapter_model.safetensors").touch()
    resumed, whole = main(twice)["result"], main(once)["result"]
    assert re.fullmatch(r"checkpoint-\d+", resumed["resumed_from"]) and resumed["resumed_from"] != torn.name
    assert resumed["steps"] == whole["steps"] == 30 and whole["resumed_from"] == ""
    before, after = weights_of(once), weights_of(twice)
    for name in before:
        torch.testing.assert_close(after[name], before[name], rtol=0, atol=1e-5)
    steps = [[line["step"] for line in metrics_of(each)] for each in (once, twice)]
    assert steps[0] == steps[1], "each step stands there once"
    assert resumed["evaluation"] == pytest.approx(whole["evaluation"], abs=1e-4)


TORCHRUN = """
import sys
import training.stages as stages

command = [sys.executable, "-m", "torch.distributed.run", "--nproc_per_node", "2"]
sys.exit(stages.run_and_wait([*command, *sys.argv[1:]]))
"""


@pytest.mark.drill
def test_sigterm_lets_all_processes_of_a_training_write_the_checkpoint(
    options: Options, tmp_path: Path
) -> None:
    """torch's launcher, which accelerate uses for several GPUs, has a handler of its own."""
    config = options(max_steps=400, save_steps=1000)
    write_options(config, tmp_path)
    command = [sys.executable, "-c", TORCHRUN, SFT, "--config", str(tmp_path / "options.yaml")]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(Path(SFT).parents[1])}
    with (tmp_path / "log").open("w") as log:
        process = subprocess.Popen(command, env=environment, stdout=log, stderr=log, start_new_session=True)
        while process.poll() is None and not (Path(config.out) / "metrics.jsonl").exists():
            time.sleep(0.02)
        process.send_signal(signal.SIGTERM)
        assert process.wait(240) == -signal.SIGTERM
    text = (tmp_path / "log").read_text()
    stopped = re.search(r"SIGTERM stopped the training: (checkpoint-\d+) is", text)
    assert stopped and Path(last_checkpoint(Path(config.out)) or "").name == stopped[1], text
    assert list((Path(config.out) / "checkpoints" / stopped[1]).glob("rng_state_1*")), "and the second's part"


def test_sigterm_writes_a_checkpoint_from_which_the_training_goes_on(
    options: Options, tmp_path: Path
) -> None:
    """Sent to accelerate alone, which ends at once."""
    config = options(max_steps=60, save_steps=1000)
    kept = stop_with_sigterm(config, tmp_path)
    resumed = main(config)["result"]
    assert resumed["resumed_from"] == kept != "checkpoint-60" and resumed["steps"] == 60
    assert [line["step"] for line in metrics_of(config) if "loss" in line] == list(range(1, 61))


def stop_with_sigterm(config: SftConfig, folder: Path) -> str:
    """Start a training, send it the signal, and return the name of the checkpoint that it leaves."""
    out, file = Path(config.out), folder / "log"
    with file.open("w") as log:
        process = launched(SFT, config, folder, log)
        while process.poll() is None and not (out / "metrics.jsonl").exists():
            time.sleep(0.02)
        process.send_signal(signal.SIGTERM)
        assert process.wait(240) == -signal.SIGTERM
    for _ in range(1000):  # the training ends a little after accelerate
        if "SIGTERM stopped the training" in file.read_text():
            break
        time.sleep(0.05)
    stopped = re.search(r"SIGTERM stopped the training: (checkpoint-\d+) is", file.read_text())
    assert stopped and Path(last_checkpoint(out) or "").name == stopped[1], file.read_text()
    begun = read_manifest(out)
    assert begun is not None and begun["result"] is None
    assert not (out / "adapter_config.json").exists()
    return stopped[1]
