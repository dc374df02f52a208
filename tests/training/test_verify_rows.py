"""Rows of the verifier, from the candidates' answers: as decoding asks, balanced, split by question."""

import asyncio
from dataclasses import replace

import orjson
import pytest
from datasets import load_from_disk

from corag.chains.chain import Hop
from corag.chains.method import corag
from corag.chains.prompting import continuation
from corag.core.errors import ConfigError
from corag.core.protocols import ScoreRequest
from corag.core.runs.folder import TRACES
from corag.core.seeds import derive_seed
from corag.core.text import exact_match
from corag.core.tools import Tools
from tests.fakes import ScriptedGenerator, WordRetriever
from tests.messages import raises_message
from tests.training import toy
from tests.training.toy import QUESTION, SAMPLE, WORLD, by_prompt, examples_of, many, write_chains
from training.chains import ChainRow, describe, read_chains
from training.data import RowsConfig, balance_by_length, is_validation, tokenise
from training.row_tasks import contested_candidates
from training.rows import write_rows
from training.sampling import SampledChain

CORAG = replace(toy.CORAG, max_sub_query_tokens=32, max_sub_answer_tokens=32)
VERIFY = RowsConfig(tasks=("verify",), validation=0.0)
WRONG = ("Rhine", "Oder", "Elbe", "", "the Issel")


def answers_vary(request):
    """A model that answers one question in this way and in that."""
    text = request.prompt.text
    if request.sampling.seed is None and "Main question" in text:
        return WRONG[derive_seed(text, "final") % len(WRONG)]
    return by_prompt(request)


def row_of(*answers, name="q1", hops=1):
    """A question with a chain for every answer."""
    hop = Hop("Who?", "Mara Velden", False, ("mara velden", "tarn hollow"))
    chains = tuple(
        SampledChain(
            tuple(replace(hop, sub_query=f"{number}.{each}?") for each in range(hops)), (-1.0,), (-1.0,), 1,
            "length", 0, answer,
        )
        for number, answer in enumerate(answers)
    )  # fmt: skip
    return ChainRow(replace(QUESTION, id=name), ("tarn hollow",), chains, 0, "")


def taken(row, config=VERIFY):
    return [(number, right) for number, _, right in contested_candidates(row, config)]


# ---- which candidates


def test_as_many_right_answers_as_wrong_ones():
    row = row_of("Issel", "Rhine", "the river Issel", "Oder", "Elbe", "issel.")
    found = taken(row)
    assert [right for _, right in found].count(True) == [right for _, right in found].count(False) == 2
    assert all(
        exact_match(row.chains[number - 1].answer, QUESTION.answers) == right for number, right in found
    )
    assert len(taken(row, replace(VERIFY, verify_pairs=9))) == 6
    assert taken(row) == taken(row) and found == sorted(found)
    others = [taken(row, replace(VERIFY, seed=seed)) for seed in range(20)]
    assert len(set(map(tuple, others))) > 1


def test_a_question_that_is_always_right_or_always_wrong_says_nothing():
    assert taken(row_of("Issel", "the Issel")) == taken(row_of("Rhine", "Oder", "", None)) == []
    assert len(taken(row_of("Issel", "Rhine", "", None))) == 2, "blank answers and none are no candidates"
    assert taken(row_of("Issel", "Rhine", hops=0)) == [], "a chain without hops has nothing to judge by"


def test_where_all_are_right_or_all_wrong_one_may_tell_how_sure_to_be():
    sure = replace(VERIFY, verify_uncontested=True)
    assert [right for _, right in taken(row_of("Issel", "the Issel"), sure)] == [True]
    assert [right for _, right in taken(row_of("Rhine", "Oder", "Elbe"), sure)] == [False]
    assert taken(row_of("", None), sure) == []
    both = row_of("Issel", "Rhine")
    assert taken(both, sure) == taken(both), "contested questions are as balanced as without"


def test_other_wrong_answers_come_before_the_same_again():
    for seed in range(10):
        config = replace(VERIFY, seed=seed)
        row = row_of("Issel", "Rhine", "Rhine", "rhine", "the Rhine", "Oder", "Issel", "issel")
        wrong = [row.chains[number - 1].answer for number, right in taken(row, config) if not right]
        assert "Oder" in wrong and len(wrong) == 2
    same = row_of("Issel", "Rhine")
    twice = replace(same, chains=(*same.chains, *same.chains))
    assert taken(twice, replace(VERIFY, verify_pairs=2)) == taken(same), "word by word the same counts once"


# ---- prompts


