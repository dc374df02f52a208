"""The plug-in forces the requests that ask for it through every change of the batch, and leaves the others
alone.
"""

from __future__ import annotations

import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from corag.generation.forced import _ForcedDecoding
from tests.messages import raises_message

SWAP, ONE_WAY = SimpleNamespace(name="SWAP"), SimpleNamespace(name="UNIDIRECTIONAL")


def params(target: list[int] | None, max_tokens: int | None = None) -> Any:
    return SimpleNamespace(
        extra_args=None if target is None else {"forced_tokens": target},
        max_tokens=max_tokens if max_tokens is not None else len(target or []),
    )


def update(added: Any = (), removed: Any = (), moved: Any = ()) -> Any:
    return SimpleNamespace(batch_size=4, added=added, removed=removed, moved=moved)


def forced_tokens(plugin: _ForcedDecoding, rows: int = 4, ctx: Any = None) -> dict[int, int]:
    logits = plugin.apply(torch.zeros(rows, 10), ctx)
    return {row: int(logits[row].argmax()) for row in range(rows) if logits[row].isinf().any()}


def test_rows_are_followed_through_arrivals_steps_moves_and_removals() -> None:
    plugin = _ForcedDecoding(None, torch.device("cpu"))
    first: list[int] = []
    second: list[int] = [3]  # was preempted after one token and comes back
    plugin.update_state(
        update(
            added=[
                (0, params([5, 6]), None, first),
                (1, params(None), None, []),
                (2, params([3, 4]), None, second),
            ]
        )
    )
    assert forced_tokens(plugin) == {0: 5, 2: 4}
    first.append(5)
    plugin.update_state(None)
    assert forced_tokens(plugin) == {0: 6, 2: 4}
    plugin.update_state(update(moved=[(0, 1, SWAP)]))
    assert forced_tokens(plugin) == {1: 6, 2: 4}
    plugin.update_state(update(removed=[1], moved=[(2, 1, ONE_WAY)]))
    assert forced_tokens(plugin) == {1: 4}
    plugin.update_state(update(added=[(1, params(None), None, [])]))
    assert forced_tokens(plugin) == {}


def test_a_one_way_move_overwrites_its_goal_and_empties_its_source() -> None:
    plugin = _ForcedDecoding(None, torch.device("cpu"))
    plugin.update_state(update(added=[(0, params([5]), None, []), (3, params([7]), None, [])]))
    plugin.update_state(update(removed=[0], moved=[(3, 0, ONE_WAY)]))
    assert forced_tokens(plugin) == {0: 7}
    plugin.update_state(update(added=[(1, params([2]), None, [])], moved=[(0, 1, SWAP), (1, 2, ONE_WAY)]))
    assert forced_tokens(plugin) == {0: 2, 2: 7}


def test_a_finished_target_and_an_unknown_token_force_nothing() -> None:
    plugin = _ForcedDecoding(None, torch.device("cpu"))
    plugin.update_state(update(added=[(0, params([5]), None, [5]), (1, params([99]), None, [])]))
    assert forced_tokens(plugin) == {}


def test_slots_are_followed_in_the_second_model_runner() -> None:
    prompt_len = SimpleNamespace(np=torch.tensor([0, 8, 0, 6]).numpy())
    plugin = _ForcedDecoding(None, SimpleNamespace(prompt_len=prompt_len))
    assert plugin.add_request(3, params([5, 6])) and plugin.add_request(1, params([1]))
    assert not plugin.add_request(0, params(None))

    def step(slots: list[int], lengths: list[int]) -> Any:
        return SimpleNamespace(
            idx_mapping_np=torch.tensor(slots).numpy(), seq_lens_upper_bound_np=torch.tensor(lengths).numpy()
        )

    # slot 1 has read 3 of its 8 prompt tokens
    assert forced_tokens(plugin, 3, step([0, 3, 1], [4, 6, 3])) == {1: 5}
    assert forced_tokens(plugin, 2, step([3, 1], [7, 8])) == {0: 6, 1: 1}
    assert not plugin.add_request(3, params(None))  # another request in the old slot
    assert forced_tokens(plugin, 1, step([3], [6])) == {}


def drafting(rows: list[tuple[int, int, int]], slots: list[int], upper_bounds: list[int]) -> Any:
    """A step of the second model runner with drafts. ``rows``: slot, place in the request, position."""
    return SimpleNamespace(
        expanded_idx_mapping=torch.tensor([slot for slot, _, _ in rows]),
        expanded_local_pos=torch.tensor([local for _, local, _ in rows]),
        pos=torch.tensor([position for _, _, position in rows]),
        idx_mapping_np=torch.tensor(slots).numpy(),
        seq_lens_upper_bound_np=torch.tensor(upper_bounds).numpy(),
    )


def test_rows_of_drafts_are_forced_by_their_own_request_and_position() -> None:
    """With speculative decoding a request has a row for each draft token, and lengths are an upper bound."""
    prompt_len = SimpleNamespace(np=torch.tensor([0, 8, 0, 6]).numpy())
    plugin = _ForcedDecoding(
        SimpleNamespace(speculative_config=object()), SimpleNamespace(prompt_len=prompt_len)
    )
    plugin.add_request(3, params([5, 6, 7]))
    plugin.add_request(0, params(None))
    # The free request in slot 0 has three rows, before those of the forced one: none of them is touched.
    rows = [(0, 0, 10), (0, 1, 11), (0, 2, 12), (3, 0, 5), (3, 1, 6)]
    assert forced_tokens(plugin, 5, drafting(rows, [0, 3], [13, 7])) == {3: 5, 4: 6}
    # One row a request in this step, but the bound counts a draft that was refused.
    assert forced_tokens(plugin, 2, drafting([(3, 0, 6), (0, 0, 11)], [3, 0], [8, 13])) == {0: 6}
    # Rows behind the end of the target are thrown away by vLLM.
    assert forced_tokens(plugin, 3, drafting([(3, 0, 7), (3, 1, 8), (3, 2, 9)], [3], [10])) == {0: 7}


def test_more_rows_than_requests_are_read_one_by_one_whatever_the_configuration_says() -> None:
    plugin = _ForcedDecoding(None, SimpleNamespace(prompt_len=SimpleNamespace(np=[0, 4])))
    plugin.add_request(1, params([9]))
    rows = [(0, 0, 2), (0, 1, 3), (1, 0, 3)]
    assert forced_tokens(plugin, 3, drafting(rows, [0, 1], [4, 4])) == {2: 9}


@pytest.mark.parametrize("bad", [params([1, 2], max_tokens=3), params([-1]), params("12", max_tokens=2)])
def test_parameters_that_do_not_fit_refuse_the_request(bad: Any) -> None:
    with raises_message(ValueError):
        _ForcedDecoding.validate_params(bad)


def test_importing_the_package_loads_nothing_heavy() -> None:
    modules = "cached config forced models open rendering http.engine "
    modules += "transformers_engine vllm_engine vllm_processes"
    program = f"""
import sys, importlib
for name in {modules.split()!r}:
    importlib.import_module("corag.generation." + name)
print([name for name in ("torch", "vllm", "transformers", "peft") if name in sys.modules])
"""
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "[]"
