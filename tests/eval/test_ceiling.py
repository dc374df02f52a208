"""The ceiling over runs with candidates: by hand, the command, the part of sweeps."""

import json
from dataclasses import dataclass, replace

import pytest

from corag.chains.candidates import ChainCandidates
from corag.cli.main import main
from corag.core.runs.rows import SavedRow
from corag.core.types import Answer, CandidateAnswer, Question, TokenUsage
from eval.scoring.scorers import default_scorer
from eval.tables.candidates import candidate_set
from eval.tables.ceiling import OWN_CHOICE, measure_ceilings
from tests.cli.test_bad_input import refused
from tests.eval.runs import make_run, row, saved

ASKED = [Question(str(n), f"Where was {n} born?", (f"Town {n}",)) for n in range(6)]
# Right candidates are "T", wrong ones spelled out. By question: answers, then a ranker's scores of them.
TOLD = [
    (["T", "Rome", "T", "Oslo"], [4, 3, 2, 1]),  # the vote and the ranker are right
    (["Rome", "Rome", "T", "Oslo"], [1, 1, 5, 0]),  # only the ranker is
    (["T", "T", "Rome", "Rome"], [0, 1, 2, 3]),  # the vote ties, the ranker is wrong
    (["Rome", "Oslo", "Rome", "Oslo"], [1, 2, 3, 4]),  # nobody can be right
    (["T", "T", "T", "T"], [1, 1, 1, 1]),  # everybody is
    None,  # failed
]


@dataclass(frozen=True, slots=True)
class Several(Answer):
    """An answer of a method of a user's, which offers candidates by the field of that name."""

    candidates: tuple[CandidateAnswer, ...] = ()


def answered(question, told):
    if told is None:
        return row(question, None)
    texts = [question.answers[0] if text == "T" else text for text in told[0]]
    candidates = tuple(
        CandidateAnswer(text, f"chain {n}", {"guess": float(score)})
        for n, (text, score) in enumerate(zip(texts, told[1], strict=True), 1)
    )
    done = row(question, texts[0])  # the run takes the first
    return replace(done, answer=Several(texts[0], (), 1, "read", candidates))


@dataclass(frozen=True, slots=True)
class Voted(Answer):
    """An answer of CoRAG's, as far as its chains' answers go."""

    chains: tuple[dict, ...] = ()
    chosen: int = 0


def voted(question, told):
    done = answered(question, told)
    if told is None:
        return done
    chains = tuple(
        {"path": each.path, "answer": each.text, "score": None, "hops": [], "signals": {}}
        for each in done.answer.candidates
    )
    return replace(done, answer=Voted(done.answer.text, (), 1, "read", chains))


@pytest.fixture
def runs(tmp_path):
    """A run of a user's own method with candidates, and one that answers the first three questions right."""
    mine = make_run(
        tmp_path / "mine", [answered(*each) for each in zip(ASKED, TOLD, strict=True)], {"method": "mine"}
    )
    base = make_run(
        tmp_path / "base",
        [row(each, each.answers[0] if n in (0, 3, 4) else "Rome") for n, each in enumerate(ASKED)],
    )
    return mine, base


