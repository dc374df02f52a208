"""Models, retrievers and methods of one's own, in any form that a person would try first."""

import asyncio
import json
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from corag import (
    Answer,
    ClosedBookConfig,
    CoRAGConfig,
    Passage,
    Question,
    Tools,
    aask,
    ask,
    closed_book,
    corag,
    ircot,
    one_step,
    open_index,
    open_model,
    report,
    run,
    sweep,
    table,
)  # fmt: skip
from corag.cli.main import main
from corag.core.errors import BackendError, ConfigError
from corag.core.own_objects import describe, identify, register
from corag.core.prompting.prompt import as_prompt
from corag.core.protocols import Completion, GenerateRequest, Generation, Generator
from corag.core.seeds import stable_hash
from corag.core.types import TokenUsage
from eval.datasets.load import load_questions
from eval.experiment.backends import identify_weights
from tests.eval.test_own_methods import served_app
from tests.messages import raises_message

TEXTS = ["Paris is the capital of France.", "Rome is the capital of Italy.", "Lyon is a city in France."]
ASKED = "What is the capital of France?"

RECORDS = [{"id": str(n), "question": f"{ASKED} ({n})", "answers": ["Paris"]} for n in range(3)]


def find(query: str, k: int) -> list[str]:
    """Rank texts by the words that they share with the query."""
    wanted = set(query.lower().split())
    return sorted(TEXTS, key=lambda text: -len(wanted & set(text.lower().split())))[:k]


def say(prompt: str) -> str:
    """Answer whatever is asked, and keep to IRCoT's form of an answer."""
    return "So the answer is: Paris."


class Searcher:
    """Has the method that is named, and nothing else."""

    def __init__(self, name: str, function: Any) -> None:
        setattr(self, name, function)


async def find_later(query: str, k: int) -> list[str]:
    await asyncio.sleep(0)
    return find(query, k)


@pytest.mark.parametrize(
    "index",
    [
        find_later, lambda query, top_k: find(query, top_k), partial(find), Searcher("search", find),
        [Passage("1", "Paris", TEXTS[0]), {"text": TEXTS[1]}, TEXTS[2]],
        lambda query, k: [(text, 1.0) for text in find(query, k)],
    ],
)  # fmt: skip
def test_what_finds_passages_is_an_index(index: Any) -> None:
    answer = ask(ASKED, one_step, say, index, k=1)
    assert answer.text == "Paris" and not answer.error
    assert [passage.text for passage in answer.passages] == [TEXTS[0]], "k passages, the best first"
    assert answer.passages[0].id and answer.sources


class Talker:
    """A class of models with one method."""

    def generate(self, prompt: str, max_tokens: int) -> str:
        assert max_tokens > 0
        return say(prompt)


class Whole(Generator):
    """A generator of our protocol."""

    fingerprint = "whole"

    def count_tokens(self, text: str) -> int:
        return len(text.split())

    async def generate(self, request: GenerateRequest) -> Generation:
        text = say(request.prompt.text)
        return Generation((Completion(text, (), "stop"),), TokenUsage(1, 70, 7, 70, 7))


def converse(messages: list[dict[str, str]]) -> str:
    assert {each["role"] for each in messages} <= {"system", "user", "assistant"}
    return say("")


async def say_later(prompt: str, temperature: float, stop: list[str] | None = None) -> str:
    await asyncio.sleep(0)
    return say(prompt)


@pytest.mark.parametrize("model", [say_later, converse, Talker(), Talker().generate, Whole()])
def test_what_answers_prompts_is_a_model(model: Any) -> None:
    for method in (closed_book, one_step, ircot, corag):
        answer = ask(ASKED, method, model, find)
        assert "Paris" in answer.text and not answer.error and answer.tokens


