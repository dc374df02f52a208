"""The steps of a chain as lines for people: what chat clients and agents show as reasoning."""

from __future__ import annotations

from corag.core.tools import GenerateStep, SearchStep, Step

_MOST_TITLES = 5  # of a search
_RETRY = "/retry "  # in the path of a step that asks once more for a sub-query


def reasoning_line(step: Step) -> str:
    """Return a step's lines, each with its line break; "" if it has nothing to show.

    A chain that repeats itself asks again up to two dozen times, which shows nothing new.
    """
    label = f"[{step.path}] " if step.path else ""
    if isinstance(step, SearchStep) and step.query.strip():
        titles = list(dict.fromkeys(hit.title or hit.id for hit in step.hits))
        more = f" and {len(titles) - _MOST_TITLES} more" if len(titles) > _MOST_TITLES else ""
        note = f"  {step.note}\n" if step.note else ""
        listing = "; ".join(titles[:_MOST_TITLES]) or "nothing"
        return f"{label}searched: {step.query}\n{note}  found: {listing}{more}\n"
    if isinstance(step, GenerateStep) and _RETRY not in step.path:
        role = step.role.replace("_", " ")
        return "".join(f"{label}{role}: {' '.join(text.split())}\n" for text in step.texts if text.strip())
    return ""
