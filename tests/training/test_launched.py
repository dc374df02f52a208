"""A training that is started for one process or several trains with so many, on what it was meant for."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from safetensors.torch import load_file

from corag.core.errors import ConfigError
from corag.generation.adapters import read_manifest
from corag.generation.models import native_dtype
from tests.messages import raises_message
from tests.training.test_sft import SFT, trainer_of
from training.config import SftConfig
from training.launched import check_launch, pin_one_gpu
from training.model_setup import resolve_precision, save_model
from training.sft import build_arguments, load_rows, main

Options = Callable[..., SftConfig]
NO_GPU = pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")


@pytest.fixture(autouse=True)
def started_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """The environment of a process that nobody launched."""
    for name in (
        "WORLD_SIZE",
        "RANK",
        "LOCAL_RANK",
        "MASTER_ADDR",
        "ACCELERATE_USE_CPU",
        "ACCELERATE_USE_FSDP",
    ):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize(
    ("visible", "gpus", "kept"),
    [
        (None, 4, "0"), ("2,3", 2, "2"), ("GPU-8f1c,GPU-77aa", 2, "GPU-8f1c"), ("3", 1, "3"), (None, 0, None),
        ("", 0, ""),
    ],
)  # fmt: skip
def test_a_process_that_trains_alone_sees_one_gpu(
    visible: str | None, gpus: int, kept: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: gpus)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    said = pin_one_gpu()
    assert os.environ.get("CUDA_VISIBLE_DEVICES") == kept
    assert (f"one of the {gpus} GPUs (CUDA_VISIBLE_DEVICES={kept})" in said) == (gpus > 1)


def test_one_of_several_processes_sees_what_its_launcher_gave_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 4)
    monkeypatch.setenv("WORLD_SIZE", "4")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,5,6,7")
    assert pin_one_gpu() == "" and os.environ["CUDA_VISIBLE_DEVICES"] == "4,5,6,7"


def test_a_model_is_not_copied_to_several_gpus(options: Options, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where it was too late to keep the process to one, as in a notebook that has used them."""
    from trl import SFTConfig

    monkeypatch.setattr(SFTConfig, "n_gpu", property(lambda self: 2))
    config = options()
    with raises_message(ConfigError):
        build_arguments(config, evaluates=False)


@NO_GPU
def test_a_training_that_was_meant_for_gpus_says_that_there_are_none(monkeypatch: pytest.MonkeyPatch) -> None:
    assert check_launch() == ""
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    assert "made for GPUs but finds none, so this trains on the CPU" in check_launch()
    monkeypatch.setenv("ACCELERATE_USE_FSDP", "true")
    with raises_message(ConfigError):
        check_launch()
    monkeypatch.setenv("ACCELERATE_USE_CPU", "True")
    assert check_launch() == "", "that is a choice"