def test_a_reply_ends_at_a_stop_string_and_settings_are_told_by_name() -> None:
    told: list[dict[str, Any]] = []

    async def method(question: Question, tools: Tools) -> Answer:
        options: dict[str, Any] = {"role": "r", "max_tokens": 9, "stop": ["\n"]}
        first = await tools.generate("Who?", **options)
        more = await tools.generate("Who?", temperature=0.5, n=2, path="2", **options)
        return Answer(first.text + "|".join(each.text for each in more.completions))

    def model(prompt: str, *, max_tokens: int, temperature: float, seed: int | None = -1) -> str:
        told.append({"prompt": prompt, "tokens": max_tokens, "heat": temperature, "seed": seed})
        return f"{len(told)}\nmore"

    assert ask(ASKED, method, model).text == "12|3"
    assert [each["heat"] for each in told] == [0, 0.5, 0.5] and {each["tokens"] for each in told} == {9}
    assert told[0] == {"prompt": "Who?", "tokens": 9, "heat": 0, "seed": None}
    assert told[1]["seed"] != told[2]["seed"], "each sample has a seed of its own"


def test_what_a_model_cannot_do_is_said_before_the_first_question(tmp_path: Path) -> None:
    asked: list[str] = []

    def model(prompt: str) -> str:
        asked.append(prompt)
        return "Paris"

    for options in ({"strategy": "best_of_n", "rank_by": "vote"}, {"stop": "learned"}):
        with raises_message(ConfigError):
            ask(ASKED, corag, model, find, **options)
    with raises_message(ConfigError):
        run(RECORDS, ["flare"], model, find, out=tmp_path)
    with raises_message(ConfigError):
        open_model(model, tensor_parallel=2)
    assert not asked


def test_names_and_tokens_are_answered_with_what_to_write() -> None:
    def without_k(query: str) -> list[str]:
        return []

    for call in (
        lambda: ask(ASKED, one_step, "default", find), lambda: ask(ASKED, one_step, say, "quickstart/bm25"),
        lambda: ask(ASKED, one_step, say, without_k), lambda: ask(ASKED, one_step, say, []),
        lambda: open_model(None), lambda: open_index(None),
    ):  # fmt: skip
        with raises_message(ConfigError):
            call()


def test_a_wrong_return_is_a_sentence_and_no_error_is_empty() -> None:
    def silent(prompt: str) -> None:
        return None

    def broken(prompt: str) -> str:
        raise ValueError

    errors = [
        ask(ASKED, one_step, silent, find).error,
        ask(ASKED, one_step, say, lambda query, k: 7).error,
        ask(ASKED, one_step, say, lambda query, k: [3, 4]).error,
        ask(ASKED, one_step, say, lambda query, k: {"a": 1}).error,
    ]
    assert [error.partition(":")[0] for error in errors] == ["RequestRefusedError"] + [
        "SearchFailedError"
    ] * 3
    assert "silent returned None: return a text" in errors[0] and "returned 7: " in errors[1]
    first = ask(ASKED, one_step, broken, find).error.splitlines()[0]
    assert first.startswith("ValueError: no message (") and first.endswith(")")


def test_gold_passages_are_titles_or_files_of_what_an_own_retriever_returns_or_that_is_told(
    tmp_path: Path,
) -> None:
    def search(query: str, k: int) -> list[dict[str, str]]:
        return [{"id": "7", "title": "France", "source": "atlas.md", "text": TEXTS[0]}]

    def recall_of(gold: str) -> tuple[float, str]:
        records = [RECORDS[0] | {"supporting": [gold]}]
        table = run(records, one_step, say, search, out=tmp_path / stable_hash(gold)).table().to_json()
        return table["runs"]["one_step"]["recall"], " ".join(table["notes"])

    for gold in ("7", "France", "atlas.md", "title:France"):
        recall, notes = recall_of(gold)
        assert recall == 1.0 and "no gold passage" not in notes, gold
    recall, notes = recall_of("p12")
    assert recall == 0.0
    assert "found no gold passage at all, such as 'p12'; what it found has ids such as '7'" in notes


