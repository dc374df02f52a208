import pytest
from hypothesis import given
from hypothesis import strategies as st

from corag.core.errors import ConfigError, DataError
from corag.core.language.text import (
    clean_sub_answer,
    exact_match,
    extract_answer,
    is_other_script,
    mentions,
    normalize_answer,
)
from corag.core.types import Question
from eval.scoring.scorers import (
    SCORERS,
    default_scorer,
    mlqa_score,
    scorer,
    scorer_title,
    script_note,
    squad_score,
)
from tests.messages import raises_message

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
    assert flashrag.best_accuracy("It was Norway's.", ["Sweden", "the Norway"]) == 1, "inside a word too"
    assert flashrag.best_accuracy("Norway", ["Norway's"]) == 0


def test_kilt_counts_the_very_text_and_gives_blank_predictions_nothing():
    kilt = scorer("kilt")
    assert (kilt.best_accuracy(" SUPPORTS ", ["SUPPORTS"]), kilt.best_accuracy("supports", ["SUPPORTS"])) == (
        1,
        0,
    )
    assert (kilt.score("supports.", ["SUPPORTS"]).em, kilt.score("no, they are not", ["no"]).f1) == (
        1,
        pytest.approx(0.4),
    )
    assert kilt.score("  ", ["The"]).em == 0 and scorer("squad").score("", ["The"]).em == 1
    assert kilt.score("The", ["A"]).em == 1, "what is not blank is normalised as in SQuAD"
    assert scorer("squad").best_accuracy("Oslo", ["Oslo"]) == 0, "this rule has no accuracy"


@given(answers)
def test_an_answer_matches_itself(text):
    for name, chosen in SCORERS.items():
        assert chosen.score(text, [text]).em == (name != "kilt" or bool(text.strip()))
        if normalize_answer(text):
            assert chosen.score(text, [text]).f1 == 1
        if chosen.accuracy:
            assert chosen.best_accuracy(text, [text]) == (name != "kilt" or bool(text.strip()))


@given(answers, answers)
def test_f1_is_symmetric_but_for_numbers_in_drop(prediction, gold):
    for name, chosen in SCORERS.items():
        there, back = chosen.score(prediction, [gold]), chosen.score(gold, [prediction])
        for value in (there.precision, there.recall):
            assert 0 <= value <= 1
        alike = is_other_script(prediction) == is_other_script(gold)
        if name != "drop" and alike:
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
        assert chosen.best_accuracy(prediction, golds) >= chosen.best_accuracy(prediction, golds[:1])


@given(answers, answers)
def test_an_exact_match_has_full_f1_unless_nothing_is_left_of_the_answer(prediction, gold):
    for chosen in SCORERS.values():
        item = chosen.score(prediction, [gold])
        if item.em and normalize_answer(gold):
            assert item.f1 == 1


@given(answers, answers)
def test_hotpotqa_never_gives_more_than_squad(prediction, gold):
    strict, loose = scorer("hotpotqa").score(prediction, [gold]), squad_score(prediction, gold)
    assert strict.em == loose.em
    assert strict.f1 <= loose.f1


@pytest.mark.parametrize(
    ("prediction", "gold", "em", "f1"),
    [
        ("浙江", "浙江省", 0, 0.8),
        ("《浙江省》。", "浙江省", 1, 1),
        ("答案是浙江", "浙江", 0, 4 / 7),
        ("１９９８年", "1998年", 1, 1),
        ("1998年", "1998", 0, 2 / 3),  # a gold answer without letters: the prediction's script
        ("เชียง", "เชียงใหม่", 0, None),
        ("ジョン・スミス", "ジョンスミス", 1, 1),
        ("«Война и мир»", "Война и мир", 1, 1),
        ("باريس؟", "باريس", 1, 1),
        ("दिल्ली।", "दिल्ली", 1, 1),
        ("cafe\u0301 noir", "caf\u00e9 noir", 1, 1),  # one accent in two spellings
        ("Oslo 東京", "Oslo", 0, 2 / 3),
        ("no, they are not", "no", 0, 0.4),
    ],
)
def test_answers_of_other_scripts_are_compared_by_mlqas_rule(prediction, gold, em, f1):
    item = scorer("squad").score(prediction, [gold])
    assert item.em == em
    assert 0 < item.f1 < 1 if f1 is None else item.f1 == pytest.approx(f1)


@given(st.text(st.characters(max_codepoint=0x36F)), st.text(st.characters(max_codepoint=0x36F)))
def test_latin_answers_are_scored_by_squads_own_rule(prediction, gold):
    assert mlqa_score(prediction, gold) == squad_score(prediction, gold)


def test_official_rules_stay_as_they_are_and_say_what_they_are_not_made_for():
    questions = [Question("1", "?", ("浙江省",)), Question("2", "?", ("Oslo",)), Question("3", "?")]
    assert scorer("hotpotqa").score("浙江", ["浙江省"]).f1 == 0
    assert script_note(scorer("hotpotqa"), questions) == (
        "1 of 2 gold answers are in a script without spaces between words, where 'HotpotQA v1' counts any "
        "other spelling as wrong: choose scorer=squad, which compares characters."
    )
    assert script_note(scorer("squad"), questions) == script_note(scorer("hotpotqa"), questions[1:]) == ""
    assert scorer_title(scorer("squad"), questions) == "SQuAD-style, other scripts than Latin by MLQA's rule"
    assert scorer_title(scorer("squad"), questions[1:]) == "SQuAD-style"


def test_methods_and_training_read_answers_of_other_scripts():
    assert exact_match("浙江省。", ["浙江省"]) and not exact_match("浙江", ["浙江省"])
    assert mentions(["杭州是浙江省的省会。"], ["浙江"]) and mentions(["他出生在Oslo市的郊外"], ["Oslo"])
    assert not mentions(["杭州是浙江省的省会。"], ["江苏"])
    assert mentions(["كان يعيش في باريس."], ["باريس"]) and not mentions(["Osloer"], ["Oslo"])
    assert clean_sub_answer("资料中没有。它没有提到", "资料中没有") == ("资料中没有", True)
    assert extract_answer("他生于浙江。 So the answer is: 浙江。") == extract_answer("浙江。") == "浙江"
    assert normalize_answer("Dvořák “x”") == "dvořák “x”", "SQuAD's rule keeps marks beyond ASCII"


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
    with raises_message(ConfigError):
        scorer("musiqe")
    with raises_message(DataError):
        scorer("squad").score("Oslo", [])