@pytest.mark.parametrize("judges", ["final", "draft"])
def test_rows_ask_what_the_verifier_is_asked(renderer, judges):
    asked = iter(["Who wrote The Glass Orchard?", "Where was Mara Velden born?"])
    drawn = iter(["Mara Velden", "Tarn Hollow"])

    def reply(request):
        text = request.prompt.text
        if request.sampling.seed is not None:
            return next(asked)
        return "The Issel." if "Main question" in text else next(drawn)

    config = replace(
        CORAG, strategy="best_of_n", chains=1, reuse=False, max_hops=2, rank_by="verifier", judged=judges,
        max_passage_tokens=9,
    )  # fmt: skip
    generator = ScriptedGenerator(reply)
    generator.count_tokens = renderer.count
    tools = Tools(QUESTION, generator, WordRetriever(WORLD))
    answer = asyncio.run(corag(QUESTION, tools, config))
    (record,) = answer.chains
    sampled = SampledChain(record.hops, (-1.0,) * 2, (-1.0,) * 2, 2, "length", 0, record.answer)
    other = replace(sampled, answer="Rhine")
    row = ChainRow(QUESTION, (), (sampled, other), 0, "")
    made = examples_of(row, renderer.count, VERIFY, config)
    assert [(each.reply, each.hop) for each in made] == [("Yes", 1), ("No", 2)]
    requests = [request for request in generator.scored if request.target.strip() in ("Yes", "No")]
    assert len(requests) == 2 and made[0].prompt == requests[0].prompt == requests[1].prompt
    for example in made:
        done, _ = tokenise(example, renderer, VERIFY)
        said = continuation(example.prompt, example.reply)
        target = renderer.target_ids(ScoreRequest(example.prompt, said, end_of_turn=True))
        assert done.input_ids == renderer.encode(example.prompt) + target
        # What is scored is what is taught, but for the end of turn after it.
        assert target[:-1] == renderer.target_ids(ScoreRequest(example.prompt, said))
    assert made[1].prompt.text == made[0].prompt.text.replace("judge: The Issel", "judge: Rhine")
    assert "candidate 2" in made[1].name
    alone = examples_of(row, renderer.count, replace(VERIFY, verify_passages=0), config)
    as_decoded = replace(config, verify_passages=0)
    assert alone == examples_of(row, renderer.count, VERIFY, as_decoded)
    assert "[1] " in made[0].prompt.text and "[1] " not in alone[0].prompt.text


# ---- from sampling to rows


@pytest.fixture(scope="module")
def chains(tmp_path_factory):
    folder = tmp_path_factory.mktemp("verify") / "chains"
    config = replace(SAMPLE, chains=6, answers="final", reject_below=-0.5)
    write_chains(folder, config, CORAG, questions=many(40), reply=answers_vary)
    return folder


def test_sampling_notes_every_candidates_answer(chains):
    rows = read_chains([chains])
    answers = [chain.answer for row in rows for chain in row.chains]
    assert len(answers) == 240 and None not in answers and len(set(answers)) == len(WRONG)
    found = describe(rows)
    right = sum(exact_match(answer, QUESTION.answers) for answer in answers)
    assert (found.answers, found.right) == (240, right) and found.contested > 10
    assert f"questions with right and wrong ones: {found.contested}" in "\n".join(found.lines())


def test_rows_are_balanced_and_split_by_question(chains, tmp_path, renderer):
    config = replace(VERIFY, validation=0.3)
    report = asyncio.run(write_rows([chains], tmp_path / "rows", WordRetriever(WORLD), renderer, config))
    data = load_from_disk(str(tmp_path / "rows"))
    ids = {split: set(rows["question_id"]) for split, rows in data.items()}
    assert ids["train"] and ids["validation"] and not ids["train"] & ids["validation"]
    assert all(is_validation(name, config) for name in ids["validation"])
    for rows in data.values():
        by_question = {}
        for row in rows:
            by_question.setdefault(row["question_id"], []).append(row["completion"].strip())
        assert all(said.count("Yes") == said.count("No") <= 2 for said in by_question.values())
    kept = {row.question.id for row in read_chains([chains]) if row.chain is not None}
    assert (ids["train"] | ids["validation"]) - kept, "a question that is left out may be judged all the same"
    assert set(report.lengths) == {"train/verify", "validation/verify"}


def test_chains_without_answers_are_read_as_before_and_give_no_verifier(tmp_path, renderer):
    write_chains(tmp_path / "chains", SAMPLE, CORAG, questions=many(3))
    traces = tmp_path / "chains" / TRACES
    lines = [orjson.loads(line) for line in traces.read_bytes().splitlines()]
    for line in lines:  # as an older version wrote them
        for chain in line["answer"]["chains"]:
            assert chain.pop("answer") is None
    traces.write_bytes(b"".join(orjson.dumps(line) + b"\n" for line in lines))
    rows = read_chains([tmp_path / "chains"])
    assert all(chain.answer is None for row in rows for chain in row.chains) and describe(rows).answers == 0
    write = lambda config: write_rows(  # noqa: E731
        [tmp_path / "chains"], tmp_path / "rows", WordRetriever(WORLD), renderer, config
    )
    with raises_message(ConfigError):
        asyncio.run(write(VERIFY))
    assert asyncio.run(write(RowsConfig(ratio=1.0))).questions == 3


# ---- balance of the other tasks


def test_chains_of_each_length_are_equally_many():
    rows = [row_of("Issel", name=f"q{n}", hops=1 + (n % 10 > 6) + (n % 10 > 8)) for n in range(100)]
    config = replace(VERIFY, per_length=8)
    names = balance_by_length(rows, config)
    lengths = [len(row.chain.hops) for row in rows if row.question.id in names]
    assert [lengths.count(length) for length in (1, 2, 3)] == [8, 8, 8]
    assert balance_by_length(rows, VERIFY) == {row.question.id for row in rows}
    assert balance_by_length(rows, replace(config, seed=1)) != names == balance_by_length(rows[::-1], config)


def test_recoveries_are_taught_more_often():
    hops = [("a", False), ("b", True), ("c", True), ("d", False), ("e", False)]
    chain = SampledChain(
        tuple(Hop(name, "x", refused, ("mara velden",)) for name, refused in hops),
        (-1.0,),
        (-1.0,),
        5,
        "length",
    )
    row = ChainRow(QUESTION, (), (chain,), 0, "")
    config = RowsConfig(tasks=("sub_query",), ratio=1.0, recovery_copies=3)
    made = [each.reply for each in examples_of(row, len, config, CORAG)]
    assert made == ["a", "b", "c", "d", "d", "d", "e"]


@pytest.mark.parametrize("options", [{"verify_pairs": 0}, {"per_length": -1}, {"recovery_copies": 0}])
def test_impossible_options_are_refused(options):
    with raises_message(ConfigError):
        RowsConfig(**options)