@pytest.mark.parametrize("by", ["title", "id"])
def test_gold_paragraphs_of_a_dataset_are_known_to_an_own_retriever_by_title_or_id(
    by: str, tmp_path: Path
) -> None:
    paragraphs = [["France", ["Its capital is Paris."]], ["Spain", ["Its capital is Madrid."]]]
    record = {"_id": "q1", "question": "Which is further north, Paris or Madrid?", "answer": "Paris"}
    record |= {"context": paragraphs, "supporting_facts": [["France", 0], ["Spain", 0]]}
    file = tmp_path / "q.json"
    file.write_text(json.dumps([record]))
    (question,) = load_questions(str(file), "hotpotqa")

    def search(query: str, k: int) -> list[dict[str, str]]:
        text = "Its capital is Paris."
        return [
            {"id": "France", "title": "France", "text": text}
            if by == "title"
            else {"id": question.supporting[0], "text": text}
        ]

    for number, questions in enumerate(([record], str(file))):
        results = run(questions, one_step, say, search, out=tmp_path / f"{number}", dataset="hotpotqa")
        assert results.table().to_json()["runs"]["one_step"]["recall"] == 0.5


# Methods


async def text_alone(question: Question, tools: Tools) -> str:
    await tools.search(question, k=2)
    return (await tools.generate(f"Answer: {question.text}", role="answer", max_tokens=9)).text


def test_a_text_is_an_answer_with_what_was_searched(tmp_path: Path) -> None:
    answer = ask(ASKED, text_alone, say, find)
    assert answer.text.endswith("Paris.") and len(answer.passages) == 2
    results = run(RECORDS, [text_alone, one_step], say, find, out=tmp_path)
    assert {"text_alone", "one_step"} == set(results.runs) and results.table().figures.summaries[1].measures[
        "em"
    ] is not None


@pytest.mark.parametrize("value", [None, Answer(None), ("Paris", [])])  # type: ignore[arg-type]
def test_what_is_no_answer_is_said(value: Any, tmp_path: Path) -> None:
    async def mine(question: Question, tools: Tools) -> Any:
        return value

    answer = ask(ASKED, mine, say)
    assert answer.error.startswith("DataError: mine returned ") and "failed: " in str(answer)
    shown = str(run(RECORDS, [mine], say, out=tmp_path))
    assert "mine returned" in shown


def test_a_changed_function_is_told_and_may_begin_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    def answered(text: str, **options: Any) -> list[str]:
        Path("mine.py").write_text(f'async def mine(question, tools):\n    return "{text}"\n')
        return list(run(RECORDS, ["mine.py:mine"], say, out="runs", **options).to_pandas().answer)

    assert answered("Rome") == ["Rome"] * 3 == answered("Rome", overwrite=True), "the same goes on"
    with raises_message(ConfigError):
        answered("Paris")
    assert answered("Paris", overwrite=True) == ["Paris"] * 3
    starts = json.loads(Path("runs/mine/manifest.json").read_text())["starts"]
    assert len(starts) == 1


# Runs


def test_a_run_resumes_and_its_manifest_names_the_objects(tmp_path: Path) -> None:
    calls: list[str] = []

    class Mine:
        fingerprint = "version 3"

        def generate(self, prompt: str) -> str:
            calls.append(prompt)
            return say(prompt)

    results = run(RECORDS, [one_step], Mine(), find, out=tmp_path, limit=2)
    assert (
        len(calls) == 2 and run(RECORDS, [one_step], Mine(), find, out=tmp_path, limit=2).runs == results.runs
    )
    assert len(calls) == 2, "another object of the class says that it is the same"
    run(RECORDS, [one_step], Mine(), find, out=tmp_path)
    assert len(calls) == 3
    manifest = json.loads((tmp_path / "one_step/manifest.json").read_text())
    assert "Mine:version 3" in manifest["settings"]["model"] and "find:" in manifest["settings"]["retriever"]
    assert manifest["starts"][0]["model"]["backend"] == "python"
    assert "test_own_objects" in manifest["starts"][0]["retriever"]["index"][0]
    Mine.fingerprint = "version 4"
    with raises_message(ConfigError):
        run(RECORDS, [one_step], Mine(), find, out=tmp_path)