def test_figures_by_hand(runs):
    mine, _ = runs
    (ceiling,) = measure_ceilings({"mine": mine}).runs.values()
    assert (ceiling.questions, ceiling.sizes, ceiling.base_name) == (6, [1, 2, 4], "one candidate")
    one = (2 / 4 + 1 / 4 + 2 / 4 + 0 + 1 + 0) / 6
    assert ceiling.base.mean == pytest.approx(one)
    pairs = (5 / 6 + 3 / 6 + 5 / 6 + 0 + 1 + 0) / 6
    assert [ceiling.oracle[k].mean for k in (1, 2, 4)] == pytest.approx([one, pairs, 4 / 6])
    assert ceiling.oracle_gain.difference.mean == pytest.approx(4 / 6 - one)
    own, vote, guess = ceiling.rankers
    assert (own.name, vote.name, guess.name) == (OWN_CHOICE, "vote", "guess")
    assert (
        own.values_by_size.keys() == {4}
        and own.values_by_size[4].mean == pytest.approx(3 / 6)
        and own.auc is None
    )
    assert vote.values_by_size[4].mean == pytest.approx((1 + 0 + 0.5 + 0 + 1 + 0) / 6)
    assert guess.values_by_size[4].mean == pytest.approx((1 + 1 + 0 + 0 + 1 + 0) / 6)
    # The guess's pairs: of the first question 4 of 4 but one; of the second all; of the third none.
    assert guess.auc.mean == pytest.approx((3 / 4 + 1 + 0) / 3)
    assert guess.share.mean == pytest.approx((3 / 6 - one) / (4 / 6 - one))
    assert guess.values_by_size[1].mean == vote.values_by_size[1].mean == pytest.approx(one)
    assert all(ranked.p_holm >= ranked.gain.p_value for ranked in (vote, guess))


def test_chains_that_were_sampled_until_they_agreed_are_no_sample(runs):
    """Any k of them are no k fresh ones: only what is chosen among all is told, and a note says why."""
    alike = measure_ceilings({"mine": runs[0]})
    assert not any("no k fresh ones" in note for note in alike.notes)
    assert ChainCandidates().exchangeable({}) and ChainCandidates().exchangeable({"strategy": "best_of_n"})
    assert not ChainCandidates().exchangeable({"strategy": "tree"})
    folder = make_run(
        runs[0].parent / "adaptive",
        [voted(*each) for each in zip(ASKED, TOLD, strict=True)],
        {"method": "corag", "options": {"strategy": "adaptive", "rank_by": "vote"}},
    )
    found = measure_ceilings({"votes": folder})
    assert found.runs["votes"].sizes == [4] and found.runs["votes"].oracle.keys() == {4}
    (note,) = [note for note in found.notes if note.startswith("votes: ") and "no k fresh ones" in note]
    assert "a 'baseline' for gains" in note and note in found.to_json()["notes"]


def test_a_chain_without_hops_is_not_the_one_with_the_fewest_refusals():
    chains = (
        {"path": "chain 1", "score": None, "hops": [], "answer": "wrong", "signals": {}},
        {
            "path": "chain 2",
            "score": 1.0,
            "hops": [{"refused": True}, {"refused": False}],
            "answer": "T",
            "signals": {},
        },
    )
    question = Question("q", "?", ("T",))
    done = replace(row(question, "T"), answer=Voted("T", (), 1, "read", chains, 1))
    found = SavedRow.from_json(json.loads(done.to_json()))
    empty, whole = ChainCandidates().load(found, {"strategy": "best_of_n", "rank_by": "refusals"})
    assert "refusals" not in empty.scores and whole.scores["refusals"] == -1.0


def test_a_greedy_chain_among_the_candidates_is_told(runs):
    folder = make_run(
        runs[0].parent / "mixed",
        [voted(*each) for each in zip(ASKED, TOLD, strict=True)],
        {"method": "corag", "options": {"strategy": "best_of_n", "first_chain_greedy": True}},
    )
    notes = measure_ceilings({"mixed": folder}).notes
    assert any(note.startswith("mixed: one of the candidates is greedy") for note in notes)


def test_gains_over_another_run_are_paired_by_question(runs):
    mine, base = runs
    (ceiling,) = measure_ceilings({"mine": mine}, base).runs.values()
    assert (ceiling.base.mean, ceiling.base_name) == (0.5, "the baseline")
    assert ceiling.oracle_gain.difference.mean == pytest.approx(4 / 6 - 3 / 6)
    assert ceiling.rankers[0].gain.difference.mean == 0 == ceiling.rankers[0].share.mean


