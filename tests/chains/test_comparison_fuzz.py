"""10,000 comparisons of 2WikiMultihopQA's kind, many written to hurt: the rules are right, or say nothing."""

from __future__ import annotations

import random

from corag.chains.chain import Hop
from corag.chains.comparison import compare, next_sub_query
from tests.chains.comparison_cases import Case, make_case


def _wrongs(case: Case) -> list[str]:
    """Return what is wrong with what the rules say of a case, in words."""
    asked = [next_sub_query(case.question, case.hops[:told]) for told in range(len(case.hops) + 1)]
    compared = compare(case.question, case.hops)
    wrongs = []
    if compared is not None and compared.answer.rstrip("?") != (case.right or "").rstrip("?"):
        wrongs.append(f"answers {compared.answer!r}, right: {case.right!r}")
    if case.silent and any(asked):
        wrongs.append(f"asks {asked}")
    return wrongs


def test_no_answer_is_wrong_or_given_where_hops_do_not_tell() -> None:
    """... and nearly all plain questions are decided."""
    wrong, plain, decided = [], 0, 0
    for number in range(10_000):
        case = make_case(number)
        wrong += [(number, case.question, *_hops(case), said) for said in _wrongs(case)]
        if case.plain:
            plain += 1
            decided += compare(case.question, case.hops) is not None
    assert not wrong, f"{len(wrong)}: {wrong[:10]}"
    assert plain > 1_000
    assert decided > 0.85 * plain  # a name with a comma may be two of three


def _hops(case: Case) -> list[tuple[str, str]]:
    return [(hop.sub_query, hop.sub_answer) for hop in case.hops]


def test_words_at_random_raise_nothing() -> None:
    """... where a model's words are cut, repeated and mixed up."""
    for number in range(2_000):
        draw, case = random.Random(number), make_case(number)
        texts = [case.question, *(text for hop in case.hops for text in (hop.sub_query, hop.sub_answer))]
        # Some only a pattern without case takes for the rules' own.
        words = [
            *" ".join(texts).split(" "),
            *"ſept ſix fıve ² ٣ İ ( ) ' 44 BC ? , U.S. \N{BOM} \0".split(" "),
        ]
        mixed = [" ".join(draw.choices(words, k=draw.randrange(14))) for _ in texts]
        hops = [
            Hop(sub_query, answer, False) for sub_query, answer in zip(mixed[1::2], mixed[2::2], strict=True)
        ]
        compare(mixed[0], hops)
        next_sub_query(mixed[0], hops)
