import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.errors import ConfigError, DataError
from core.text import normalize_answer
from core.types import Question
from eval.scoring.scorers import SCORERS, default_scorer, scorer, scorer_title

# Prediction, gold answer, then (EM, F1) of HotpotQA and 2WikiMultihopQA, of MuSiQue, of DROP, as their own
# scripts give them.
VECTORS = [
    ("no, they are not", "no", (0, 0), (0, 0.4), (0, 0.4)),
    ("The", "A", (1, 0), (1, 1), (1, 1)),
    ("", "The", (1, 0), (1, 1), (1, 1)),
    ("10", "10.0", (0, 0), (0, 0), (1, 1)),
    ("jean-luc godard", "Jean Luc Godard", (0, 0.4), (0, 0.4), (1, 1)),
    ("twenty-two", "twenty two", (0, 0), (0, 0), (1, 1)),
    ("Paris Paris", "Paris", (0, 2 / 3), (0, 2 / 3), (0, 1)),
    ("1990 season", "1991 season", (0, 0.5), (0, 0.5), (0, 0)),
    ("March 3, 1990", "3 March 1990", (0, 1), (0, 1), (0, 1)),
    ("1,800", "1800", (1, 1), (1, 1), (1, 1)),
    ("U.S.", "US", (1, 1), (1, 1), (1, 1)),
    ("“Paris”", "Paris", (0, 0), (0, 0), (0, 0)),
]

answers = st.one_of(
    st.text(max_size=12),
    st.lists(
        st.sampled_from("the a yes no noanswer 10 10.0 1,800 u.s. Oslo oslo jean-luc – “x”".split())
    ).map(" ".join),
)


@pytest.mark.parametrize(("prediction", "gold", "hotpotqa", "musique", "drop"), VECTORS)
def test_official_scores(prediction, gold, hotpotqa, musique, drop):
    expected = {"hotpotqa": hotpotqa, "2wikimultihopqa": hotpotqa, "musique": musique, "drop": drop}
    for name, (em, f1) in expected.items():
        item = scorer(name).score(prediction, [gold])
        assert (name, item.em, item.f1) == (name, em, pytest.approx(f1))


def test_squad_style_has_no_yes_no_rule_and_gives_empty_predictions_no_f1():
    squad = scorer("squad")
    assert squad.score("no, they are not", ["no"]).f1 == pytest.approx(0.4)
    assert squad.score("", ["Oslo"]).f1 == 0
    assert (squad.score("", ["The"]).em, squad.score("", ["The"]).f1) == (1, 0)


def test_noanswer_and_yes_on_either_side_earn_no_partial_credit_in_hotpotqa():
    hotpotqa = scorer("hotpotqa")
    assert hotpotqa.score("yes", ["yes it is"]).f1 == 0
    assert hotpotqa.score("noanswer here", ["noanswer"]).f1 == 0
    assert hotpotqa.score("Yes.", ["yes"]).f1 == 1


def test_each_metric_takes_its_best_gold_answer():
    item = scorer("2wikimultihopqa").score("The", ["A", "the Oslo"])
    assert (item.em, item.f1) == (1, 0)
    assert scorer("musique").score("New York", ["Boston", "New York City", "York"]).f1 == pytest.approx(0.8)


def test_flashrag_has_the_yes_no_rule_and_counts_answers_that_are_contained():
    flashrag = scorer("flashrag")
    assert flashrag.score("no, they are not", ["no"]).f1 == 0
    assert flashrag.score("no, they are not", ["no", "they are"]).f1 == pytest.approx(2 / 3)
    assert flashrag.accuracy_of("It was Norway's.", ["Sweden", "the Norway"]) == 1, "inside a word too"
    assert flashrag.accuracy_of("Norway", ["Norway's"]) == 0


