"""Fine-tuning with TRL's real trainer on a tiny real model: what is learned, and what is refused."""

from __future__ import annotations

import itertools
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import datasets
import pytest
import torch
import yaml
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import SFTTrainer

from core.errors import ConfigError, DataError
from generation.adapters import read_manifest
from generation.models import folder_digest
from tests.fakes import passage
from tests.training.conftest import PASSAGES, make_rows
from training.config import LoraOptions, SftConfig
from training.sft import load_rows, main, make_trainer
from training.tuning import last_checkpoint

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


@pytest.mark.parametrize("tuning", ["full", "lora"])
def test_the_loss_is_that_of_the_completion_tokens_alone(tuning: str, options: Options) -> None:
    config = options(tuning=tuning)
    rows = load_rows(config, config.model)["train"]
    trainer = trainer_of(config)
    numbers = [0, 4, 9, 12]
    batch = batch_of(trainer, rows, numbers)
    expected = by_hand(trainer.model, rows, numbers)
    ours = trainer.compute_loss(trainer.model, dict(batch))
    theirs = SFTTrainer.compute_loss(trainer, trainer.model, dict(batch))
    assert ours.item() == pytest.approx(expected.item(), abs=1e-5)
    assert theirs.item() == pytest.approx(expected.item(), abs=1e-5)
    found = [gradients(trainer.model, loss) for loss in (expected, ours, theirs)]
    assert found[0].keys() == found[1].keys() == found[2].keys()
    assert any(gradient.abs().max() > 1e-3 for gradient in found[0].values())
    for name, gradient in found[0].items():
        torch.testing.assert_close(found[1][name], gradient, rtol=1e-4, atol=1e-6)
        torch.testing.assert_close(found[2][name], gradient, rtol=1e-4, atol=1e-6)


def test_a_micro_batch_counts_by_its_share_of_the_tokens(options: Options) -> None:
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
    theirs = [
        SFTTrainer.compute_loss(trainer, trainer.model, dict(b), num_items_in_batch=sum(tokens)).item()
        for b in batches
    ]
    assert share == pytest.approx(theirs, abs=1e-5)


def test_one_batch_of_eight_is_eight_of_one(options: Options, tmp_path: Path) -> None:
    found = []
    for rows, steps in ((8, 1), (1, 8)):
        config = options(
            batch_size=rows,
            accumulation=steps,
            batching="padded",
            max_steps=2,
            out=str(tmp_path / f"{rows}x{steps}"),
        )
        result = main(config)["result"]
        assert result["steps"] == 2
        found.append([result["first_loss"], result["train_loss"]])
    assert found[0] == pytest.approx(found[1], abs=1e-4)


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
    with pytest.raises(DataError, match=f"{where} has {longest} tokens, more than max_length {longest - 1}"):
        main(options(max_length=longest - 1))
    assert main(options(max_length=longest, max_steps=1))["result"]["steps"] == 1


def test_an_adapter_keeps_its_size(options: Options, tmp_path: Path) -> None:
    start = options(max_steps=1, lora=LoraOptions(rank=4))
    main(start)
    further = options(adapter=start.out, max_steps=1, out=str(tmp_path / "further"))
    assert main(replace(further, lora=LoraOptions(rank=4)))["result"]["steps"] == 1
    for name, lora in (
        ("rank is 8", LoraOptions(rank=8)), ("dropout is 0.1", LoraOptions(dropout=0.1)),
        ("targets is", LoraOptions(targets=("q_proj",))),
    ):  # fmt: skip
        with pytest.raises(ConfigError, match=f"lora.{name}.* that is trained on has"):
            main(replace(further, lora=lora, out=str(tmp_path / "other")))


@pytest.mark.parametrize("asked, used", [("auto", "corag_blockwise"), ("eager", "eager")])
def test_training_json_names_the_attention_that_was_used(options: Options, asked: str, used: str) -> None:
    config = options(attention=asked, max_steps=1)
    main(config)
    manifest = read_manifest(Path(config.out))
    assert manifest is not None
    assert manifest["result"]["attention"] == (
        "sdpa" if asked == "auto" and torch.cuda.is_available() else used
    )


def test_a_row_with_nothing_to_learn_is_named(options: Options, rows: str, tmp_path: Path) -> None:
    def blank(row: dict[str, Any], number: int) -> dict[str, Any]:
        return {"completion_mask": [0] * len(row["completion_mask"])} if number == 5 else {}

    spoilt = datasets.load_from_disk(rows)
    spoilt["train"] = spoilt["train"].map(blank, with_indices=True)
    spoilt.save_to_disk(tmp_path / "spoilt")
    (tmp_path / "spoilt/report.json").write_bytes((Path(rows) / "report.json").read_bytes())
    with pytest.raises(
        DataError, match=r"row 5 of '.*spoilt/train' \(\w+ of question 'q\d'\) has no token to learn"
    ):
        main(options(rows=[str(tmp_path / "spoilt")]))
    assert not (tmp_path / "adapter").exists()