def test_a_sweep_takes_own_objects(tmp_path: Path) -> None:
    cells = {"one": one_step, "two hops": (corag, CoRAGConfig(max_hops=2))}
    options: dict[str, Any] = {"out": tmp_path, "resamples": 5, "budgets": [10_000]}
    grid = {"method": "one_step", "one_step.k": [2, 3]}
    dev = [Question("dev", "Where is Lyon?", ("France",))]
    found = sweep(RECORDS, cells, say, find, grid=grid, dev=dev, **options)
    frame, names = found.to_pandas(), [*cells, "one_step k=2", "one_step k=3"]
    assert list(frame.cell) == names * 2 and list(frame.questions) == ["test"] * 4 + ["dev"] * 4
    assert list(frame.n) == [3] * 4 + [1] * 4
    assert found.findings.choices and set(found.findings.pareto) <= set(names)
    assert found.picture == tmp_path / "sweep.png" and "Best under each budget" in str(found)
    page = report(found, tmp_path / "report.html").read_text().replace(" ", "")
    assert '"runs":["one","twohops"' in page and "minus one" in str(table(found, baseline="one"))
    calls: list[str] = []

    def changed(prompt: str) -> str:
        calls.append(prompt)
        return "Rome"

    with raises_message(ConfigError):
        sweep(RECORDS, cells, changed, find, **options)


def test_a_server_that_speaks_our_protocol_is_an_index() -> None:
    """As the guide has it: nothing of our own server is in it."""

    async def health(request: Request) -> JSONResponse:
        return JSONResponse({"status": "ok", "fingerprint": "capitals 1"})

    async def search(request: Request) -> JSONResponse:
        body = await request.json()
        hits = [
            [{"id": text, "title": "", "text": text, "score": 1.0} for text in find(query, body["k"])]
            for query in body["queries"]
        ]
        return JSONResponse({"results": [{"hits": each} for each in hits]})

    async def passages(request: Request) -> JSONResponse:
        ids = (await request.json())["ids"]
        return JSONResponse({"passages": [{"id": each, "title": "", "text": each} for each in ids]})

    routes = [
        Route("/health", health),
        *(Route(f"/{each.__name__}", each, methods=["POST"]) for each in (search, passages)),
    ]
    with served_app(Starlette(routes=routes)) as url, open_index(url) as index:
        answer = ask(ASKED, one_step, say, index, k=2)
        assert answer.text == "Paris" and [each.id for each in answer.passages] == find(ASKED, 2)
        assert "capitals 1" in index.engine.fingerprint


def test_an_object_is_the_same_however_often_it_is_opened() -> None:
    model = Talker()
    with open_model(model) as one, open_model(model) as same, open_model(Talker()) as other:
        assert one.engine is same.engine is not other.engine
        assert one.options.name != other.options.name and "Talker" in repr(one)
    with pytest.raises(ConfigError, match="is closed"):
        _ = one.engine


def known_by(target: Any) -> tuple[str, str]:
    identity = identify(register(target))
    assert identity is not None
    return identity.text, identity.known_by


def test_an_object_is_known_by_its_fingerprint_else_by_its_source_text_else_by_name() -> None:
    assert describe(find) == "tests.eval.test_own_objects.find"
    assert describe(Talker().generate).endswith("Talker.generate")
    text, how = known_by(find)
    assert text.startswith("tests.eval.test_own_objects.find:") and how == "source text"
    assert known_by(Talker()) == known_by(Talker()) != known_by(Searcher("search", find))
    whole, function = Whole(), SimpleNamespace(fingerprint=lambda: "7")
    assert known_by(whole)[0].endswith("Whole:whole") and known_by(function)[0].endswith(":7")
    typed: dict[str, Any] = {"__name__": "typed"}
    exec("class Typed:\n  def generate(self, prompt):\n    return 'A'", typed)
    typed_object = typed["Typed"]()
    assert known_by(typed_object) == ("typed.Typed", "name")
    assert register(find) == register(find)
    assert register(find) == "tests.eval.test_own_objects:find", "other processes find it, too"
    local = lambda prompt: prompt  # noqa: E731
    local.__qualname__ = "find"
    assert register(local).startswith("tests.eval.test_own_objects:find#"), "and nothing else by its name"
    talker = Talker()
    assert register(talker.generate) == register(talker.generate)


