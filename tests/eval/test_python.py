"""``from corag import ...``: open, ask, run, sweep and sample, in scripts, event loops and threads."""

import asyncio
import gc
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from corag import (
    ClosedBookConfig,
    CoRAGConfig,
    IRCoTConfig,
    OneStepConfig,
    RowsConfig,
    SampleConfig,
    aask,
    ask,
    build_index,
    closed_book,
    corag,
    make_rows,
    one_step,
    open_index,
    open_model,
    run,
    sample_chains,
    sweep,
    train,
    write_world,
)
from corag.core.errors import BackendError, ConfigError, IndexMismatchError
from corag.core.method import Method, MethodConfig
from corag.core.prompting.prompt import Message, Prompt, Segment
from corag.core.tools import Tools
from corag.core.types import Answer, Question
from eval.api import BuiltIndex, Index, Model
from tests.messages import raises_message

pytestmark = pytest.mark.slow

QUICK = OneStepConfig(k=2, max_answer_tokens=3)
SHORT = ClosedBookConfig(max_answer_tokens=3)
HOPS = CoRAGConfig(preset="small_model", strategy="best_of_n", chains=2, max_hops=1, max_sub_query_tokens=4,
    max_sub_answer_tokens=3, max_answer_tokens=3,
)  # fmt: skip
QUESTION = "Which river flows through the town?"


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("world")
    write_world(folder, passages=500, train=4, dev=3, test=4)
    return folder


@pytest.fixture(scope="module")
def built(world: Path) -> BuiltIndex:
    return build_index(world / "corpus.jsonl", out=world / "bm25")


@pytest.fixture(scope="module")
def model(tiny_model: str) -> Iterator[Model]:
    with open_model(tiny_model, backend="transformers") as opened:
        yield opened


@pytest.fixture(scope="module")
def index(built: BuiltIndex) -> Iterator[Index]:
    with open_index(built) as opened:
        yield opened


async def greet(question: Question, tools: Tools) -> Answer:
    """A method of one's own, without options."""
    prompt = Prompt((Message("user", (Segment(f"Say hello to {question.text}"),)),))
    return Answer((await tools.generate(prompt, role="greeting", max_tokens=2)).text, steps=1)


@dataclass(frozen=True)
class WaitConfig(MethodConfig):
    """Options of wait."""

    seconds: float = 60.0


ended: list[str] = []
begun = threading.Event()


async def wait(question: Question, tools: Tools, config: WaitConfig) -> Answer:
    begun.set()
    try:
        await asyncio.sleep(config.seconds)
    finally:
        await asyncio.sleep(0.2)  # as closing files and telling an engine take a while
        ended.append(question.text)
    return Answer("waited")


WAIT = Method(wait, searches=False)


def test_an_answer_shows_how_it_came_about(model: Model, index: Index) -> None:
    answer = ask(QUESTION, corag, model, index, HOPS)
    assert answer.answer is not None and answer.text == answer.answer.text and not answer.error
    assert answer.passages and all(passage.text for passage in answer.passages)
    assert answer.tokens >= answer.computed_tokens > 0 < answer.seconds
    shown = str(answer)
    for part in (QUESTION, "chain 1", "chain 2", "hop 1", "← chosen", f"{answer.tokens:,} tokens"):
        assert part in shown
    assert answer.read[0].title in shown and max(map(len, shown.splitlines())) <= 110
    assert answer.metadata["chunk_ids"] == tuple(passage.id for passage in answer.passages)
    assert answer.metadata["steps"] == 1 and len(answer.metadata["chains"]) == 2
    page = answer._repr_html_()
    assert page.startswith("<pre") and "chain 1" in page
    assert f"{answer.tokens:,} tokens" in repr(answer)


def test_ircot_tells_its_thoughts_by_their_name_in_the_code_of_its_paper(model: Model, index: Index) -> None:
    config = IRCoTConfig(max_steps=2, max_thought_tokens=4, max_answer_tokens=3)
    steps: list[object] = []
    answer = ask(Question("q", QUESTION), "ircot", model, index, config, watch=steps.append)
    assert len(answer.metadata["cot_sentences"]) == answer.metadata["steps"] and answer.metadata["chunk_ids"]
    assert tuple(steps) == answer.steps != ()
    few = replace(config, paragraph_budget=1, k_per_step=3)
    answer = ask(Question("q", QUESTION), "ircot", model, index, few)
    assert len(answer.passages) == 1 < len(answer.metadata["chunk_ids"]), "all that was retrieved"


def test_passages_that_were_fetched_by_id_come_with_their_texts(model: Model, index: Index) -> None:
    async def fetch(question: Question, tools: Tools) -> Answer:
        return Answer("", tuple(passage.id for passage in await tools.passages(list(question.context_ids))))

    first, second = (hit.passage for hit in index.search("river", k=2))
    asked = Question("q", QUESTION, context_ids=(second.id, first.id))
    assert (
        ask(asked, fetch, model, index).passages
        == (second, first)
        == tuple(index.passages([second.id, first.id]))
    )


