"""--corag.compare rules: what sub-answers decide is computed, and what they do not is the model's."""

import json

import pytest

from corag.chains.chain import Hop
from corag.chains.comparison import compare, next_sub_query
from corag.core.language.text import exact_match
from corag.core.types import Question
from eval.datasets import load_questions
from tests.chains.chains import run
from tests.data import data_folder
from tests.fakes import kind

FILMS = "Which film has the director who is older, The Glass Hour (Film) or Salt And Rye?"
SAME_FILMS = (
    "Do both films, Salt And Rye and The Glass Hour (Film), have the directors who are from the same country?"
)
DIRECTORS = "Who directed The Glass Hour? > Mara Velden | Who is the director of Salt And Rye? > Ode Issel"
MARA, ODE = "When was Mara Velden born? > 19 February 1913", "When was Ode Issel born? > on October 20, 1893."
BORN = "When was Ana Bo born? > 1913 | When was Li Wu born? > May 1893"
DIED = "When did Ana Bo die? > 1990 | When did Li Wu die? > 1950"
VILLAGES = "What country is Tarn Hollow in? > Norway | Where is Mossvik located? > Norwegian"
FROM = "What is the nationality of Ana Bo? > American | Where is Li Wu from? >"
TITLES = (
    "When was 2012: Ice And Fire released? > 2012: Ice and Fire was released in 1998. | "
    "When was American Rye released? > American Rye came out in 1951."
)
BANDS = "What country is Salt and Sand from? > India | What country is Rye and Co from? > Indian"


def answer(question, hops):
    pairs = [each.partition(">")[::2] for each in hops.split("|")]
    hops = [Hop(query.strip(), said.strip(), False) for query, said in pairs]
    decided = compare(question, hops)
    return decided and decided.answer


@pytest.mark.parametrize(
    "question",
    [
        "Which film came out first, Alpha, Beta or Gamma?",
        "Who was born later, Ana Bo, Li Wu or Ode Issel?",
        "Are Ana Bo, Li Wu and Ode Issel from the same country?",
    ],
)
def test_three_are_not_compared_as_two(question):
    assert next_sub_query(question, []) is None and compare(question, []) is None


@pytest.mark.parametrize(
    ("question", "hops", "expected"),
    [
        ("Who is older, Ana Bo or Li Wu?", BORN, "Li Wu"),
        ("Who was born later, Ana Bo or Li Wu?", BORN, "Ana Bo"),
        ("Was Ana Bo or Li Wu born first?", BORN, "Li Wu"),
        ("Who was born first out of Ana Bo and Li Wu?", BORN, "Li Wu"),
        ("Who lived longer, Ana Bo or Li Wu?", f"{BORN} | {DIED}", "Ana Bo"),
        ("Who lived longer, Ana Bo or Li Wu?", "When was Ana Bo born? > 31 January 1900 | "
         "When did Ana Bo die? > 1 March 1950 | When was Li Wu born? > 1 January 1900 | "
         "When did Li Wu die? > 28 January 1950", None),
        ("Who died earlier, Ana Bo or Li Wu?", f"{BORN} | {DIED}", "Li Wu"),
        ("Who died first, Ana or Wu?", "When did Ana die? > 44 BC | When did Wu die? > 3 May 144", "Ana"),
        ("Which film came out first, Oat or Rye?", "When was Oat released? > 3 May 1953 | "
         "When did Rye come out? > 1953-05-04", "Oat"),
        ("Are Tarn Hollow and Mossvik located in the same country?", VILLAGES, "yes"),
        ("Are both villages, Tarn Hollow and Mossvik, located in the same country?", VILLAGES, "yes"),
        ("Do Ana Bo and Li Wu have the same nationality?", f"{FROM} the U.S.", "yes"),
        ("Did Ana Bo and Li Wu have the same nationality?", f"{FROM} He is English.", "no"),
        ("Who is older, Ana Bo or Li Wu?", f"When was Ana Bo's husband born? > 1850 | {BORN}", "Li Wu"),
        ("Who is older, Ana Bo or Li Wu?", f"When was the father of Ana Bo born? > 1850 | {BORN}", "Li Wu"),
        ("Who is older, Ana Bo or Li Wu?", "What is Ana Bo's date of birth? > 1913 | Li Wu's birth? > 1893",
         "Li Wu"),
        ("Which band is older, Oat or Rye?", "When was Oat formed? > 1990 | When was Rye founded? > 1980",
         "Rye"),
        (FILMS, f"{DIRECTORS} | When was Mara Velden's wife born? > 1850 | {MARA} | {ODE}", "Salt And Rye"),
        (FILMS, f"{DIRECTORS} | {MARA} | {ODE}", "Salt And Rye"),
        (FILMS, f"When was The Glass Hour's director born? > 1913 | {DIRECTORS} | {ODE}", "Salt And Rye"),
        (SAME_FILMS,
         f"{DIRECTORS} | Where is Mara Velden from? > Dutch | Where is Ode Issel from? > Netherlands", "yes"),
        # Dates, countries and conjunctions of titles, which sub-answers repeat, are nobody's values.
        ("Which film was released first, 2012: Ice And Fire or American Rye (1950 Film)?", TITLES,
         "American Rye (1950 Film)"),
        ("Are Salt and Sand and Rye and Co both from the same country?", BANDS, "yes"),
    ],
)  # fmt: skip
def test_what_the_sub_answers_decide(question, hops, expected):
    assert answer(question, hops) == expected