def test_a_baseline_of_another_model_is_noted(runs):
    mine, base = runs
    other = make_run(base.parent / "other", [row(each, "Rome") for each in ASKED], {"model": "another"})
    assert not any("Model differs" in note for note in measure_ceilings({"mine": mine}, base).notes)
    assert any("Model differs" in note for note in measure_ceilings({"mine": mine}, other).notes)


def test_a_failed_question_has_no_right_candidate_though_its_text_be_right():
    question = Question("q", "?", ("",))
    found = candidate_set(saved(question, None), question, (), default_scorer("squad"), "em")
    assert (found.values, found.right, found.final_value) == ([0.0], [False], 0.0)


def test_f1_is_a_worth_while_right_stays_exact(tmp_path):
    question = Question("q", "?", ("Big Town",))
    told = (["Town", "Big Town", "Rome"], [3, 2, 1])
    run = make_run(tmp_path / "run", [answered(question, told)], {"method": "mine"})
    (ceiling,) = measure_ceilings({"run": run}, metric="f1").runs.values()
    assert ceiling.oracle[1].mean == pytest.approx((2 / 3 + 1) / 3) and ceiling.oracle[3].mean == 1
    guess = ceiling.rankers[2]
    assert guess.values_by_size[3].mean == pytest.approx(2 / 3) and guess.auc.mean == 0.5


# ---- the command


def test_the_command_prints_and_says_its_figures_in_json(runs, capsys):
    mine, base = runs
    assert main(["table", str(mine), str(base), "--baseline", str(base), "--ceiling", "--json"]) == 0
    out = capsys.readouterr().out
    record = json.loads(out.splitlines()[-1])
    (run,) = record["runs"].values()
    assert run["oracle"]["4"]["mean"] == pytest.approx(0.6667, abs=1e-4)
    assert run["rankers"]["guess"]["selected"]["4"]["mean"] == 0.5 and record["metric"] == "em"
    for word in ("oracle", "EM@4", "vote", "guess", OWN_CHOICE, "AUC", "mine"):
        assert word in out
    assert main(["table", str(mine), "--ceiling", "--over", "seeds"]) == 2


def test_runs_that_keep_one_answer_are_refused_with_what_to_do(runs, tmp_path, capsys):
    mine, base = runs
    assert "does not choose among answers" in refused(capsys, ["table", str(base), "--ceiling"])
    greedy = [row(each, "Rome") for each in ASKED]
    chain = make_run(tmp_path / "chain", greedy, {"method": "corag", "options": {"strategy": "greedy"}})
    said = refused(capsys, ["table", str(chain), "--ceiling"])
    assert "keeps no more than one answer" in said and "corag.measure=refusal" in said
    assert "give two runs or more" in refused(capsys, ["table", str(mine), "--baseline", "mine", "--ceiling"])
    blank = make_run(tmp_path / "blank", [row(Question("q", "?"), "Rome")])
    assert "no question has gold answers" in refused(capsys, ["table", str(blank), "--ceiling"])


def test_questions_that_a_run_lacks_are_left_out_and_said(runs, tmp_path, capsys):
    mine, _ = runs
    short = make_run(tmp_path / "short", [row(each, "Rome") for each in ASKED[:4]])
    assert main(["table", str(mine), str(short), "--baseline", str(short), "--ceiling", "--json"]) == 0
    out = capsys.readouterr().out
    assert "2 of 6 questions are left out" in out.replace("\n", " ")
    (run,) = json.loads(out.splitlines()[-1])["runs"].values()
    assert run["questions"] == 4


def test_measured_tokens_are_in_no_table(tmp_path, capsys):
    usage = TokenUsage(1, 10, 2, 10, 2)
    rows = [replace(row(each, "Rome"), usage={"reader": usage, "measure": usage}) for each in ASKED]
    run = make_run(tmp_path / "run", rows)
    assert main(["table", str(run), "--json"]) == 0
    (figures,) = json.loads(capsys.readouterr().out.splitlines()[-1])["runs"].values()
    assert figures["tokens_per_question"] == 12
