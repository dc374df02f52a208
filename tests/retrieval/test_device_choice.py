"""Exact search takes the GPUs where its vectors leave them to the engines, and leaves engines their cores."""

from __future__ import annotations

from pathlib import Path

import pytest

from corag.core.system.installation import cpu_build_note
from eval.experiment.workers.actors import search_threads
from retrieval.config import RetrieverConfig
from retrieval.dense.device_choice import choose_vector_devices, decide
from tests.core.test_machine import WHOLE, install_driver

GB = 1e9
WIKIPEDIA, KILT = (21_015_324, 768), (36_000_000, 1_024)


@pytest.mark.parametrize(
    ("size", "rooms", "where", "line"),
    [
        (WIKIPEDIA, [20 * GB] * 8, "cuda", ""),
        (KILT, [20 * GB] * 8, "cuda", ""),
        (WIKIPEDIA, [20 * GB], "", "64 cores make 178 searches a second at most"),
        (KILT, [20 * GB] * 8 + [6 * GB], "", "64 cores make 78 searches a second"),  # the smallest counts
        ((62_158, 384), [20 * GB], "", ""),  # no work for the cores
    ],
)
def test_vectors_go_to_gpus_of_which_they_take_a_quarter(
    size: tuple[int, int], rooms: list[float], where: str, line: str
) -> None:
    """Eight GPUs ask for 175 searches a second; exact search on 64 cores beside them made 60 to 135."""
    chosen, said = decide(*size, rooms, 64)
    assert chosen == where and line in said and bool(said) == bool(line)


def test_what_was_asked_for_is_done(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    install_driver(tmp_path, WHOLE, "\n".join(f"{n}, GPU-{n}, 79000, 81559" for n in range(3)), monkeypatch)
    assert RetrieverConfig(["index"]).search_device == "auto"
    assert choose_vector_devices("cuda:1", "cpu", *WIKIPEDIA) == ("cuda:1", "")
    assert choose_vector_devices("", "auto", *WIKIPEDIA) == ("", "")
    assert choose_vector_devices("auto", "cpu", *WIKIPEDIA) == ("", "")
    if cpu_build_note():
        assert choose_vector_devices("auto", "auto", *WIKIPEDIA) == ("", ""), "torch's build cannot use them"


@pytest.mark.parametrize(("cores", "engines", "threads"), [(64, 8, 48), (16, 8, 4), (2, 1, 1), (64, 0, 64)])
def test_a_search_server_leaves_engines_the_cores_that_they_keep_busy(
    cores: int, engines: int, threads: int
) -> None:
    assert search_threads(cores, engines) == threads
