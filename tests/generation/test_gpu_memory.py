"""How much of a GPU vLLM takes, beside what lies there."""

from pathlib import Path

import pytest

from corag.generation import gpu_memory
from tests.core.test_machine import WHOLE, install_driver


@pytest.mark.parametrize(
    ("free", "wanted", "gpus", "share", "told"),
    [
        (79, 0, 1, 0.9, ""),
        (
            60,
            0,
            1,
            0.7,
            "25% of the GPU's memory is taken, by an encoder or by other programs: vLLM takes 70%",
        ),
        (60, 0.8, 1, 0.8, ""),  # as it was asked for: vLLM itself says what is missing
        (79, 0, 2, 0.45, "vLLM takes 45%"),  # the second GPU has half
    ],
)
def test_vllm_takes_what_is_left(
    free: int,
    wanted: float,
    gpus: int,
    share: float,
    told: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    memory = f"0, GPU-aa11, {free}, 80\n1, GPU-bb22, 40, 80\n2, GPU-cc33, 79, 80"
    install_driver(tmp_path, WHOLE, memory, monkeypatch)
    chosen, about = gpu_memory.choose_share(wanted, gpus)
    assert chosen == share and told in about and bool(about) == bool(told)


def test_workers_are_alike_though_an_encoder_is_on_one_gpu(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The context that there is room for is part of a result's identity."""
    install_driver(
        tmp_path, WHOLE, "0, GPU-aa11, 60, 80\n1, GPU-bb22, 79, 80\n2, GPU-cc33, 79, 80", monkeypatch
    )
    free = []
    for gpu in "012":
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", gpu)
        free.append(gpu_memory.measure())
    try:
        gpu_memory.agree(min(share for share in free if share is not None))
        assert gpu_memory.choose_share(0, 1)[0] == 0.7, "on the last, where more is free"
    finally:
        gpu_memory.agree(None)
    assert gpu_memory.choose_share(0, 1) == (0.9, "")
