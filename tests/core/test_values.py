"""Prompts, templates, demonstrations, seeds, files, micro-batches, the ledger: what everything stands on."""

import asyncio
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.batching import MicroBatcher
from core.errors import BudgetExhaustedError, ConfigError, DataError
from core.files import read_jsonl, read_records
from core.prompting.demonstrations import parse_demonstrations, read_demonstrations, rebuild
from core.prompting.prompt import Prompt, Segment
from core.prompting.render import load_layout, render_demonstrations, render_passages
from core.prompting.shorten import shorten
from core.prompting.template import load_template, parse_template
from core.protocols import Sampling
from core.reader import ReaderConfig, reader_prompt
from core.seeds import derive_seed
from core.text import extract_answer, normalize_answer, stated_answer
from core.tools import Tools
from core.types import Question, TokenUsage, passage_id
from tests.data import data_folder
from tests.fakes import ScriptedGenerator, passage, words

QUESTION = Question("q", "Who?")


def test_a_template_becomes_turns_and_a_prefix():
    template = parse_template(
        "t",
        "version: 3\n--- system\nBe brief.\n--- user\n{paragraphs}Q: {query} {not a field}\n--- "
        "assistant\nA:",
    )
    prompt = template.render({"query": "Who?", "paragraphs": [Segment("P1\n", 1), Segment("P2\n", 2)]})
    assert [message.role for message in prompt.messages] == ["system", "user"]
    assert prompt.messages[1].text == "P1\nP2\nQ: Who? {not a field}" and prompt.prefix == "A:"
    assert [segment.drop for segment in prompt.messages[1].segments] == [1, 2, None, None, None]
    assert template.identity.startswith("t v3 ")


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("no version\n--- user\nx", "must begin with 'version: N'"),
        ("version: 1\nno section", "must begin with"),
        ("version: 1\n--- usr\nx", "did you mean 'user'"),
        ("version: 1\n--- plain\nx\n--- user\ny", "stands alone"),
    ],
)
def test_a_broken_template_is_named(text, complaint):
    with pytest.raises(ConfigError, match=complaint):
        parse_template("t", text)


def test_a_users_own_prompt_file_and_text(tmp_path):
    file = tmp_path / "mine.txt"
    file.write_text("version: 7\n--- plain\nQ {query}")
    assert load_template(str(file), tmp_path / "none").render({"query": "Who?"}).text == "Q Who?"
    assert load_template("Ask: {query}", tmp_path).render({"query": "Who?"}).messages[0].role == "user"


@pytest.mark.parametrize(("goes_first", "passages"), [("first", ["1 P", "2 Q"]), ("last", ["2 Q", "1 P"])])
def test_demonstrations_are_left_out_before_passages_and_these_before_hops(tmp_path, goes_first, passages):
    file = tmp_path / "demonstrations.txt"
    file.write_text("Q: One?\nA: 1\n\n\nQ: Two?\nA: 2")
    template = parse_template(
        "t",
        "version: 1\n--- passage\n{number} {title}\n--- hop\n{sub_query}\n--- demonstration\n{query}\n"
        "--- user\n{hops}{passages}{demonstrations}Who?",
    )
    prompt = template.render(
        {
            "hops": template.items("hop", [{"sub_query": "A?"}, {"sub_query": "B?"}]),
            "passages": render_passages(
                [passage("P", "p"), passage("Q", "q")], template, goes_first=goes_first
            ),
            "demonstrations": render_demonstrations(read_demonstrations(str(file)), template),
        }
    )
    assert prompt.text == "A?\nB?\n1 P\n2 Q\nOne?\nTwo?\nWho?"
    _, gone = shorten(prompt, lambda _: 1, len)
    assert [segment.text.strip() for segment in gone] == ["One?", "Two?", *passages, "A?", "B?"]


def test_a_readers_prompt_may_say_how_passages_are_written(tmp_path):
    file = tmp_path / "mine.txt"
    file.write_text("version: 1\n--- passage\n<{title}> {text}\n--- user\n{paragraphs}Q {query}")
    shown = [passage("T", "one two three ")]
    prompt = reader_prompt(QUESTION, shown, ReaderConfig(qa_prompt=str(file), max_shown_words=2))
    assert prompt.text == "<T> one two\nQ Who?"
    prompt = reader_prompt(QUESTION, shown, ReaderConfig(qa_prompt="{paragraphs}Q {query}"))
    assert prompt.text == "Wikipedia Title: T\none two three\n\nQ Who?", "as IRCoT does if it says nothing"