def rome(prompt: str) -> str:
    return "Rome"


def test_a_run_of_another_function_is_refused_or_begun_anew(tmp_path: Path, capsys: Any) -> None:
    run(RECORDS, closed_book, say, out=tmp_path, limit=2)
    with raises_message(ConfigError):
        run(RECORDS, closed_book, rome, out=tmp_path)
    anew = run(RECORDS, closed_book, rome, out=tmp_path, overwrite=True)
    assert list(anew.to_pandas().answer) == ["Rome"] * 3
    start = json.loads((tmp_path / "closed_book/manifest.json").read_text())["starts"][0]
    assert start["own_objects"] == {"tests.eval.test_own_objects:rome": "source text"}
    capsys.readouterr()

    class Unseen:
        def __init__(self, inner: Any) -> None:
            self.inner = inner  # it is not noticed

        def __call__(self, prompt: str) -> str:
            return str(self.inner)

    out = tmp_path / "unseen"
    run(RECORDS, closed_book, Unseen("A"), out=out, limit=2)
    assert "goes on" not in capsys.readouterr().err
    run(RECORDS, closed_book, Unseen("A"), out=out)
    said = " ".join(capsys.readouterr().err.split())
    assert "known by source text alone" in said and "`fingerprint`" in said
    anew = run(RECORDS, closed_book, Unseen("B"), out=out, overwrite=True)
    assert list(anew.to_pandas().answer) == ["B"] * 3
    for text in ("Rome", "Paris"):
        options: dict[str, Any] = {"out": tmp_path / "sweep", "resamples": 5, "overwrite": True}
        swept = sweep(RECORDS, {"one": closed_book}, Unseen(text), **options).table().figures.summaries[0]
        assert swept.measures["em"] is not None and swept.measures["em"].mean == (text == "Paris"), (
            "finished cells, too"
        )


