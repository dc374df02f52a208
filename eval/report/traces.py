"""What a report shows of single questions, as compact JSON values: a row's steps and its gold passages.

Nothing here knows a method. What answers have beyond the common fields is shown if it goes by these names:
``context_ids``, the passages that the final answer was shown; ``comparison``, the rule that computed the
answer; ``chains`` and ``chosen``, the index of the one that was kept. Of each chain: ``path``, ``score``,
``value``, ``stopped`` and ``hops``, with ``sub_query``, ``sub_answer``, ``refused`` and
``passage_ids``. If the method has an option ``refusal``, its sub-answers are read for that sentence.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from corag.core.language.text import clean_sub_answer
from corag.core.runs.rows import SavedRow
from corag.core.tools import ScoreStep, SearchStep, Step
from corag.core.types import Question, TokenUsage
from eval.datasets.gold_names import bare_name, is_name
from eval.datasets.pages import page_id
from eval.scoring.gold import FoundGold


class Passages:
    """Every passage that a report names, numbered from 0 in order of appearance, with titles where known.

    A trace names the same passage many times. Numbers keep it small.
    """

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}
        self.titles: list[tuple[str, str]] = []
        """Id and title of each, in the order of their numbers."""

    def number(self, identifier: str, title: str = "") -> int:
        """Return a passage's number."""
        number = self._numbers.setdefault(identifier, len(self._numbers))
        if number == len(self.titles):
            self.titles.append((identifier, title))
        elif title:
            self.titles[number] = identifier, title
        return number


def trace(row: SavedRow, passages: Passages, refusal: str, found: FoundGold | None = None) -> dict[str, Any]:
    """Return a row of a run for the trace explorer; passages appear by their number.

    ``refusal``: the method's option of that name, its sentence for what the passages do not tell; "" if it
    has none. ``found``: what the row has of its question's gold passages. What is empty is left out.
    """
    steps = row.steps
    record: dict[str, Any] = {
        "error": row.error,
        "seconds": row.seconds,
        "usage": {role: _usage(usage) for role, usage in row.usage.items()},
        "steps": [_step(step, passages, refusal) for step in steps],
    }
    if row.answer is not None:
        chains = row.further.get("chains", ())
        searched = {step.path for step in steps if isinstance(step, SearchStep)}
        record |= {
            "answer": row.text,
            "stopped": row.answer.stopped,
            "computed": describe_computation(row.further),
            "hops": row.answer.steps,
            "read": [passages.number(name) for name in row.read_ids],
            "collected": [passages.number(name) for name in row.passage_ids],
            "context": [passages.number(name) for name in row.further.get("context_ids", ())],
            "chains": [_chain(chain, passages, searched) for chain in chains],
            "chosen": chains[row.further["chosen"]]["path"] if chains else "",
        }
    if found:
        record |= _gold(row, found, steps, passages)
    return _drop_empty(record)


def describe_computation(further: Mapping[str, Any]) -> str:
    """Return the rule that computed an answer, and what it compared; "" where the model answered.

    ``further``: the fields that the method adds to those of all answers.
    """
    if not (rule := further.get("comparison")):
        return ""
    values = zip(rule["candidates"], rule["values"], strict=True)
    return f"{rule['rule']}: {', '.join(f'{name} ({value})' for name, value in values)}"


def _gold(row: SavedRow, found: FoundGold, steps: Sequence[Step], passages: Passages) -> dict[str, Any]:
    """Return which passages are gold, and the place of each gold name among those collected, 0 if missed.

    Each run has its own names: one index has the dataset's ids, another its titles, a third neither.
    """
    hits = [hit.passage.id for step in steps if isinstance(step, SearchStep) for hit in step.hits]
    names = dict.fromkeys([*row.passage_ids, *row.further.get("context_ids", ()), *hits])
    gold = [name for name in names if found.is_gold(name)]
    for name in gold if row.question.pages else ():  # a page has no title of its own in a run
        passages.number(page_id(name), passages.titles[passages.number(name)][1])
    return {
        "gold": [passages.number(name) for name in gold],
        "places": [[passages.number(name), place] for name, place in found.places.items()],
    }


def gold(question: Question, names: Iterable[str], passages: Passages) -> dict[str, Any]:
    """Return how its dataset says a question is answered: its gold passages or pages, its decomposition.

    ``names``: what the runs call its gold passages.
    """
    names = dict.fromkeys(names)
    hops = [[hop.question, hop.answer] for hop in question.decomposition]
    return _drop_empty(
        {
            "supporting": [passages.number(name, bare_name(name) if is_name(name) else "") for name in names],
            "by_page": bool(question.pages),
            "by_name": any(map(is_name, names)),
            "decomposition": hops,
        }
    )


def _step(step: Step, passages: Passages, refusal: str) -> dict[str, Any]:
    record: dict[str, Any] = {"kind": step.kind, "path": step.path}
    if isinstance(step, SearchStep):
        # Five digits tell two scores apart, and a report of thousands of questions stays small.
        hits = [
            [passages.number(hit.passage.id, hit.passage.title), float(f"{hit.score:.5g}")]
            for hit in step.hits
        ]
        return record | {"query": step.query, "k": step.k, "hits": hits} | _drop_empty({"note": step.note})
    request = record | {"role": step.role, "usage": _usage(step.usage)}
    shortening = {"dropped": step.shortening.dropped, "cut": step.shortening.cut_tokens}
    if isinstance(step, ScoreStep):
        mean = round(step.log_likelihood / max(1, step.tokens), 4)
        return _drop_empty(request | shortening | {"mean": mean, "tokens": step.tokens})
    texts: Sequence[str] = step.texts
    is_refusal = False
    if refusal and step.role == "sub_answer":
        sub_answer, is_refusal = clean_sub_answer(texts[0], refusal)
        texts = [sub_answer]
    cut_off = sum(reason == "length" for reason in step.finish_reasons)
    return _drop_empty(
        request
        | {"prompt": step.prompt}
        | shortening
        | {"texts": texts, "refused": is_refusal, "cut_off": cut_off}
    )


def _chain(chain: Mapping[str, Any], passages: Passages, searched: Collection[str]) -> dict[str, Any]:
    """Return a chain; ``searched``: the paths at which there were searches."""
    hops, path = chain["hops"], chain["path"]
    is_taken_over = path.rpartition("/")[2].startswith("child ") and path not in searched
    record: dict[str, Any] = {name: chain[name] for name in ("path", "score", "value", "stopped")}
    # A state of a search tree that was taken over from a rollout has no steps: its hop stands in for them.
    if hops and is_taken_over:
        hop, note = hops[-1], "taken over from a rollout"
        hits = [[passages.number(name), None] for name in hop["passage_ids"]]
        record["steps"] = [
            {"kind": "search", "query": hop["sub_query"], "hits": hits, "note": note},
            {
                "kind": "generate",
                "role": "sub_answer",
                "texts": [hop["sub_answer"]],
                "refused": hop["refused"],
            },
        ]
    return _drop_empty(record)


def _usage(usage: TokenUsage) -> list[int]:
    """Return calls, prompt tokens, generated tokens, and tokens of both that were computed."""
    return [usage.calls, usage.prompt, usage.generated, usage.computed]


def _drop_empty(values: Mapping[str, Any]) -> dict[str, Any]:
    """Leave out what is empty; 0 is not, except for counts that are rarely anything else."""
    return {
        name: value
        for name, value in values.items()
        if value not in ("", None, (), [], {})
        and not (value in (0, False) and name in ("refused", "cut", "cut_off", "by_page", "by_name"))
    }