def test_kilt_counts_the_very_text_and_gives_blank_predictions_nothing():
    kilt = scorer("kilt")
    assert (kilt.accuracy_of(" SUPPORTS ", ["SUPPORTS"]), kilt.accuracy_of("supports", ["SUPPORTS"])) == (
        1,
        0,
    )
    assert (kilt.score("supports.", ["SUPPORTS"]).em, kilt.score("no, they are not", ["no"]).f1) == (
        1,
        pytest.approx(0.4),
    )
    assert kilt.score("  ", ["The"]).em == 0 and scorer("squad").score("", ["The"]).em == 1
    assert kilt.score("The", ["A"]).em == 1, "what is not blank is normalised as in SQuAD"
    assert scorer("squad").accuracy_of("Oslo", ["Oslo"]) == 0, "this rule has no accuracy"


@given(answers)
def test_an_answer_matches_itself(text):
    for name, chosen in SCORERS.items():
        assert chosen.score(text, [text]).em == (name != "kilt" or bool(text.strip()))
        if normalize_answer(text):
            assert chosen.score(text, [text]).f1 == 1
        if chosen.accuracy:
            assert chosen.accuracy_of(text, [text]) == (name != "kilt" or bool(text.strip()))


@given(answers, answers)
def test_f1_is_symmetric_but_for_numbers_in_drop(prediction, gold):
    for name, chosen in SCORERS.items():
        there, back = chosen.score(prediction, [gold]), chosen.score(gold, [prediction])
        for value in (there.precision, there.recall):
            assert 0 <= value <= 1
        if name != "drop":
            assert there.f1 == pytest.approx(back.f1)
            assert (there.precision, there.recall) == (
                pytest.approx(back.recall),
                pytest.approx(back.precision),
            )


@given(answers, st.lists(answers, min_size=1, max_size=3))
def test_scores_stay_in_range_and_more_golds_never_hurt(prediction, golds):
    for chosen in SCORERS.values():
        item = chosen.score(prediction, golds)
        assert item.em in (0, 1)
        assert 0 <= item.f1 <= 1
        first = chosen.score(prediction, golds[:1])
        assert item.em >= first.em
        assert item.f1 >= first.f1
        assert chosen.accuracy_of(prediction, golds) >= chosen.accuracy_of(prediction, golds[:1])


@given(answers, answers)
def test_an_exact_match_has_full_f1_unless_nothing_is_left_of_the_answer(prediction, gold):
    for chosen in SCORERS.values():
        item = chosen.score(prediction, [gold])
        if item.em and normalize_answer(gold):
            assert item.f1 == 1


@given(answers, answers)
def test_hotpotqa_never_gives_more_than_squad(prediction, gold):
    strict, loose = scorer("hotpotqa").score(prediction, [gold]), scorer("squad").score(prediction, [gold])
    assert strict.em == loose.em
    assert strict.f1 <= loose.f1


def test_default_scorers():
    own = {name: default_scorer(name).name for name in ("hotpotqa", "2wikimultihopqa", "musique")}
    assert own == {name: name for name in own}
    assert {default_scorer(name).name for name in ("bamboogle", "popqa", "jsonl")} == {"squad"}


def test_a_row_says_when_2wiki_has_no_aliases():
    plain, aliased = Question("1", "Who?", ("Oslo",)), Question("2", "Who?", ("Oslo", "Christiania"))
    assert scorer_title(scorer("2wikimultihopqa"), [plain]) == "2WikiMultihopQA v1.1, no aliases"
    assert scorer_title(scorer("2wikimultihopqa"), [plain, aliased]) == "2WikiMultihopQA v1.1"
    assert scorer_title(scorer("2wikimultihopqa"), [plain], "0123456789abcdef") == "2WikiMultihopQA v1.1"
    assert scorer_title(scorer("2wikimultihopqa"), [plain], "") == "2WikiMultihopQA v1.1, no aliases"
    assert scorer_title(scorer("2wikimultihopqa"), [aliased], "") == "2WikiMultihopQA v1.1", (
        "the questions brought them"
    )
    assert scorer_title(scorer("hotpotqa"), [plain]) == "HotpotQA v1"


def test_mistakes_are_sentences():
    with pytest.raises(ConfigError, match="did you mean 'musique'"):
        scorer("musiqe")
    with pytest.raises(DataError, match="without gold answers"):
        scorer("squad").score("Oslo", [])
