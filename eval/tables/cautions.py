"""What makes runs of a table hard to compare, and what must be known of a single run's figures."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence

from corag.core.runs.manifest import Manifest
from eval.scoring.rows import MEASURES, measure_title
from eval.tables.columns import Summary

MARK = "†"
"""What stands behind the name of a run whose model was fine-tuned for other prompts."""
FEWEST_QUESTIONS = 20  # with fewer a table shows that everything works, and no more
_MUCH_MORE = 2.0  # times as many passages
_MAX_RUNS = 6  # runs that are named one by one
# Of a run's settings, what its method is; seed and budget are no part of it.
_OF_THE_METHOD = ("method", "options", "prompts", "demonstrations", "code")


def find_untrained(manifests: Mapping[str, Manifest]) -> dict[str, tuple[str, ...]]:
    """Return the runs whose model was fine-tuned, but not for all of the prompts that their method asks.

    By name, each with the methods that its model was trained for. What a model learned before, or an adapter
    from elsewhere, is not known: such runs are not among them. Nor is it known what a method of the user's
    asks, if it names no prompts: its runs are.
    """
    untrained = {}
    for name, manifest in manifests.items():
        trained_for = manifest.last.trained_for
        learned = {prompt for prompts in trained_for.values() for prompt in prompts}
        asks_unknown = bool(manifest.settings.get("code")) and not manifest.prompts
        if trained_for and (asks_unknown or not learned.issuperset(manifest.prompts)):
            untrained[name] = tuple(trained_for)
    return untrained


def training_note(untrained: Mapping[str, Sequence[str]], manifests: Mapping[str, Manifest]) -> str:
    """Return a sentence for each adapter or fine-tuned model of the runs of :func:`find_untrained`."""
    by_weights: dict[str, list[str]] = {}
    for name, methods in untrained.items():
        start = manifests[name].last
        weights = f"adapter '{start.adapter}'" if start.adapter else f"model '{start.model}'"
        by_weights.setdefault(f"{weights} was trained for {', '.join(methods)}", []).append(name)
    return " ".join(
        f"{MARK} {', '.join(names)}: the {trained}, and for no other prompts, so such a row may be far below "
        "what its method can do with a model trained for it; that was not measured."
        for trained, names in by_weights.items()
    )


def confounding_note(manifests: Mapping[str, Manifest]) -> str:
    """Return which of model and retriever differ between runs beside their methods; "" for neither.

    Where one of the three alone differs it is what the table compares. Of adapters and fine-tuned models the
    rows and :func:`training_note` tell.
    """
    runs = list(manifests.values())
    parts = [name for name, differs in (("model", _model), ("retriever", _retriever)) if differs(runs)]
    methods = {json.dumps([each.settings.get(part) for part in _OF_THE_METHOD]) for each in runs}
    if not parts or len(parts) + (len(methods) > 1) < 2:
        return ""
    what = f"{' and '.join(parts).capitalize()} {'differs' if len(parts) == 1 else 'differ'} between the runs"
    whose = "is not the method's alone" if len(methods) > 1 else "may be due to either"
    return f"{what}, so a difference {whose}."


def _model(runs: Sequence[Manifest]) -> bool:
    """Whether the models differ, by more than an adapter or fine-tuning."""
    plain = {each.model for each in runs if not each.last.adapter and not each.last.trained_for}
    adapter_runs = [each for each in runs if each.last.adapter]
    bases = {each.last.model for each in runs if each.last.adapter or not each.last.trained_for}
    return len(plain) > 1 or (bool(adapter_runs) and len(bases) > 1)


def _retriever(runs: Sequence[Manifest]) -> bool:
    return len({each.retriever for each in runs if each.searches}) > 1


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


def depth_note(summaries: Sequence[Summary]) -> str:
    """Return how many passages of runs recall is over, if far more than of others.

    Recall rises with every passage: a run that collected twice as many has a head start. "" without.
    """
    with_recall = [each for each in summaries if each.recall is not None and each.mean_collected >= 1]
    counts = sorted(((each.mean_collected, each.method) for each in with_recall), key=lambda pair: -pair[0])
    if not counts or counts[0][0] < _MUCH_MORE * counts[-1][0]:
        return ""
    (most, first), *others = counts if len(counts) <= _MAX_RUNS else [counts[0], counts[-1]]
    rest = ", ".join(f"{mean:.1f} of {name}" for mean, name in others)
    title = measure_title("recall", summaries[0].recall_at)
    advice = f"recall_at={int(counts[-1][0])} compares like with like."
    return f"{title} counts {most:.1f} passages a question of {first}, {rest}; {advice}"


def size_note(summaries: Sequence[Summary]) -> str:
    """Return that so few questions tell nothing about which run is better; "" for one run, or enough."""
    most = max(each.n for each in summaries)
    if len(summaries) < 2 or most >= FEWEST_QUESTIONS:
        return ""
    return (
        f"{most} question{'s' * (most != 1)} cannot tell which run is better: ask {FEWEST_QUESTIONS} or more."
    )


def figure_remarks(summary: Summary) -> Iterator[str]:
    """Yield what a run's figures do not count, or count otherwise: in captions too, the first line alone."""
    n = f"{summary.n:,} questions"
    if summary.unscored_count:
        yield f"{summary.unscored_count:,} of {n} have no gold answers, so EM and F1 leave them out."
    if summary.has_estimates:
        yield (
            "not all of its tokens (~) were counted.\n  The others are estimated, one for four bytes of "
            "text: 'model.tokenizer' counts a server's, count_tokens those of an own model."
        )
    if summary.unasked_count:
        yield f"the budget allowed no call of the model for {summary.unasked_count:,} of {n}."
    if summary.cut_count:
        yield f"the budget ended or narrowed its work on {summary.cut_count:,} of {n} (fewer hops or chains)."
    if summary.failure_count:
        reasons = (f"  {line}" for line in summary.failures.commonest())
        yield "\n".join([f"{summary.failure_count:,} of {n} failed, which counts as wrong.", *reasons])


def remarks(summary: Summary) -> Iterator[str]:
    """Yield what else is to be known of a run."""
    for measure, count in summary.measured_on_fewer.items():
        title = MEASURES.get(measure, measure)
        yield f"{title} is of {count} of {summary.n} questions, which can be measured by it."
    answered = summary.n - summary.failure_count
    # Of a method that searches. Its options may forbid it; a model that cannot keep to its form may still
    # answer, by luck.
    if (
        summary.recall is not None
        and answered
        and (often := summary.values["searches"] * summary.n / answered) < 1
    ):
        times = f"only {often:.2f} times a question" if often else "not once"
        yield f"it searched {times}."
    if summary.computed_answers:
        yield (
            f"rules computed {summary.computed_answers:,} of {summary.n:,} answers (compare rules); "
            f"{summary.computed_right:,} of these are right (EM)."
        )
    if summary.thoughts_cut:
        yield (
            f"{summary.thoughts_cut:,} of the model's thoughts reached the end of their budget, and were "
            "ended there: 'model.max_thinking_tokens' gives more, model.thinking=off none."
        )


def group_remarks(summaries: Sequence[Summary], remark: Callable[[Summary], Iterator[str]]) -> dict[str, str]:
    """Return remarks, each with the runs that it is of: one of several runs stands once."""
    by_remark: dict[str, list[str]] = {}
    for each in summaries:
        for sentence in remark(each):
            by_remark.setdefault(sentence, []).append(each.method)
    return {sentence: ", ".join(names) for sentence, names in by_remark.items()}
