"""On-policy distillation with TRL's real trainer on a tiny real model."""

from __future__ import annotations

import signal
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import datasets
import pytest
import torch
from safetensors.torch import load_file

from corag.core.errors import BackendError, ConfigError, DataError
from corag.generation.rendering import Renderer
from tests.messages import raises_message
from tests.serving import served_model
from tests.tiny import save_tiny_model, save_tiny_t5
from tests.training.conftest import PASSAGES, make_rows
from tests.training.launching import launched
from training import distill
from training.config import LoraOptions
from training.distill import DistillConfig, prompt_pairs
from training.rows import read_report
from training.sft import load_rows

pytestmark = pytest.mark.slow

Options = Callable[..., DistillConfig]


@pytest.fixture(scope="module")
def privileged_rows(tmp_path_factory: pytest.TempPathFactory, tiny_model: str) -> str:
    folder = tmp_path_factory.mktemp("privileged")
    tasks = ("sub_query", "sub_answer", "final_answer", "draft")
    return make_rows(folder, tiny_model, purpose="distillation", tasks=tasks)


@pytest.fixture
def options(privileged_rows: str, tiny_model: str, tmp_path: Path) -> Options:
    """Return a maker of options for a quick distillation into a folder of the test's own."""

    def make(**changes: Any) -> DistillConfig:
        quick = {
            "rows": [privileged_rows], "out": str(tmp_path / "adapter"), "model": tiny_model,
            "precision": "float32", "save_precision": "float32", "batch_size": 4, "max_steps": 2,
            "learning_rate": 5e-3, "logging_steps": 1, "warmup": 0.0, "max_reply": 6,
        }  # fmt: skip
        return DistillConfig(**(quick | changes))

    return make


def trainer_of(config: DistillConfig) -> Any:
    rows = load_rows(config, config.model)
    prompts = {split: prompt_pairs(part, config, config.model) for split, part in rows.items()}
    return distill.make_trainer(config, config.model, prompts)


def test_the_teacher_reads_what_the_student_has_to_find_out(
    privileged_rows: str, tiny_model: str, tmp_path: Path
) -> None:
    renderer = Renderer.load(tiny_model)
    plain = datasets.load_from_disk(make_rows(tmp_path, tiny_model))
    found = datasets.load_from_disk(privileged_rows)
    texts = {each.title: each.text for each in PASSAGES}
    for split, rows in found.items():
        assert set(rows["task"]) == {"sub_query", "sub_answer", "final_answer"}
        assert rows["input_ids"] == plain[split]["input_ids"], "the student's rows are those of fine-tuning"
        for row in rows:
            read = renderer.decode(row["privileged_context"])
            if row["task"] == "sub_answer":
                shown = [title for title, text in texts.items() if text.strip() in read]
                asked = renderer.decode(row["input_ids"])
                assert len(shown) == 1 and row["completion"].strip() in texts[shown[0]]
                assert sum(text.strip() in asked for text in texts.values()) == 2
            else:
                assert row["completion"].strip() in read
    report = read_report(Path(privileged_rows))
    assert report is not None and len(report.plain) == 8
    assert "rows without privileged context, left out: 8 (draft 8)" in " ".join(report.lines())


def test_a_model_learns_from_itself_with_privileged_context(options: Options) -> None:
    config = options(lora=LoraOptions(rank=8))
    manifest = distill.main(config)
    result = manifest["result"]
    assert result["steps"] == 2 and result["first_loss"] > 0
    assert 0 < result["evaluation"]["kl_after"] != result["evaluation"]["kl_before"] > 0
    weights = load_file(Path(config.out) / "adapter_model.safetensors")
    assert any(weight.abs().max() > 0 for name, weight in weights.items() if "lora_B" in name)
    assert manifest["settings"]["options"]["teacher"] == {"name": "", "digest": ""}
    assert result["trained_for"]["corag"]
    assert distill.main(config) == manifest, "what has finished is left as it is"
    printed = distill.summarise(config, manifest)
    assert "kl_before" in printed and f"corag push {config.out} OWNER/NAME" in printed


def test_prompts_reach_student_and_teacher_whole(options: Options, tiny_model: str, tmp_path: Path) -> None:
    """TRL's own limit is 512 tokens, from the left."""
    title = "Mayor of Bost"
    long = [replace(each, text=each.text * 60) if each.title == title else each for each in PASSAGES]
    config = options(rows=[make_rows(tmp_path / "long", tiny_model, long, purpose="distillation")])
    trainer = trainer_of(config)
    rows = trainer.train_dataset
    longest = max(range(len(rows)), key=lambda number: len(rows[number]["privileged_context"]))
    assert len(rows[longest]["privileged_context"]) > 600
    batch = trainer._prepare_training_batch([rows[longest], rows[0]])
    for place, number in enumerate((longest, 0)):
        for name, column in (("prompt", "prompt"), ("teacher_input", "privileged_context")):
            mask = batch["prompt_mask" if name == "prompt" else "teacher_attention_mask"][place].bool()
            read = batch[f"{name}_ids"][place][mask].tolist()
            assert read[: len(rows[number][column])] == rows[number][column]


