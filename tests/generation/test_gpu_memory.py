"""How much of a GPU vLLM takes, beside what lies there."""

import json
from pathlib import Path

import pytest

from corag.core.errors import ConfigError
from corag.generation import gpu_memory
from corag.generation.models import weight_bytes
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


GIB = 2**30


@pytest.mark.parametrize(
    ("weights", "cards", "card", "wanted"),
    [
        (131, 1, 80, "needs 2 such cards: model.tensor_parallel=2"),  # Llama-3.3-70B
        (131, 1, 48, "needs 4 such cards: model.tensor_parallel=4"),
        (131, 2, 48, "needs 4 such cards: model.tensor_parallel=4"),
        (61, 1, 48, "needs 2 such cards: model.tensor_parallel=2"),  # Qwen3-32B
        (15, 1, 16, "needs 2 such cards: model.tensor_parallel=2"),
        (1300, 1, 24, "choose a smaller model"),
        (15, 1, 24, ""),
        (131, 2, 80, ""),
        (0, 1, 80, ""),  # of files that say nothing
        (131, 1, 0, ""),  # a part of a GPU, of which the driver says nothing
    ],
)
def test_a_model_that_no_card_holds_is_refused_before_it_is_loaded(
    weights: int, cards: int, card: int, wanted: str
) -> None:
    if not wanted:
        gpu_memory.refuse_too_large("a/model", weights * GIB, cards, card * GIB, 0.9)
        return
    with pytest.raises(ConfigError, match=wanted):
        gpu_memory.refuse_too_large("a/model", weights * GIB, cards, card * GIB, 0.9)


def test_a_models_size_is_read_from_its_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is saved in float32 takes half in bfloat16; Mistral's folders have all weights twice over."""
    for name, dtype, size in (
        ("model-1", "BF16", 100),
        ("model-2", "F32", 40),
        ("consolidated", "BF16", 120),
    ):
        header = json.dumps(
            {f"{name}.weight": {"dtype": dtype, "shape": [size], "data_offsets": [0, size * GIB]}}
        )
        file = tmp_path / f"{name}.safetensors"
        file.write_bytes(len(header).to_bytes(8, "little") + header.encode())
    assert weight_bytes(tmp_path, "bfloat16") == 120 * GIB
    assert weight_bytes(tmp_path, "float32") == 140 * GIB
    install_driver(
        tmp_path,
        WHOLE,
        "0, GPU-aa11, 79000, 81559\n1, GPU-bb22, 40000, 49140\n2, GPU-cc33, 1, 2",
        monkeypatch,
    )
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert [round(gpu_memory.card_bytes(count) / GIB) for count in (1, 2)] == [80, 48]