def test_plain_prompts_end_without_a_blank():
    assert Prompt.of_text("Q: x\nA: ").text == "Q: x\nA:"


def test_every_released_demonstration_is_rebuilt_byte_for_byte():
    files = sorted((data_folder() / "ircot_demonstrations").glob("*/*.txt"))
    assert files
    for file in files:
        text = file.read_text(encoding="utf-8")
        demonstrations = parse_demonstrations(text, str(file))
        assert len(demonstrations) >= 20
        assert rebuild(demonstrations) == text
        if "_cot_" in file.name:
            assert all(stated_answer(demo.answer) for demo in demonstrations)


def test_demonstrations_can_be_direct_and_counted(tmp_path):
    file = tmp_path / "d.txt"
    file.write_text(
        "Q: One?\nA: It is so. So the answer is: 1.\n\n\nWikipedia Title: T\nText.\n\nQ: Two?\nA: So the "
        "answer is: 2."
    )
    layout = load_layout("layout")
    shown = render_demonstrations(read_demonstrations(str(file), 1, direct=True), layout)
    assert [segment.text for segment in shown] == ["Q: One?\nA: 1\n\n\n"]
    assert [demo.text for demo in read_demonstrations(str(file), 1, ("2",), direct=True)] == [
        "Wikipedia Title: T\nText.\n\nQ: Two?\nA: 2"
    ]
    both = read_demonstrations(str(file))
    assert [segment.text for segment in render_demonstrations(both, layout)] == [
        f"{demo.text}\n\n\n" for demo in both
    ]
    with pytest.raises(DataError, match="no demonstration '9'"):
        read_demonstrations(str(file), 0, ("9",))
    with pytest.raises(DataError, match=r"d\.txt, demonstration 1"):
        parse_demonstrations("Q: no answer", "d.txt")


def test_records_in_every_shape(tmp_path):
    rows = [{"a": 1, "b": {"c": 2}}, {"a": 2, "b": {"c": 3}}]
    texts = {
        "lines.jsonl": '{"a": 1, "b": {"c": 2}}\n\n{"a": 2, "b": {"c": 3}}\n',
        "lines.json": '{"a": 1, "b": {"c": 2}}\n{"a": 2, "b": {"c": 3}}\n',
        "list.json": '[{"a": 1, "b": {"c": 2}}, {"a": 2, "b": {"c": 3}}]',
        "data.json": '{"data": [{"a": 1, "b": {"c": 2}}, {"a": 2, "b": {"c": 3}}]}',
        "columns.json": '{"a": {"0": 1, "1": 2}, "b": {"0": {"c": 2}, "1": {"c": 3}}}',
    }
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
        assert list(read_records(tmp_path / name)) == rows, name
    (tmp_path / "broken.jsonl").write_text('{"a": 1}\n{"a": \n')
    with pytest.raises(DataError, match=r"broken\.jsonl, line 2"):
        list(read_jsonl(tmp_path / "broken.jsonl"))
    with pytest.raises(DataError, match=r"there is no file"):
        list(read_jsonl(tmp_path / "missing.jsonl"))


def test_an_empty_question_is_refused():
    with pytest.raises(DataError, match="'q7' has no text"):
        Question("q7", "  ")


