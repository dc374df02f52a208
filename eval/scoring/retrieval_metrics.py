"""How much of what a question needs is among the passages that a method collected.

By the answer's words in the texts (CoRAG's table 4), and by Wikipedia page (KILT's eval_retrieval.py); by
passage (IRCoT's recall) it is :mod:`eval.scoring.gold`. Every measure counts different passages or pages in
their order of collection.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from corag.core.language.text import mentions, normalize_answer

PROVENANCE_TITLES = {
    "r_precision": "R-precision",
    "kilt_accuracy": "KILT-accuracy",
    "kilt_em": "KILT-EM",
    "kilt_f1": "KILT-F1",
}
"""What :func:`with_provenance` adds to a question's measures, with the titles of its columns in a table."""

# Yes and no stand in nearly every text, and say nothing about whether it tells the answer.
_NOT_IN_TEXT = frozenset({"", "yes", "no", "noanswer"})


def answer_recall(texts: Iterable[str], answers: Sequence[str]) -> float | None:
    """Return 1 if any text holds any gold answer as a run of whole normalised words, else 0.

    What CoRAG's table 4 calls recall of the answer. None if no answer can be looked for in a text: yes, no,
    or empty after normalising.

    >>> answer_recall(["Oslo is the capital of Norway."], ["The Capital"])
    1.0
    """
    findable = [answer for answer in answers if normalize_answer(answer) not in _NOT_IN_TEXT]
    if not findable:
        return None
    return float(mentions(texts, findable))


def r_precision(pages: Sequence[str], gold: Sequence[Iterable[str]]) -> float:
    """Return KILT's R-precision: of R gold pages, the share that is among the first R different pages found.

    ``gold``: the sets of pages that each bear an answer out, of R pages each; the best one counts. 0 if there
    are none.

    >>> r_precision(["2", "5", "1"], [["1", "2"], ["7"]])
    0.5
    """
    distinct = list(dict.fromkeys(pages))
    # R, the number of pages of the set, is also the depth that its pages are looked for in.
    shares = [len(each & set(distinct[: len(each)])) / len(each) for each in map(set, gold) if each]
    return max(shares, default=0.0)


def page_recall(pages: Sequence[str], gold: Sequence[Iterable[str]], k: int) -> float:
    """Return KILT's recall: the share of the different gold sets that are found whole at the first k places.

    A set takes one place, that of the last of its pages to be found, and so does a page of no set. So the
    second page of a set that needs two does not push the rest down.

    >>> page_recall(["2", "5", "7", "33", "1"], [["1", "2"], ["5"], ["7", "9"]], k=5)
    0.6666666666666666
    """
    missing = [set(each) for each in dict.fromkeys(map(frozenset, gold))]
    ranks: list[int] = []  # which set stands at a place, -1 for a page of none
    for page in dict.fromkeys(pages):
        numbers = [number for number, rest in enumerate(missing) if page in rest]
        for number in numbers:
            missing[number].remove(page)
            if number in ranks:
                ranks.remove(number)
        ranks += numbers or [-1]
    complete = sum(number >= 0 and not missing[number] for number in ranks[:k])
    return complete / len(missing) if missing else 0.0


def with_provenance(measures: Mapping[str, float], precision: float) -> dict[str, float]:
    """Return the R-precision of an answer's pages, and its measures as KILT counts them: 0 unless that is 1.

    KILT's scores reward an answer only if all its pages are found first (Petroni et al. 2021).
    """
    kilt_measures = {f"kilt_{name}": value if precision == 1 else 0.0 for name, value in measures.items()}
    return {"r_precision": precision, **kilt_measures}
