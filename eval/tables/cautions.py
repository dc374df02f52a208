"""What makes runs of one table hard to compare: other models or retrievers, or far more passages."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from corag.core.runs.manifest import Manifest
from eval.scoring.rows import measure_title
from eval.tables.columns import Summary

FEWEST_QUESTIONS = 20  # with fewer a table shows that everything works, and no more
_MUCH_MORE = 2.0  # times as many passages
_MAX_RUNS = 6  # runs that are named one by one
# Of a run's settings, what its method is; seed and budget are no part of it.
_OF_THE_METHOD = ("method", "options", "prompts", "demonstrations", "code")


def confounding_note(manifests: Mapping[str, Manifest]) -> str:
    """Return which of model and retriever differ between runs beside their methods; "" for neither.

    Where one of the three alone differs it is what the table compares. Of adapters and fine-tuned models the
    rows and :mod:`eval.tables.adapters` tell; a TREC run has neither method nor model.
    """
    runs = [each for each in manifests.values() if "trec" not in each.settings]
    parts = [name for name, differs in (("model", _model), ("retriever", _retriever)) if differs(runs)]
    methods = {json.dumps([each.settings.get(part) for part in _OF_THE_METHOD]) for each in runs}
    if not parts or len(parts) + (len(methods) > 1) < 2:
        return ""
    what = f"{' and '.join(parts).capitalize()} {'differs' if len(parts) == 1 else 'differ'} between the runs"
    whose = "is not the method's alone" if len(methods) > 1 else "may be due to either"
    return f"{what}, so a difference {whose}."


def variation_note(manifests: Mapping[str, Manifest]) -> str:
    """Return which runs would differ if they were made again; "" where none would."""
    names = [name for name, each in manifests.items() if each.may_vary]
    which = "" if len(names) == len(manifests) else f" ({', '.join(names)})"
    advice = "model.deterministic=true makes them equal, repeats=3 tells by how much they differ."
    return (
        f"Not deterministic{which}: made again, runs of the same options differ in some answers. " + advice
        if names
        else ""
    )


def _model(runs: Sequence[Manifest]) -> bool:
    """Whether the models differ, by more than an adapter or fine-tuning."""
    plain = {each.model for each in runs if not each.last.adapter and not each.last.trained_for}
    adapter_runs = [each for each in runs if each.last.adapter]
    bases = {each.last.model for each in runs if each.last.adapter or not each.last.trained_for}
    return len(plain) > 1 or (bool(adapter_runs) and len(bases) > 1)


def _retriever(runs: Sequence[Manifest]) -> bool:
    return len({each.retriever for each in runs if each.searches}) > 1


def depth_note(summaries: Sequence[Summary]) -> str:
    """Return how many passages runs collected among those that recall is over, if far more than others.

    Recall rises with every passage: a run that collected twice as many has a head start. "" without.
    """
    with_recall = [each for each in summaries if each.recall is not None and each.mean_collected >= 1]
    counts = sorted(((each.mean_collected, each.method) for each in with_recall), key=lambda pair: -pair[0])
    if not counts or counts[0][0] < _MUCH_MORE * counts[-1][0]:
        return ""
    selection = counts if len(counts) <= _MAX_RUNS else [counts[0], counts[-1]]
    (most, first), *others = selection
    rest = ", ".join(f"{name} {mean:.1f}" for mean, name in others)
    title = measure_title("recall", summaries[0].recall_at)
    advice = f"recall_at={int(counts[-1][0])} compares like with like."
    return f"{title}: {first} collected {most:.1f} passages a question, {rest}; {advice}"


def size_note(summaries: Sequence[Summary]) -> str:
    """Return that so few questions tell nothing about which run is better; "" for one run, or enough."""
    most = max(each.n for each in summaries)
    if len(summaries) < 2 or most >= FEWEST_QUESTIONS:
        return ""
    return (
        f"{most} question{'s' * (most != 1)} cannot tell which run is better: ask {FEWEST_QUESTIONS} or more."
    )