async def test_everything_works_inside_a_running_event_loop(model: Model, index: Index, world: Path) -> None:
    """As in a notebook: plain calls and awaited ones, on the same engine."""
    plain = ask(QUESTION, one_step, model, index, QUICK)
    awaited, again = await asyncio.gather(
        aask(QUESTION, one_step, model, index, QUICK), aask(QUESTION, one_step, model, index, QUICK)
    )
    assert plain.text == awaited.text == again.text
    with open_model(model.options.name, backend="transformers") as same:
        assert same.engine is model.engine
    assert len(await asyncio.to_thread(index.search, "river", 3)) == 3
    methods = {"short": (closed_book, SHORT)}
    results = await asyncio.to_thread(run, world / "test.jsonl", methods, model, out=world / "in a loop")
    assert len(results.rows("short")) == 4


def test_one_engine_per_model_however_often_it_is_opened(tiny_model: str, model: Model) -> None:
    other = {"backend": "transformers", "max_context": 512}
    first = open_model(tiny_model, **other)
    second = open_model(Path(tiny_model), **other)
    engine = second.engine
    assert first.engine is engine is not model.engine
    first.close()
    first.close()
    assert ask(QUESTION, closed_book, second, config=SHORT).text, "whoever has it open still goes on"
    with raises_message(ConfigError):
        ask(QUESTION, closed_book, first, config=SHORT)
    del second
    gc.collect()
    with open_model(tiny_model, **other) as third:
        assert third.engine is engine, "a cell that is run again does not wait for an engine again"
    with open_model(tiny_model, **other) as fourth:
        assert fourth.engine is not engine, "the last who had it closed it, whatever was forgotten"


def test_an_index_that_was_built_again_is_opened_again(world: Path, tmp_path: Path) -> None:
    lines = (world / "corpus.jsonl").read_text().splitlines(keepends=True)
    (tmp_path / "few.jsonl").write_text("".join(lines[:20]))
    few = build_index(tmp_path / "few.jsonl", out=tmp_path / "few")
    assert few.manifest.passages == 20 and "20 passages" in repr(few)
    before = open_index(few)
    (tmp_path / "few.jsonl").write_text("".join(lines[:30]))
    with raises_message(IndexMismatchError):
        build_index(tmp_path / "few.jsonl", out=tmp_path / "few")
    more = build_index(tmp_path / "few.jsonl", out=tmp_path / "few", overwrite=True)
    with open_index(more) as after:
        assert after.engine.fingerprint != before.engine.fingerprint
        assert before.search("river", 1) and after.engine is before.engine, "an open one follows"
    before.close()


def test_documents_are_answered_as_on_the_command_line(model: Model, tmp_path: Path) -> None:
    (tmp_path / "staff").mkdir()
    (tmp_path / "staff" / "leave.md").write_text("# Leave\n\nStaff have thirty days of leave.\n")
    documents = build_index(tmp_path / "staff", out=tmp_path / "index")
    with open_index(documents) as index:
        answer = ask(QUESTION, one_step, model, index, QUICK)
        assert answer.citations, "each sentence is checked, here for passages that it does not cite"
        assert not ask(QUESTION, one_step, model, index, QUICK, prompts="short").citations


def test_threads_share_an_engine(model: Model, index: Index) -> None:
    with ThreadPoolExecutor(2) as threads:
        asked = [threads.submit(ask, QUESTION, one_step, model, index, QUICK) for _ in range(4)]
        assert len({each.result().text for each in asked}) == 1
        opened = [threads.submit(open_model, model.options.name, backend="transformers") for _ in range(4)]
        assert {each.result().engine for each in opened} == {model.engine}


def test_ctrl_c_cancels_a_question_and_waits_until_it_has_ended(model: Model) -> None:
    ended.clear()
    begun.clear()

    def interrupt() -> None:
        assert begun.wait(60)
        time.sleep(0.3)  # whoever asked waits by now
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=interrupt).start()
    with pytest.raises(KeyboardInterrupt):
        ask("cancelled", WAIT, model)
    assert ended == ["cancelled"]
    assert ask("anything", greet, model).text, "the engine is as before"


async def test_what_awaits_a_question_can_cancel_it(model: Model) -> None:
    ended.clear()
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(aask("late", WAIT, model), 0.2)
    assert ended == ["late"]


def test_a_method_awaits_and_does_not_wait(model: Model) -> None:
    async def nested(question: Question, tools: Tools) -> Answer:
        with raises_message(ConfigError):
            ask(question, greet, model)
        return (await aask(question, greet, model)).answer or Answer("")

    assert ask("anything", nested, model).text == ask("anything", greet, model).text


def test_a_cell_with_another_model_has_it_opened_for_its_time(
    model: Model, world: Path, tmp_path: Path
) -> None:
    cells = {
        "long": {"method": "closed_book", "closed_book.max_answer_tokens": 2},
        "window": {"method": "closed_book", "closed_book.max_answer_tokens": 2, "model.max_context": 700},
    }
    found = sweep(world / "test.jsonl", cells, model, out=tmp_path, limit=2, resamples=5)
    assert len(found.table().figures.summaries) == 2 and ":700:" in str(found)
    assert model.engine is not None