@pytest.mark.parametrize("by_choice", ["True", "False"])
def test_several_processes_of_which_accelerate_starts_one_are_refused(
    by_choice: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its launcher sets these for --num_processes 2, with --cpu and without."""
    monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
    assert check_launch() == "" or "trains on the CPU" in check_launch(), "not accelerate's"
    monkeypatch.setenv("ACCELERATE_USE_CPU", by_choice)
    with raises_message(ConfigError):
        check_launch()
    monkeypatch.setenv("WORLD_SIZE", "2")
    check_launch()


def test_gpus_without_bfloat16_train_in_float32_and_decode_in_float16(
    options: Options, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    for supported, decoding, training in ((True, "bfloat16", "bfloat16"), (False, "float16", "float32")):
        monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda *_, said=supported, **__: said)
        assert native_dtype(on_cpu=False) == decoding
        assert resolve_precision(options(precision="auto")) == training


@pytest.mark.parametrize("precision", ["bfloat16", "float32"])
def test_an_adapter_that_is_gathered_from_several_gpus_is_saved_as_asked(
    precision: Any, options: Options, monkeypatch: pytest.MonkeyPatch
) -> None:
    """FSDP gathers the weights as they were trained, and hands them to what saves the model."""
    config = options(save_precision=precision)
    trainer = trainer_of(config)
    gathered = {name: weight.detach().float() for name, weight in trainer.model.state_dict().items()}
    monkeypatch.setattr(trainer, "save_model", lambda out: trainer._save(out, state_dict=gathered))
    save_model(trainer, config, Path(config.out))
    weights = load_file(Path(config.out) / "adapter_model.safetensors")
    assert {weight.dtype for weight in weights.values()} == {getattr(torch, precision)}


def launched(words: list[str], config: SftConfig, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run training/sft.py under a launcher."""
    file = folder / "options.yaml"
    file.write_text(yaml.safe_dump(json.loads(json.dumps(asdict(config)))))
    search = os.pathsep.join(filter(None, [str(Path(SFT).parents[1]), os.environ.get("PYTHONPATH")]))
    environment = os.environ | {"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "", "PYTHONPATH": search}
    command = [sys.executable, "-m", *words, SFT, "--config", str(file)]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600)


@pytest.mark.slow
def test_accelerate_does_not_train_with_one_process_where_two_were_asked_for(
    options: Options, tmp_path: Path
) -> None:
    words = "accelerate.commands.launch --quiet --cpu --num_processes 2 --num_machines 1".split()
    done = launched([*words, "--mixed_precision", "no", "--dynamo_backend", "no"], options(), tmp_path)
    assert done.returncode != 0 and "Traceback" not in done.stderr
    assert done.stderr.count("starts only one without mpirun: start them with torchrun") == 1
    assert not (tmp_path / "adapter").exists()


@pytest.mark.slow
def test_two_processes_learn_what_one_does(options: Options, tmp_path: Path) -> None:
    """Each takes half of the rows of every update, over gloo; one of them writes and speaks."""
    # Two whole updates: a last one of fewer rows is filled up with rows of the first, in each process.
    rows = len(load_rows(options(), options().model)["train"]) // 4 * 2
    # Adam turns the rounding of tiny gradients into whole steps.
    exact = {"precision": "float32", "save_precision": "float32"}
    alone = options(batching="padded", batch_size=rows, max_steps=2, **exact)
    both = replace(alone, batch_size=rows // 2, out=str(tmp_path / "both"))
    words = ["torch.distributed.run", "--nproc_per_node", "1", "--master_port", "29511"]
    first = launched(words, alone, tmp_path)
    assert first.returncode == 0, first.stderr
    words[2] = "2"
    second = launched(words, both, tmp_path)
    assert second.returncode == 0, second.stderr
    assert second.stdout.count("2 steps") == 1 and len(second.stdout.splitlines()) == 3
    assert second.stderr.count("corag: step 2 of 2, loss ") == 1 and "it/s" not in second.stderr
    one, two = read_manifest(Path(alone.out)), read_manifest(Path(both.out))
    assert one is not None and two is not None
    assert one["settings"]["resolved"] == two["settings"]["resolved"]
    assert two["settings"]["resolved"]["rows_per_update"] == rows
    assert two["result"]["first_loss"] == pytest.approx(one["result"]["first_loss"], abs=1e-4)
    weights, others = (load_file(Path(each.out) / "adapter_model.safetensors") for each in (alone, both))
    for name, weight in weights.items():
        torch.testing.assert_close(others[name], weight, rtol=0, atol=2e-3)


@pytest.mark.slow
def test_machines_that_share_no_folder_are_told_so(options: Options, tmp_path: Path) -> None:
    """Two machines, each with a folder of that name."""
    file = tmp_path / "options.yaml"
    file.write_text(yaml.safe_dump(json.loads(json.dumps(asdict(options(out="adapter", max_steps=1))))))
    search = os.pathsep.join(filter(None, [str(Path(SFT).parents[1]), os.environ.get("PYTHONPATH")]))
    group = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29512", "PYTHONPATH": search}
    machines = []
    for rank in "01":
        (tmp_path / rank).mkdir()
        ranks = {"RANK": rank, "LOCAL_RANK": "0", "CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"}
        machines.append(
            subprocess.Popen(
                [sys.executable, SFT, "--config", str(file)],
                cwd=tmp_path / rank,
                env=os.environ | group | ranks,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
        )
    said = machines[1].communicate(timeout=300)[1]
    machines[0].kill()
    machines[0].communicate()
    assert machines[1].returncode == 2 and "several machines need a folder 'out' that they share" in said


def test_what_checkpoints_of_a_whole_model_take_is_said(
    options: Options, capfd: pytest.CaptureFixture[str]
) -> None:
    config = options(tuning="full", save_steps=1, max_steps=3)
    main(config)
    assert re.search(r"a checkpoint takes about [\d.]+ GB in .*One is kept", capfd.readouterr().err)
    assert [path.name for path in (Path(config.out) / "checkpoints").glob("checkpoint-*")] == ["checkpoint-3"]