@pytest.mark.parametrize("start", [False, True])
def test_a_teacher_that_knows_no_more_is_no_further_than_rounding(
    start: bool, options: Options, tiny_model: str, tmp_path: Path
) -> None:
    """The base model for a new adapter; for one that is trained further, the model with it."""
    if not start:
        same = options(teacher=tiny_model, privileged=False)
        result = distill.main(same)["result"]
        assert result["evaluation"]["kl_before"] == pytest.approx(0, abs=1e-4)
        return
    first = options(out=str(tmp_path / "first"))
    distill.main(first)
    trainer = trainer_of(options(adapter=first.out))
    ids = torch.tensor([trainer.train_dataset[0]["prompt"]])
    torch.testing.assert_close(trainer.teacher_model(ids).logits, trainer.model(ids).logits)
    with trainer.model.disable_adapter():
        assert not torch.allclose(trainer.teacher_model(ids).logits, trainer.model(ids).logits)


def test_a_larger_model_teaches(options: Options, tmp_path: Path) -> None:
    larger = save_tiny_model(tmp_path / "larger", seed=3, hidden=96)
    result = distill.main(options(teacher=larger, privileged=False, learning_rate=2e-2, max_steps=20))[
        "result"
    ]
    assert 0 < result["evaluation"]["kl_after"] < result["evaluation"]["kl_before"]


def test_a_larger_model_behind_a_server_teaches(options: Options, tiny_model: str, tmp_path: Path) -> None:
    """vLLM's own server, whose heads are of 64 numbers at least; of a student like it, it is no further than
    rounding."""
    larger = save_tiny_model(tmp_path / "larger", seed=3, hidden=256)
    few = make_rows(tmp_path / "few", tiny_model, purpose="distillation", tasks=("final_answer",))
    asked = options(rows=[few], teacher=larger, privileged=False, max_steps=1)
    with served_model(larger, "--max-logprobs", "100") as url:
        far = distill.main(replace(asked, teacher_url=url))["result"]
        like = replace(asked, model=larger, teacher_url=url, out=str(tmp_path / "like"))
        near = distill.main(like)["result"]
    assert far["steps"] == 1 and far["evaluation"]["kl_before"] > 0.1
    assert near["evaluation"]["kl_before"] == pytest.approx(0, abs=1e-3)
    with raises_message(BackendError):
        distill.main(replace(asked, teacher_url="http://127.0.0.1:9", out=str(tmp_path / "other")))


def test_a_whole_model_is_distilled(options: Options) -> None:
    config = options(tuning="full")
    assert distill.main(config)["result"]["steps"] == 2
    assert (Path(config.out) / "model.safetensors").is_file()


def test_what_cannot_be_distilled_is_refused(options: Options, rows: str, tmp_path: Path) -> None:
    with raises_message(ConfigError):
        options(privileged=False)
    with raises_message(ConfigError):
        options(teacher_url="http://localhost:8000")
    with raises_message(DataError):
        distill.main(options(rows=[rows]))
    config = options(privileged=False, teacher="larger", max_reply=1)
    taught = load_rows(config, config.model)["train"]
    room = 4096 - max(map(len, prompt_pairs(taught, config, config.model)["prompt"]))
    prompt_pairs(taught, replace(config, max_reply=room), config.model)
    with raises_message(DataError):
        prompt_pairs(taught, replace(config, max_reply=room + 1), config.model)
    with raises_message(ConfigError):
        distill.main(options(teacher=save_tiny_t5(tmp_path / "other")))


@pytest.mark.drill
def test_killed_in_the_middle_it_ends_as_if_it_had_not_been(options: Options, tmp_path: Path) -> None:
    """In a later epoch, where prompts come in another order; what is sampled goes on, too."""
    once = options(max_steps=16, save_steps=2, out=str(tmp_path / "once"))
    twice = replace(once, out=str(tmp_path / "twice"))
    with (tmp_path / "log").open("w") as log:
        process = launched(str(distill.__file__), twice, tmp_path, log, dies_after=10)
    assert process.wait() == -signal.SIGKILL, (tmp_path / "log").read_text()
    resumed, whole = distill.main(twice)["result"], distill.main(once)["result"]
    assert resumed["resumed_from"].startswith("checkpoint-") and whole["resumed_from"] == ""
    assert resumed["epochs"] > 1 and resumed["evaluation"] == pytest.approx(whole["evaluation"], abs=1e-3)
    before, after = (load_file(Path(each.out) / "adapter_model.safetensors") for each in (once, twice))
    for name in before:
        torch.testing.assert_close(after[name], before[name], rtol=0, atol=1e-5)
