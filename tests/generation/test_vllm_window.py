"""A model whose context needs more cache than there is memory reads as much as fits, and says so."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from corag.generation.vllm_engine import _window


def started(fitting: int, asked: int = -1, whole: int = 131_072) -> SimpleNamespace:
    """What vLLM says of a model after it has started."""
    return SimpleNamespace(
        max_model_len=fitting, original_max_model_len=asked, get_and_verify_max_len=lambda _: whole
    )


def test_the_same_context_is_taken_whatever_little_else_is_in_memory() -> None:
    assert {_window(started(fitting))[0] for fitting in (65_536, 98_432, 98_400, 131_056)} == {65_536}
    assert "reads 131,072 tokens at once" in _window(started(98_432))[1][0]
    assert "model.max_context=65536" in _window(started(98_432))[1][0]


@pytest.mark.parametrize("model", [started(131_072), started(3_000, asked=3_000)])
def test_a_context_that_fits_or_was_asked_for_is_left_as_it_is(model: SimpleNamespace) -> None:
    assert _window(model) == (model.max_model_len, ())
