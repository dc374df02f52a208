"""What all kinds of baselines have in common: the folder of their prompts, and the passages they found."""

from __future__ import annotations

from pathlib import Path

from corag.core.tools import SearchStep, Tools

PROMPTS = Path(__file__).parent / "prompts"


def list_found_ids(tools: Tools) -> tuple[str, ...]:
    """Return the ids of all passages that the question's searches found, in order.

    What the budget no longer let the model read counts too: recall is about the searches.
    """
    hits = (hit for step in tools.steps if isinstance(step, SearchStep) for hit in step.hits)
    return tuple(dict.fromkeys(hit.passage.id for hit in hits))