def test_seeds_do_not_depend_on_the_process():
    code = "from core.seeds import derive_seed; print(derive_seed(1, 'q', 'chain 3', 2))"
    printed = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={"PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert printed == {f"{derive_seed(1, 'q', 'chain 3', 2)}\n"}
    assert derive_seed("1", "2") != derive_seed("12") != derive_seed(12)


@given(st.text())
def test_normalising_is_idempotent_and_extraction_never_fails(text):
    assert normalize_answer(normalize_answer(text)) == normalize_answer(text)
    assert isinstance(extract_answer(text), str)


def test_passage_ids_ignore_white_space_only():
    assert passage_id("T", "a  b\n") == passage_id("T", "a b") != passage_id("T", "ab")


async def test_a_batch_takes_what_waits_and_keeps_order():
    batches = []

    def work(items):
        batches.append(list(items))
        return [item * 10 for item in items]

    batcher = MicroBatcher(work, max_batch=8)
    assert await asyncio.gather(*(batcher.submit(n) for n in range(20))) == [n * 10 for n in range(20)]
    assert [len(batch) for batch in batches] == [8, 8, 4]
    batches.clear()
    await asyncio.gather(*(batcher.submit(n, priority=-n) for n in range(10)))
    assert batches[0] == list(range(9, 1, -1))
    batcher.close()


async def test_a_failing_batch_fails_its_callers_only():
    def work(items):
        if "bad" in items:
            raise RuntimeError("no")
        return items

    batcher = MicroBatcher(work, max_batch=2)
    results = await asyncio.gather(
        *(batcher.submit(item) for item in ["bad", "a", "b", "c"]), return_exceptions=True
    )
    assert [type(result) for result in results] == [RuntimeError, RuntimeError, str, str]
    batcher.close()


@given(
    st.lists(
        st.tuples(st.sampled_from(["sub-query", "reader", "thought"]), st.integers(1, 5), st.integers(1, 3)),
        max_size=12,
    )
)
def test_the_ledger_adds_up_by_role(calls):
    async def spend():
        generator = ScriptedGenerator(lambda request: "a b c")
        tools = Tools(QUESTION, generator)
        for role, length, n in calls:
            await tools.generate(Prompt.of_text("w " * length), role=role, max_tokens=9, n=n)
        return tools

    tools = asyncio.run(spend())
    for role in {role for role, _, _ in calls}:
        mine = [(length, n) for name, length, n in calls if name == role]
        usage = tools.ledger[role]
        assert (usage.calls, usage.prompt) == (len(mine), sum(length for length, _ in mine))
        assert usage.generated == sum(3 * n for _, n in mine)
    assert tools.spent.total == sum(step.usage.total for step in tools.steps)


async def test_sampled_calls_get_seeds_of_their_own_and_never_share_one():
    generator = ScriptedGenerator(lambda request: "x")
    tools = Tools(QUESTION, generator, seed=1)
    for chain in range(3):
        await tools.generate(
            Prompt.of_text("p"), role="sub-query", max_tokens=5, temperature=0.7, path=f"chain {chain}/hop 1"
        )
    seeds = [request.sampling.seed for request in generator.requests]
    assert len(set(seeds)) == 3 and None not in seeds
    with pytest.raises(ValueError, match="share"):
        await tools.generate(
            Prompt.of_text("p"), role="sub-query", max_tokens=5, temperature=0.7, path="chain 0/hop 1"
        )
    assert [request.priority for request in generator.requests] == [0, -1, -2]


async def test_a_call_that_could_exceed_the_budget_is_not_made():
    generator = ScriptedGenerator(lambda request: "one two")
    tools = Tools(QUESTION, generator, budget=17)
    await tools.generate(Prompt.of_text("a b c d"), role="thought", max_tokens=5)
    assert tools.left == 11
    await tools.generate(Prompt.of_text("a b c d"), role="thought", max_tokens=5)
    with pytest.raises(BudgetExhaustedError, match="has 5 of its 17 tokens left; a call may cost 8"):
        await tools.generate(Prompt.of_text("a"), role="thought", max_tokens=5)
    with pytest.raises(BudgetExhaustedError):
        await tools.score(Prompt.of_text("a b"), "yes no", role="score")
    with tools.hold_back_tokens(1):
        assert tools.left == 4
    assert tools.left == 5 and len(generator.requests) == 2


async def test_branches_share_the_budget_evenly_and_pay_into_one_ledger():
    tools = Tools(QUESTION, ScriptedGenerator(lambda request: "one two"), budget=100)
    first, second = tools.branch(2)
    assert (first.left, second.left) == (50, 50)
    await first.generate(Prompt.of_text("a b c d"), role="thought", max_tokens=5)
    assert (first.left, second.left, tools.left) == (44, 50, 94)
    (inner,) = second.branch(1, 20)
    await inner.generate(Prompt.of_text("a b"), role="final", max_tokens=5)
    assert (inner.left, second.left, tools.left) == (16, 46, 90)
    assert {role: usage.total for role, usage in tools.ledger.items()} == {"thought": 6, "final": 4}
    assert [step.role for step in tools.steps] == ["thought", "final"]
    assert Tools(QUESTION, ScriptedGenerator([])).branch(3)[0].left is None and tools.branch(0) == []


def test_remembered_replies_count_but_cost_nothing():
    usage = TokenUsage(1, 100, 10, 40, 10)
    assert (usage.cached, usage.computed) == (60, 50)
    again = usage.remembered()
    assert (again.total, again.computed, again.cached) == (110, 0, 100)
    assert words("a b") == 2


def test_impossible_sampling_is_refused():
    with pytest.raises(ConfigError, match="max_tokens=0"):
        Sampling(0)
