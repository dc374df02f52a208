"""Which runs of a table were asked with prompts that their model was not trained for.

Beside a method whose model was fine-tuned for its prompts, such a run looks worse than its method is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from corag.core.runs.manifest import Manifest

MARK = "†"


@dataclass(frozen=True, slots=True)
class UntrainedRuns:
    """The runs, and a sentence for each adapter or fine-tuned model, "" where there are none.

    Attributes:
        runs: by name, the methods that the run's model was trained for.
        note: what to tell a reader.
    """

    runs: Mapping[str, Sequence[str]] = field(default_factory=dict)
    note: str = ""

    def mark_name(self, name: str) -> str:
        """Return a run's name, with a mark if it is one of them."""
        return f"{name} {MARK}" if name in self.runs else name

    def to_json(self) -> dict[str, Any]:
        """Return both as a JSON object; nothing if there are no such runs."""
        runs = {name: list(methods) for name, methods in self.runs.items()}
        return {"trained_for_others": runs, "training_note": self.note} if runs else {}


def find_untrained(manifests: Mapping[str, Manifest]) -> UntrainedRuns:
    """Return the runs whose model was fine-tuned, but not for all of the prompts that their method asks.

    What a model learned before, or an adapter from elsewhere, is not known: such runs are not among them.
    Nor is it known what a method of the user's asks, if it names no prompts: its runs are.
    """
    trained_for = {name: manifest.last.trained_for for name, manifest in manifests.items()}
    runs = {
        name: tuple(trained_for[name])
        for name, manifest in manifests.items()
        if trained_for[name]
        and (
            _asks_unknown(manifest)
            or not set(manifest.prompts)
            <= {each for prompts in trained_for[name].values() for each in prompts}
        )
    }
    by_weights: dict[tuple[str, Sequence[str], bool], list[str]] = {}
    for name, methods in runs.items():
        start = manifests[name].last
        weights = f"adapter '{start.adapter}'" if start.adapter else f"model '{start.model}'"
        by_weights.setdefault((weights, methods, _asks_unknown(manifests[name])), []).append(name)
    sentences = [
        f"{MARK} {_join(names)}: the {weights} was trained for {_join(methods)}, not "
        f"{'known to be for the prompts of your own method' if unknown else 'for these prompts'}. "
        "With a model trained for them such a row might be higher; that was not measured."
        for (weights, methods, unknown), names in by_weights.items()
    ]
    return UntrainedRuns(runs, " ".join(sentences))


def _asks_unknown(manifest: Manifest) -> bool:
    """Whether a run is of a method of the user's that names no prompts."""
    return bool(manifest.settings.get("code")) and not manifest.prompts


def _join(names: Sequence[str]) -> str:
    """Write names as a list.

    >>> _join(["closed_book", "one_step", "ircot"])
    'closed_book, one_step and ircot'
    """
    *first, last = names
    return f"{', '.join(first)} and {last}" if first else last