def test_rows_of_questions_that_are_for_testing_are_warned_of(
    options: Options, rows: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def said(*files: str) -> str:
        folder = tmp_path / "named"
        shutil.copytree(rows, folder, dirs_exist_ok=True)
        report = json.loads((folder / "report.json").read_text())
        (folder / "report.json").write_text(json.dumps(report | {"files": files}))
        config = options(rows=[str(folder)])
        load_rows(config, config.model)
        return capsys.readouterr().err

    assert "teaches questions of hotpot_dev_distractor_v1.json, which by that name are for testing" in said(
        "data/hotpot_dev_distractor_v1.json", "data/train.jsonl"
    )
    assert "for testing" not in said("data/train.jsonl")


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
    # What it was trained on is told of each folder; that of one folder stands as it always did.
    assert [each["tokenizer"] for each in main(both)["settings"]["rows"]] == [
        main(options(max_steps=1))["settings"]["rows"]["tokenizer"]
    ] * 2
    with pytest.raises(DataError, match="names a folder twice"):
        main(options(rows=[rows, f"{rows}/../{Path(rows).name}"]))


def test_a_folder_without_rows_is_refused(options: Options, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no folder of rows: make them with 'corag rows'"):
        main(options(rows=[str(tmp_path)]))


def test_options_that_cannot_work_are_refused(options: Options) -> None:
    for changes, said in (
        ({"rows": []}, "name the rows"),
        ({"batch_size": 0}, "at least 1"),
        ({"learning_rate": 0.0}, "above 0"),
        ({"save_steps": -1}, "negative"),
        ({"tuning": "full", "adapter": "somewhere"}, "leave one of them out"),
    ):
        with pytest.raises(ConfigError, match=said):
            options(**changes)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_four_bits_without_a_gpu_are_refused(options: Options) -> None:
    with pytest.raises(ConfigError, match=r"wants a CUDA GPU.*tuning 'lora'"):
        main(options(tuning="qlora"))


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
    assert result["train_loss"] < 0.7 * result["first_loss"]
    assert sorted(result["evaluation"]) == [
        f"eval_{t}_loss" for t in ("final_answer", "sub_answer", "sub_query")
    ]
    assert all(0 < loss < result["first_loss"] for loss in result["evaluation"].values())
    assert manifest == read_manifest(tmp_path / "adapter")
    settings = manifest["settings"]
    assert settings["base"]["name"] == "default"
    assert settings["options"]["learning_rate"] == 2e-2 and settings["options"]["lora"]["rank"] == 8
    assert settings["rows"]["questions"] == 8 and settings["rows"]["chains"][0]["model"] == "by hand"
    assert manifest["start"]["versions"]
    adapter = json.loads((tmp_path / "adapter/adapter_config.json").read_text())
    assert adapter["base_model_name_or_path"] == "default" and adapter["r"] == 8
    assert any(weights.abs().max() > 0 for name, weights in weights_of(config).items() if "lora_B" in name)


def weights_of(config: SftConfig) -> dict[str, torch.Tensor]:
    return dict(load_file(Path(config.out) / "adapter_model.safetensors"))


def test_the_same_command_again_does_nothing_and_another_is_refused(options: Options) -> None:
    config = options()
    first = main(config)
    written = {path: path.stat().st_mtime_ns for path in Path(config.out).iterdir()}
    assert main(options(report_to=("none",), logging_steps=5)) == first
    assert written == {path: path.stat().st_mtime_ns for path in Path(config.out).iterdir()}
    with pytest.raises(ConfigError, match=r"other settings:\n  options.learning_rate: 0.005 -> 0.01\n"):
        main(options(learning_rate=0.01))


def test_the_seed_decides(options: Options, tmp_path: Path) -> None:
    configs = [options(seed=seed, out=str(tmp_path / str(turn))) for turn, seed in enumerate((1, 1, 2))]
    for config in configs:
        main(config)
    first, again, other = map(weights_of, configs)
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert not all(torch.equal(first[name], other[name]) for name in first)


def test_an_adapter_is_saved_in_the_precision_asked_for(options: Options, tmp_path: Path) -> None:
    coarse, fine = options(), options(save_precision="float32", out=str(tmp_path / "fine"))
    assert main(coarse)["result"]["train_loss"] == main(fine)["result"]["train_loss"]
    rounded, exact = weights_of(coarse), weights_of(fine)
    assert {weights.dtype for weights in rounded.values()} == {torch.bfloat16}
    assert {weights.dtype for weights in exact.values()} == {torch.float32}
    assert all(torch.equal(weights, exact[name].bfloat16()) for name, weights in rounded.items())


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
    with pytest.raises(ConfigError, match="no LoRA adapter"):
        main(options(adapter=str(tmp_path), out=str(tmp_path / "third")))


def test_full_tuning_writes_a_model(options: Options, tiny_model: str) -> None:
    config = options(tuning="full", learning_rate=1e-3)
    main(config)
    assert not (Path(config.out) / "adapter_config.json").exists()
    trained, base = (AutoModelForCausalLM.from_pretrained(folder) for folder in (config.out, tiny_model))
    moved = [
        not torch.equal(a, b)
        for a, b in zip(trained.state_dict().values(), base.state_dict().values(), strict=True)
    ]
    assert all(moved)
    assert (
        AutoTokenizer.from_pretrained(config.out).chat_template
        == AutoTokenizer.from_pretrained(tiny_model).chat_template
    )


def test_rows_of_like_length_are_batched_together(options: Options) -> None:
    spread = []
    for batching in ("by_length", "padded"):
        trainer = trainer_of(options(batching=batching))
        batches = [batch["attention_mask"].sum(1).tolist() for batch in trainer.get_train_dataloader()]
        assert sorted(itertools.chain(*batches)) == sorted(map(len, trainer.train_dataset["input_ids"]))
        spread.append(sum(max(batch) * len(batch) for batch in batches))
    assert spread[0] < spread[1]


def test_only_whole_checkpoints_are_gone_on_from(tmp_path: Path) -> None:
    assert last_checkpoint(tmp_path) is None
    for step, whole in ((4, True), (10, True), (12, False)):
        (tmp_path / f"checkpoints/checkpoint-{step}").mkdir(parents=True)
        (tmp_path / f"checkpoints/checkpoint-{step}/adapter_model.safetensors").touch()
        if whole:
            (tmp_path / f"checkpoints/checkpoint-{step}/trainer_state.json").touch()
    assert Path(last_checkpoint(tmp_path) or "").name == "checkpoint-10"


@pytest.mark.slow
def test_killed_in_the_middle_it_ends_as_if_it_had_not_been(options: Options, tmp_path: Path) -> None:
    once = options(
        max_steps=60,
        save_steps=2,
        lora=LoraOptions(dropout=0.1),
        save_precision="float32",
        out=str(tmp_path / "once"),
    )
    twice = replace(once, out=str(tmp_path / "twice"))
    (tmp_path / "options.yaml").write_text(yaml.safe_dump(json.loads(json.dumps(asdict(twice)))))
    device = [] if torch.cuda.is_available() else ["--cpu"]
    launch = [
        sys.executable,
        "-m",
        "accelerate.commands.launch",
        *device,
        "--num_processes",
        "1",
        "--num_machines",
        "1",
    ]
    launch += [
        "--mixed_precision",
        "no",
        "--dynamo_backend",
        "no",
        SFT,
        "--config",
        str(tmp_path / "options.yaml"),
    ]
    environment = os.environ | {"OMP_NUM_THREADS": str(torch.get_num_threads())}
    with (tmp_path / "log").open("w") as log:
        process = subprocess.Popen(launch, start_new_session=True, env=environment, stdout=log, stderr=log)
    try:
        while _steps(last_checkpoint(tmp_path / "twice")) < 14 and process.poll() is None:  # in a later epoch
            time.sleep(0.02)
    finally:
        os.killpg(process.pid, signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL, (tmp_path / "log").read_text()
    begun = read_manifest(tmp_path / "twice")
    assert begun is not None and begun["result"] is None  # it had not finished
    assert not (tmp_path / "twice/adapter_config.json").exists()
    torn = tmp_path / "twice/checkpoints/checkpoint-58"
    torn.mkdir()
    (torn / "adapter_model.safetensors").touch()
    resumed, whole = main(twice)["result"], main(once)["result"]
    assert re.fullmatch(r"checkpoint-\d+", resumed["resumed_from"]) and resumed["resumed_from"] != torn.name
    assert resumed["steps"] == whole["steps"] == 60 and whole["resumed_from"] == ""
    before, after = weights_of(once), weights_of(twice)
    for name in before:
        torch.testing.assert_close(after[name], before[name], rtol=0, atol=1e-5)
    assert resumed["evaluation"] == pytest.approx(whole["evaluation"], abs=1e-4)


def _steps(checkpoint: str | None) -> int:
    return int(checkpoint.rpartition("-")[2]) if checkpoint else 0