def test_chains_are_sampled_and_become_rows(model: Model, index: Index, world: Path, tmp_path: Path) -> None:
    config = SampleConfig(chains=2, max_hops=2)
    chains = sample_chains(
        world / "train.jsonl", model, index, out=tmp_path / "chains", config=config, corag=HOPS, limit=3
    )
    assert chains.description.questions == 3 and "questions 3" in str(chains)
    assert sum(len(row.chains) for row in chains.rows) == 6 and chains.description.kept == 3
    more = sample_chains(
        world / "train.jsonl", model, index, out=tmp_path / "chains", config=config, corag=HOPS
    )
    assert len(more.rows) == 4 and [row.chains for row in more.rows][:3] == [
        row.chains for row in chains.rows
    ]
    chosen = RowsConfig(tasks=("final_answer", "draft"), ratio=1.0, validation=0.0)
    rows = make_rows(more, index, out=tmp_path / "rows", config=chosen)
    assert len(rows.load()["train"]) == 8 and "train/draft" in str(rows)
    again = make_rows([tmp_path / "chains"], index, out=tmp_path / "rows", config=chosen)
    assert again.report == rows.report
    with raises_message(ConfigError):
        make_rows(more, index, out=tmp_path / "rows")


def other_questions(model: Model, tmp_path: Path) -> None:
    for name in "ab":
        run([{"id": name, "question": name, "answers": [name]}], greet, model, out=tmp_path)


def other_settings(model: Model, tmp_path: Path) -> None:
    for tokens in (2, 3):
        asked = [{"id": "a", "question": "a", "answers": ["a"]}]
        method = {"closed": (closed_book, ClosedBookConfig(max_answer_tokens=tokens))}
        run(asked, method, model, out=tmp_path)


RECORD = [{"id": "a", "question": "a?", "answers": ["b"]}]


@pytest.mark.parametrize(
    ("wrong", "error", "sentence"),
    [
        (lambda m, i, p: ask("a?", corag, m), ConfigError,
         "'corag' searches, but there is no index: open one with open_index"),
        (lambda m, i, p: open_index(p / "nothing"), IndexMismatchError, "no index folder"),
        (lambda m, i, p: run(RECORD, [greet, greet], m, i, out=p), ConfigError, "a method is named twice"),
        (lambda m, i, p: sweep([{"question": "a"}], {"a": greet}, m, out=p), ConfigError,
         "1 of 1 questions have no gold answers"),
        (lambda m, i, p: other_questions(m, p), ConfigError,
         "holds runs on other questions: choose another out"),
        (lambda m, i, p: other_settings(m, p), ConfigError, "max_answer_tokens: 2 -> 3"),
        (lambda m, i, p: sweep(RECORD, {"a": {"method": "corag"}}, m, out=p), ConfigError,
         "the cell 'a' searches, but there is no index"),
        (lambda m, i, p: sweep(RECORD, {"a": greet}, m, i, out=p, dev=RECORD), ConfigError,
         "1 of the dev questions are among those"),
        (lambda m, i, p: sample_chains(RECORD, m, i, out=p, config=CoRAGConfig()), ConfigError,
         "an object of SampleConfig is wanted here, not CoRAGConfig"),
        (lambda m, i, p: train(p / "rows", out=p / "adapter"), BackendError, "ended with status 2"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_said_in_a_sentence(
    model: Model, index: Index, tmp_path: Path, wrong, error, sentence: str
) -> None:
    with pytest.raises(error, match=sentence):
        wrong(model, index, tmp_path)


def in_a_process(script: str, tmp_path: Path) -> subprocess.CompletedProcess[str]:
    file = tmp_path / "script.py"
    file.write_text(script)
    root = str(Path(__file__).parents[2])
    command = [sys.executable, str(file)]
    return subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=300, cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": root},
    )  # fmt: skip


def test_a_script_without_the_main_line_ends_in_a_sentence(tmp_path: Path) -> None:
    ended = in_a_process("from corag import open_model\n\nmodel = open_model()\n", tmp_path)
    assert ended.returncode == 1 and "import vllm" not in ended.stderr
    last = ended.stderr.strip().splitlines()[-1]
    assert 'if __name__ == "__main__":' in last
    assert 'backend="transformers"' in last


def test_a_forked_process_is_told_that_it_has_no_engine(tmp_path: Path) -> None:
    script = """
import os
from eval.api.background import background
async def nothing():
    return "fine"
print(background().run(nothing()), flush=True)
if os.fork() == 0:
    try:
        background().run(nothing())
    except Exception as error:
        print(error, flush=True)
    os._exit(0)
os.wait()
"""
    said = in_a_process(script, tmp_path).stdout.splitlines()
    assert said[0] == "fine" and said[1].startswith("this process was forked")