def test_a_function_that_is_redefined_is_another(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a notebook, where each cell defines the same name anew."""

    def make(text: str) -> Any:
        async def llm(prompt: str) -> str:
            await asyncio.sleep(0.02)
            return text

        llm.__module__, llm.__qualname__ = __name__, "llm"
        monkeypatch.setitem(globals(), "llm", llm)
        return llm

    def make_search(text: str) -> Any:
        def llm(query: str, k: int) -> list[str]:
            return [text]

        llm.__module__, llm.__qualname__ = __name__, "llm"
        monkeypatch.setitem(globals(), "llm", llm)
        return llm

    first = open_model(make("A"))
    second = open_model(make("B"))
    assert [ask(ASKED, closed_book, each).text for each in (first, second)] == ["A", "B"]
    assert [open_index(make_search(text)).search("q")[0].passage.text for text in "AB"] == ["A", "B"]

    async def together() -> list[str]:
        tasks = []
        for text in "AB":
            tasks.append(asyncio.create_task(aask(ASKED, closed_book, make(text))))
            await asyncio.sleep(0.01)
        return [answer.text for answer in await asyncio.gather(*tasks)]

    assert asyncio.run(together()) == ["A", "B"]
    first.close(), second.close()


def test_the_whole_file_of_an_object_that_is_named_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    names = []
    for text in "AB":
        Path("my.py").write_text(f"import os\nos.environ['X'] = '{text}'\ndef llm(prompt):\n    return '1'\n")
        names.append(identify("my.py:llm"))
    assert names[0] != names[1] and all(name and name.text.startswith("my.llm:") for name in names)


def test_a_name_of_another_engine_runs_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    Path("phi.py").write_text("open('was_run', 'w')\nlatest = str\n")
    assert identify_weights("phi:latest", backend="openai") == {} and not Path("was_run").exists()


def test_plain_functions_are_called_one_at_a_time_and_coroutines_together(tmp_path: Path) -> None:
    most = {"plain": 0, "later": 0}
    at_work: list[int] = []

    def plain(prompt: str) -> str:
        at_work.append(1)
        most["plain"] = max(most["plain"], len(at_work))
        at_work.pop()
        return "Paris"

    async def later(prompt: str) -> str:
        at_work.append(1)
        most["later"] = max(most["later"], len(at_work))
        await asyncio.sleep(0.05)
        at_work.pop()
        return "Paris"

    for model in (plain, later):
        run(RECORDS, [closed_book], model, out=tmp_path / model.__name__)
    assert most == {"plain": 1, "later": 3}


def test_an_error_of_an_engine_ends_the_run(tmp_path: Path) -> None:
    def gone(prompt: str) -> str:
        raise BackendError("the licence has run out.")

    with raises_message(BackendError):
        run(RECORDS, [closed_book], gone, out=tmp_path)


# ask


def test_ask_takes_one_question_and_options_by_name() -> None:
    answer = ask(ASKED, one_step, say, find, k=2)
    assert answer.question == ASKED and len(answer.passages) == 2
    for call in (
        lambda: ask([ASKED, ASKED], one_step, say, find),
        lambda: ask({"question": ASKED}, one_step, say, find),
        lambda: ask(ASKED, one_step, say, find, kk=2), lambda: ask(ASKED, one_step, say, find, k="many"),
    ):  # fmt: skip
        with raises_message(ConfigError):
            call()


def test_the_shell_takes_own_objects_by_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    Path("own.py").write_text(
        "def llm(prompt, max_tokens):\n    return 'Paris'\n"
        "class Search:\n    def search(self, query, k):\n        return ['Paris is a capital.'][:k]\n"
        "index = Search()\n"
    )
    own = ["--llm", "own.py:llm", "--index", "own.py:index"]
    assert main(["ask", ASKED, "--method", "one_step", *own]) == 0
    assert "Paris" in capsys.readouterr().out
    Path("q.jsonl").write_text("".join(json.dumps(each) + "\n" for each in RECORDS))
    assert main(["run", "--questions", "q.jsonl", "--method", "one_step", "--out", "runs", *own]) == 0


def test_a_reply_does_not_end_within_the_words_that_it_is_asked_to_begin_with() -> None:
    given: list[list[str]] = []

    def model(messages: list[dict[str, str]], *, stop: list[str]) -> str:
        given.append(stop)
        begins = messages[-1]["content"].partition("Begin your reply with: ")[2]
        return min((f"{begins} Paris\nA: more".split(each)[0] for each in stop), key=len)

    async def method(question: Question, tools: Tools) -> Answer:
        prompt = replace(as_prompt("Who?"), prefix="Q: Where?\nA:")
        reply = await tools.generate(prompt, role="r", max_tokens=9, stop=["\nA:", "."])
        return Answer(reply.text)

    assert ask(ASKED, method, model).text == " Paris"
    assert given == [["."]]


@pytest.mark.parametrize("option", ["demonstrations", "qa_prompt"])
def test_the_next_run_has_files_as_they_are_then(tmp_path: Path, option: str) -> None:
    """A notebook: the same process, a prompt or worked examples edited between two runs."""
    file, seen = tmp_path / "file.txt", []
    form = "Q: Who is {}?\nA: It is so. So the answer is: {}.\n"
    form = form if option == "demonstrations" else "version: 1\n--- user\n{} {} {{paragraphs}}{{query}}\n"
    for word in ("Before", "Behind"):
        file.write_text(form.format(word, word))
        config = ClosedBookConfig(**{option: str(file)})
        run(RECORDS[:1], {word: (closed_book, config)}, lambda prompt: str(seen.append(prompt)), out=tmp_path)
    assert "Before" in seen[0] and "Behind" in seen[1] and "Before" not in seen[1]
    file.write_text(form.format("Third", "Third"))
    with raises_message(ConfigError):
        run(RECORDS[:1], {"Behind": (closed_book, config)}, lambda prompt: "x", out=tmp_path)


def test_a_file_is_run_once_however_it_is_named(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(
        f"open({str(tmp_path / 'log')!r}, 'a').write('.')\ndef search(query, k):\n    return ['Paris']\n"
    )
    with open_index(f"{tmp_path}/own.py:search") as index:
        assert index.search("q")[0].passage.text == "Paris"
    assert (tmp_path / "log").read_text() == "."
