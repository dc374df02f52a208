"""A training that is started for one process or several trains with so many, on what it was meant for."""

from __future__ import annotations

import json
import os
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

from corag.generation.adapters import read_manifest
from corag.generation.models import native_dtype
from tests.training.test_sft import SFT, trainer_of
from training.config import SftConfig
from training.model_setup import save_model
from training.program import resolve_precision
from training.sft import build_sft_arguments, load_rows, main

Options = Callable[..., SftConfig]


@pytest.fixture(autouse=True)
def started_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """The environment of a process that nobody launched."""
    names = "WORLD_SIZE RANK LOCAL_RANK MASTER_ADDR ACCELERATE_USE_CPU ACCELERATE_USE_FSDP"
    for name in names.split():
        monkeypatch.delenv(name, raising=False)


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


def test_one_process_keeps_to_one_gpu(options: Options, monkeypatch: pytest.MonkeyPatch) -> None:
    """transformers would copy the model to all that it sees, which TRL refuses."""
    from trl import SFTConfig

    monkeypatch.setattr(SFTConfig, "_setup_devices", torch.device("cpu"))
    monkeypatch.setattr(SFTConfig, "_n_gpu", 4, raising=False)
    assert build_sft_arguments(options()).n_gpu == 1


def launched(words: list[str], config: SftConfig, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run training/sft.py under a launcher."""
    file = folder / "options.yaml"
    file.write_text(yaml.safe_dump(json.loads(json.dumps(asdict(config)))))
    search = os.pathsep.join(filter(None, [str(Path(SFT).parents[1]), os.environ.get("PYTHONPATH")]))
    environment = os.environ | {"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "", "PYTHONPATH": search}
    command = [sys.executable, "-m", *words, SFT, "--config", str(file)]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600)


@pytest.mark.slow
def test_two_processes_learn_what_one_does(options: Options, tmp_path: Path) -> None:
    """Each takes half of the rows of every update, over gloo; one of them writes and speaks."""
    # Two whole updates: a last one of fewer rows is filled up with rows of the first, in each process.
    rows = len(load_rows(options(), options().model)["train"]) // 4 * 2
    # Adam turns the rounding of tiny gradients into whole steps.
    exact = {"precision": "float32", "save_precision": "float32"}
    alone = options(batching="padded", batch_size=rows, max_steps=2, **exact)
    both = replace(alone, batch_size=rows // 2, out=str(tmp_path / "both"))
    main(alone)
    second = launched(
        ["torch.distributed.run", "--nproc_per_node", "2", "--master_port", "29511"], both, tmp_path
    )
    assert second.returncode == 0, second.stderr
    assert second.stdout.count("2 steps") == 1 and len(second.stdout.splitlines()) == 4
    assert second.stderr.count("corag: step 2 of 2, loss ") == 1 and "it/s" not in second.stderr
    one, two = read_manifest(Path(alone.out)), read_manifest(Path(both.out))
    assert one is not None and two is not None
    assert one["settings"]["resolved"] == two["settings"]["resolved"]
    assert two["settings"]["resolved"]["rows_per_update"] == rows
    assert two["result"]["first_loss"] == pytest.approx(one["result"]["first_loss"], abs=1e-4)
    weights, others = (load_file(Path(each.out) / "adapter_model.safetensors") for each in (alone, both))
    for name, weight in weights.items():
        torch.testing.assert_close(others[name], weight, rtol=0, atol=2e-3)