@pytest.mark.parametrize(
    ("question", "hops"),
    [
        ("Who wrote the film that came out first in Norway?", f"{DIRECTORS} | {MARA} | {ODE}"),
        ("Who was born first, the singer of Oat or the singer of Rye?",  # it is not known by that name
         "When was the singer of Oat born? > 1913 | When was the singer of Rye born? > 1893"),
        ("Are Ana Bo and Li Wu both American directors?", f"{FROM} the U.S."),
        ("Did Ana Bo and Li Wu have the same nationality?", f"{FROM} German-American"),
        (FILMS, f"{DIRECTORS} | {MARA}"),
        (FILMS, f"{DIRECTORS} | {MARA} | When did Ode Issel die? > 1893"),
        (FILMS, f"{DIRECTORS} | When was The Glass Hour born? > 1913 | {ODE}"),
        (FILMS, f"{DIRECTORS} | {MARA} | {ODE} | When was Mara Velden born exactly? > 1873"),
        (FILMS, f"{DIRECTORS} | {MARA} | When was Ode Issel born? > in February 1913"),
        (FILMS, f"{DIRECTORS} | {MARA} | When were Mara Velden and Ode Issel born? > 1893"),
        # Forms that only HotpotQA has.
        ("Who died younger, Ana Bo or Li Wu?", f"{BORN} | {DIED}"),
        ("Was Ana Bo born before Li Wu?", BORN),
        ("Who was born later, Ana Bo or Li Wu?",  # of which century?
         "When was Ana Bo born? > on 3 May 85 | When was Li Wu born? > 1950"),
        ("Are Oat and Rye from the same country?",
         "Where is the band Oat from? > Atlanta, Georgia | Where is Rye from? > United States"),
    ],
)  # fmt: skip
def test_what_is_unclear_is_left_to_the_model(question, hops):
    assert answer(question, hops) is None


OLDER = Question("q1", "Who is older, Mara Velden or Tarn Hollow?", ("Tarn Hollow",))
DATES = {"Mara Velden": "1913", "Tarn Hollow": "1893"}


@pytest.mark.parametrize(
    ("question", "hops", "expected"),
    [
        (OLDER.text, "When was Mara Velden born? > 1913", "When was Tarn Hollow born?"),
        (OLDER.text, "When was Mara Velden born? > 1913 | When was Tarn Hollow born? > long ago", None),
        (OLDER.text, "Who was Mara Velden? > a writer", None),
        (FILMS, "Who directed The Glass Hour? > Mara Velden", None),
        (FILMS, f"Who directed The Glass Hour? > Mara Velden | {MARA}", "Who directed Salt And Rye?"),
        (FILMS, f"{DIRECTORS} | {ODE}", "When was Mara Velden born?"),
        (FILMS, f"{DIRECTORS} | {MARA} | {ODE}", None),
        ("Are Oat (Band) and Rye from the same country?", "Where is the band Oat (Band) from? > Norway",
         "Where is the band Rye from?"),
        ("Who lived longer, Ana Bo or Li Wu?", f"{BORN} | When did Li Wu die? > 1950",
         "When did Ana Bo die?"),
    ],
)  # fmt: skip
def test_what_was_asked_of_one_is_asked_of_the_other(question, hops, expected):
    pairs = [each.partition(">")[::2] for each in hops.split("|")]
    asked = next_sub_query(question, [Hop(query.strip(), said.strip(), False) for query, said in pairs])
    assert asked == expected


