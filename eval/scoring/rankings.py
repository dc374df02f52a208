"""Measures of rankings by the library ir-measures: nDCG, reciprocal rank, average precision and its others.

What is ranked are the different passages that a method collected, in its order: of fused searches for CoRAG,
of collection for IRCoT. Names are those of ir-measures (MacAvaney, Macdonald and Ounis 2022), in any case:
nDCG@10, RR@10 (MRR), AP (MAP), R@100. Values are trec_eval's, by question, of passages that are relevant or
not: grades above 1 count as 1.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator
from typing import TYPE_CHECKING

from corag.core.errors import ConfigError
from corag.core.runs.rows import SavedRow
from corag.core.system.installation import require
from eval.datasets.pages import page_ids
from eval.scoring.gold import find_gold, passage_identities
from eval.scoring.rows import MEASURES, measure_title
from retrieval.index.aliases import Aliases

if TYPE_CHECKING:
    from ir_measures import Measure
    from ir_measures.providers import Provider

EXAMPLES = ("nDCG@10", "RR@10", "AP", "R@100", "P@5")
"""Names to write, for messages."""


def _provider() -> Provider:
    """Return what computes measures: not ir-measures' default, which starts Perl for some of them."""
    import ir_measures

    # trec_eval has no depth of the reciprocal rank, which MS MARCO's script has: RR@10.
    names = ("pytrec_eval", "msmarco", "cwl_eval", "compat", "judged")
    return ir_measures.providers.FallbackProvider([getattr(ir_measures, name) for name in names])


def find_ranking_measures(names: Iterable[str], recall_at: int) -> dict[str, Measure]:
    """Return the measures of rankings among some names, as typed; others are none or those of tables.

    Raises :class:`ConfigError` for one that cannot be computed.

    >>> {name: str(each) for name, each in find_ranking_measures(["em", "ndcg@10", "mrr"], 15).items()}
    {'ndcg@10': 'nDCG@10', 'mrr': 'RR'}
    """
    table_measures = {*MEASURES, *(measure_title(name, recall_at).lower() for name in MEASURES)}
    ranking_names = [name for name in names if name.lower() not in table_measures]
    if not ranking_names:
        return {}
    require(f"the measure '{ranking_names[0]}'", "ir_measures")
    import ir_measures

    families = {name.lower(): name for name in ir_measures.measures.registry}
    measures = {}
    for name in ranking_names:
        head = re.match(r"\w*", name)
        canonical = families.get(head[0].lower()) if head else None
        if head and canonical:
            measures[name] = _parse(name, canonical + name[head.end() :])
    return measures


def _parse(spelling: str, name: str) -> Measure:
    import ir_measures

    try:
        measure = ir_measures.parse_measure(name)
        measure.validate_params()
        # trec_eval ends the process for a depth of 0.
        if type(measure.params.get("cutoff", 1)) is not int or measure.params.get("cutoff", 1) < 1:
            raise ValueError("the depth behind '@' must be 1 or more")
        if str(measure).startswith(("Num", "SDCG")):
            raise ValueError("it is no fraction, which all scores of a table are")
        if measure.params.get("rel", 1) != 1:
            raise ValueError("gold passages have no grades here: all are relevant alike")
        for _ in _provider().iter_calc([measure], {"q": {"a": 1}}, {"q": {"a": 1.0}}):
            pass
    except (ValueError, TypeError, AssertionError, ArithmeticError, ImportError) as error:
        reason = str(error).splitlines()[0].rstrip(".") if str(error) else "it cannot be computed"
        if "object object at" in reason:  # how ir-measures says that a parameter has no value
            reason = f"'{name}' lacks a depth or parameter"
        raise ConfigError(
            f"the measure '{spelling}' cannot be taken: {reason}. Write one such as "
            f"{', '.join(EXAMPLES[:-1])} or {EXAMPLES[-1]}."
        ) from None
    return measure


def score_rankings(
    rows: Iterable[SavedRow],
    measures: Collection[Measure],
    aliases: Aliases,
) -> dict[str, dict[str, float]]:
    """Return the measures of rows by question id and name; none of a question without relevant passages.

    Args:
        rows: finished questions; a failed one has an empty ranking.
        measures: of :func:`find_ranking_measures`.
        aliases: what gold ids mean in the index that was searched.
    """
    grades: dict[str, dict[str, int]] = {}
    rankings: dict[str, dict[str, float]] = {}
    for row in rows:
        name = row.question.id
        if (found := find_gold(row, aliases)) and found.places:
            grades[name], ranking = _judged_ranking(row, found.places, aliases)
            if ranking:  # some providers divide by the length of a ranking, but none misses one
                rankings[name] = {each: float(len(ranking) - number) for number, each in enumerate(ranking)}
    values = {name: {str(each): 0.0 for each in measures} for name in grades}
    for metric in _provider().iter_calc(list(measures), grades, rankings) if grades else ():
        values[metric.query_id][str(metric.measure)] = float(metric.value)
    return values


def _judged_ranking(
    row: SavedRow, gold: Collection[str], aliases: Aliases
) -> tuple[dict[str, int], list[str]]:
    """Return the grade, 1, of a question's gold passages as the index calls them, and the ranking likewise.

    A gold passage may be called by its document, file or title: the first passage of it counts, the others
    take places as any that is not relevant. A passage with two names that are gold takes two places.
    """
    if row.question.pages:
        return dict.fromkeys(gold, 1), page_ids(row.passage_ids)
    grades = dict.fromkeys(gold, 1)
    identities = passage_identities(row, aliases)

    def rank_names() -> Iterator[str]:
        earlier: set[str] = set()
        for identity in dict.fromkeys(row.passage_ids):
            new = sorted((grades.keys() & identities(identity)) - earlier)
            earlier.update(new)
            # White space in front: no gold passage is called so.
            yield from new or [f"\n{identity}"]

    return grades, list(rank_names())
