"""The steps of a chain as lines for people: what chat clients and agents show as reasoning."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from corag.core.tools import GenerateStep, SearchStep, Step

_MOST_TITLES = 5  # of a search
_RETRY = "/retry "  # in the path of a step that asks once more for a sub-query


class Reasoning:
    """Renders steps, given one by one, as they end.

    A chain that repeats itself asks again up to two dozen times: that is one line, at what follows.
    """

    def __init__(self) -> None:
        self._asked_again: Counter[str] = Counter()  # by place

    def line(self, step: Step) -> str:
        """Return a step's lines, each with its line break; "" if it has nothing to show."""
        path, retry, _ = step.path.partition(_RETRY)
        if retry:
            self._asked_again[path] += 1
            return ""
        again = "".join(
            f"[{each}] repeated itself: asked again {self._asked_again.pop(each)} times\n"
            for each in list(self._asked_again)
            # Chains grow side by side: what another one does says nothing of this one.
            if each.split("/")[0] == step.path.split("/")[0] or "/" not in step.path
        )
        return again + _lines(step)


def reasoning(steps: Iterable[Step]) -> list[str]:
    """Return the lines of all steps of an answer, without line breaks."""
    lines = Reasoning()
    return [line.strip() for step in steps if (line := lines.line(step))]


def _lines(step: Step) -> str:
    label = f"[{step.path}] " if step.path else ""
    if isinstance(step, SearchStep):
        if not step.query.strip():
            return ""
        titles = list(dict.fromkeys(hit.passage.title or hit.passage.id for hit in step.hits))
        more = f" and {len(titles) - _MOST_TITLES} more" if len(titles) > _MOST_TITLES else ""
        note = f"  {step.note}\n" if step.note else ""
        listing = "; ".join(titles[:_MOST_TITLES]) or "nothing"
        return f"{label}searched: {step.query}\n{note}  found: {listing}{more}\n"
    if isinstance(step, GenerateStep):
        role = step.role.replace("_", " ")
        return "".join(f"{label}{role}: {' '.join(text.split())}\n" for text in step.texts if text.strip())
    return ""
