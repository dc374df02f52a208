"""What all kinds of baselines have in common: the folder of their prompts, and the passages they found."""

from __future__ import annotations

from pathlib import Path

from corag.core.errors import ConfigError
from corag.core.tools import SearchStep, Tools

PROMPTS = Path(__file__).parent / "prompts"


def check_few_shot(method: str, preset: str, demonstrations: str, prompt: str) -> None:
    """Raise :class:`ConfigError` for a preset "paper" with neither worked examples nor the user's prompt."""
    if preset == "paper" and not demonstrations and prompt == "auto":
        raise ConfigError(
            f"{method}'s preset 'paper' is few-shot: name a file of worked examples with "
            f"'{method}.demonstrations', or 'default' for the shipped ones, or use the preset 'zero_shot'."
        )


def list_found_ids(tools: Tools) -> tuple[str, ...]:
    """Return the ids of all passages that the question's searches found, in order.

    What the budget no longer let the model read counts too: recall is about the searches.
    """
    hits = (hit for step in tools.steps if isinstance(step, SearchStep) for hit in step.hits)
    return tuple(dict.fromkeys(hit.passage.id for hit in hits))