def finds_dates(request):
    """A model whose chains find both dates, and who then answers wrongly."""
    text = request.prompt.text
    if kind(request) == "NEXT":
        name = list(DATES)[sum(f"When was {each} born?" in text for each in DATES) % 2]
        return [f"When was {name} born?"] * request.sampling.n
    if kind(request) == "ANSWER":
        return next(date for name, date in DATES.items() if f"When was {name} born?" in text)
    return {"FINAL": "Mara Velden"}[kind(request)]


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"strategy": "best_of_n", "chains": 2},
        {"strategy": "best_of_n", "chains": 2, "rank_by": "vote"},
        {"strategy": "best_of_n", "chains": 2, "rank_by": "vote", "judged": "draft"},
        {"strategy": "adaptive", "chains": 2, "rank_by": "vote"},
        {"strategy": "tree", "expand": 1, "rollouts": 1},
        {"measure": ("refusal",)},
    ],
)
def test_every_strategy_computes_the_answer_and_asks_for_none(options):
    by_model, _, _ = run(finds_dates, question=OLDER, max_hops=2, **options)
    assert by_model.text == "Mara Velden" and by_model.comparison is None
    answer, generator, _ = run(finds_dates, question=OLDER, max_hops=2, compare="rules", **options)
    assert answer.text == "Tarn Hollow" and "FINAL" not in {kind(each) for each in generator.requests}
    assert (answer.comparison.rule, answer.comparison.values) == ("earlier birth", ("1913", "1893"))


def test_a_chain_that_would_go_on_or_end_too_soon_takes_the_hops_that_the_rule_needs():
    """No model is asked for the second sub-query, and none whether to go on."""
    answer, generator, _ = run(
        finds_dates, question=OLDER, max_hops=6, stop="check", compare="rules", rank_by="probability"
    )
    assert [kind(each) for each in generator.requests] == ["NEXT", "ANSWER", "ANSWER"]
    assert (answer.text, answer.stopped, answer.steps) == ("Tarn Hollow", "compared", 2)
    assert [hop.sub_query for hop in answer.chains[0].hops] == [f"When was {name} born?" for name in DATES]


def test_where_the_chain_does_not_decide_the_model_answers():
    answer, _, tools = run(finds_dates, question=OLDER, max_hops=1, compare="rules")
    assert (answer.text, answer.comparison, tools.ledger["final"].calls) == ("Mara Velden", None, 1)


def test_of_annotated_training_questions_nearly_all_comparisons_are_decided_and_nothing_else():
    """Chains that find everything, on real questions."""
    questions = [
        *load_questions(str(data_folder() / "2wikimultihopqa/train500_decomposed.json"), "2wikimultihopqa"),
        *load_questions(str(data_folder() / "musique/train100.json"), "musique"),
    ]
    decided = {"comparison": 0, "bridge_comparison": 0}
    for question in questions:
        hops = [Hop(hop.question, hop.answer, False) for hop in question.decomposition]
        if result := compare(question.text, hops):
            decided[question.kind] += 1
            assert exact_match(result.answer, question.answers), (question.text, result)
    assert decided == {"comparison": 158, "bridge_comparison": 91}  # not: places, and others' words


def case_file():
    """Return comparisons that failed once, in the folder of cases beside that of the data."""
    path = data_folder().with_name("cases") / "comparisons.jsonl"
    if not path.is_file():
        pytest.skip(f"no cases: '{path}' does not exist")
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def test_comparisons_that_failed_once_are_right_or_left_to_the_model():
    for case in case_file():
        hops = [Hop(query, said, False) for query, said in case["hops"]]
        decided = compare(case["question"], hops)
        assert decided is None or case["right"].startswith(decided.answer), case["question"]
        next_sub_query(case["question"], hops)
