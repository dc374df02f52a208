"""Spans of answered questions: what a collector receives over OTLP, and what happens where there is none."""

from __future__ import annotations

import json
import socket
import time
from pathlib import Path

import pytest

import corag.cli.commands.ask
from corag.chains.config import CoRAGConfig
from corag.cli.main import main
from corag.core.errors import ConfigError
from corag.core.protocols import GenerateRequest
from corag.core.runs.folder import read_rows
from corag.core.runs.rows import SavedRow
from corag.core.types import Question, TokenUsage
from eval.experiment.collector import endpoint
from eval.experiment.executor import LocalExecutor
from eval.experiment.run import RunConfig, answer_with
from eval.experiment.spans import CONTENT_VARIABLE
from retrieval.config import RetrieverConfig
from tests.collector import Collector, Received, collecting
from tests.fakes import PROMPTS, ScriptedGenerator, WordRetriever, kind
from tests.messages import raises_message
from tests.service.serving import options, served
from tests.story import QUESTION, WORLD

SUB_QUERIES = ["Who wrote The Glass Orchard?", "Where was Mara Velden born?"]
ANSWERS = {SUB_QUERIES[0]: "Mara Velden", SUB_QUERIES[1]: "Tarn Hollow"}


def knowing(request: GenerateRequest) -> str:
    """A model that knows the way, two hops of it."""
    text = request.prompt.text
    if kind(request) == "NEXT":
        return SUB_QUERIES["Mara Velden" in text]
    if kind(request) == "FINAL":
        return "Issel"
    return next((answer for query, answer in ANSWERS.items() if query in text), "Nobody")


async def answered(
    out: Path, trace: str, *, reply=knowing, questions=(QUESTION,), **corag_options: object
) -> dict[str, SavedRow]:
    """Answer with CoRAG, in two hops of one chain unless told otherwise, and read the rows back."""
    file = out.with_suffix(".jsonl")
    file.write_text(json.dumps({"id": QUESTION.id, "question": QUESTION.text, "answers": ["Issel"]}) + "\n")
    settings = CoRAGConfig(**{**PROMPTS, "max_hops": 2, "passages_per_hop": 2, **corag_options})
    config = RunConfig(
        questions=str(file), method=["corag"], out=str(out), trace=trace, corag=settings,
        retriever=RetrieverConfig(index=["indexes/story"]),
    )  # fmt: skip
    executor = LocalExecutor(ScriptedGenerator(reply), WordRetriever(WORLD))
    return read_rows(await answer_with(config, "corag", list(questions), executor))


def spent(spans: list[Received]) -> TokenUsage:
    """Add up what spans of calls say that they cost."""
    of = [span.attributes for span in spans]
    return TokenUsage(
        *(
            sum(each[name] for each in of)
            for name in (
                "corag.usage.calls", "gen_ai.usage.input_tokens", "gen_ai.usage.output_tokens",
                "corag.usage.computed_prompt", "corag.usage.computed_generated",
            )
        )
    )  # fmt: skip


def draw(collector: Collector, span: Received) -> list[str]:
    """Write a tree of spans, a line each: a name, what a call was for, indented below its parent."""
    line = f"{span.name} {span.attributes.get('corag.role', '')}".strip()
    below = [f"  {each}" for child in collector.children(span) for each in draw(collector, child)]
    return [line, *below]


async def test_a_question_of_two_hops_is_one_trace_whose_sums_are_the_ledgers(tmp_path: Path) -> None:
    with collecting() as collector:
        row = (await answered(tmp_path, f"http://127.0.0.1:{collector.port}"))[QUESTION.id]
    assert set(collector.paths) == {"/v1/traces"}
    (root,) = collector.roots
    assert root.parent == "" and {span.trace for span in collector.spans} == {root.trace}
    assert draw(collector, root) == [
        "invoke_workflow corag",
        "  question",
        "    retrieval indexes/story",
        "  chain 1",
        "    hop 1",
        "      chat SmolLM2-135M-Instruct sub_query",
        "      retrieval indexes/story",
        "      chat SmolLM2-135M-Instruct sub_answer",
        "    hop 2",
        "      chat SmolLM2-135M-Instruct sub_query",
        "      retrieval indexes/story",
        "      chat SmolLM2-135M-Instruct sub_answer",
        "  chat SmolLM2-135M-Instruct final",
    ]
    calls = collector.named("chat")
    for role, usage in row.usage.items():
        assert spent([span for span in calls if span.attributes["corag.role"] == role]) == usage
    assert spent(calls) == row.total_usage
    assert root.attributes["corag.usage.prompt"] == row.total_usage.prompt
    assert not any(name.startswith("gen_ai.usage") for name in root.attributes), "no sum counts twice"
    assert root.attributes["gen_ai.workflow.name"] == "corag"
    assert root.attributes["corag.question.id"] == QUESTION.id
    assert {span.attributes["gen_ai.provider.name"] for span in calls} == {"vllm"}
    assert {tuple(span.attributes["gen_ai.response.finish_reasons"]) for span in calls} == {("stop",)}
    assert {span.resource["service.name"] for span in collector.spans} == {"corag"}


async def test_spans_have_the_times_of_the_steps(tmp_path: Path) -> None:
    before = time.time_ns()
    with collecting() as collector:
        row = (await answered(tmp_path, f"http://127.0.0.1:{collector.port}"))[QUESTION.id]
    (root,) = collector.roots
    assert before - 1e9 < root.began <= root.ended < time.time_ns() + 1e9
    for span in collector.spans:
        for child in collector.children(span):
            assert span.began <= child.began <= child.ended <= span.ended, (span.name, child.name)
    began = [round((row.begun + step.started) * 1e9) for step in row.steps]
    steps = [span for span in collector.spans if span.attributes["openinference.span.kind"] != "CHAIN"]
    assert sorted(span.began // 1000 for span in steps) == pytest.approx(
        sorted(each // 1000 for each in began), abs=2
    )


async def test_texts_are_sent_where_the_variable_of_the_conventions_asks_for_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for told in ("", "span_only"):
        monkeypatch.setenv(CONTENT_VARIABLE, told)
        with collecting() as collector:
            await answered(tmp_path / f"told{told}", f"http://127.0.0.1:{collector.port}")
        (root,) = collector.roots
        found = collector.named("retrieval")[0]
        texts = {"gen_ai.input.messages", "gen_ai.output.messages"} & root.attributes.keys()
        if not told:
            sent = json.dumps([span.attributes for span in collector.spans])
            assert not texts and "Glass Orchard" not in sent and "Issel" not in sent
            continue
        assert QUESTION.text in root.attributes["gen_ai.input.messages"]
        (message,) = json.loads(root.attributes["gen_ai.output.messages"])
        assert message == {
            "role": "assistant", "parts": [{"type": "text", "content": "Issel"}], "finish_reason": "stop",
        }  # fmt: skip
        assert {span.attributes["gen_ai.retrieval.query.text"] for span in collector.named("retrieval")} == {
            *SUB_QUERIES, QUESTION.text,
        }  # fmt: skip
        documents = json.loads(found.attributes["gen_ai.retrieval.documents"])
        assert len(documents) == found.attributes["corag.hits"] and {"id", "score"} <= documents[0].keys()


async def test_several_samples_and_scores_are_counted_too(tmp_path: Path) -> None:
    with collecting() as collector:
        rows = await answered(
            tmp_path,
            f"http://127.0.0.1:{collector.port}",
            reply=lambda request: f"about {request.sampling.seed}",
            strategy="best_of_n",
            chains=3,
            temperature=0.7,
        )
    row = rows[QUESTION.id]
    scored = [
        span for span in collector.named("text_completion") if "corag.log_likelihood" in span.attributes
    ]
    assert scored and spent(collector.named("chat") + scored) == sum(row.usage.values(), TokenUsage())
    paths = {span.attributes["corag.path"] for span in collector.spans if span.name.startswith("chain")}
    assert paths == {"chain 1", "chain 2", "chain 3"}


async def test_a_failed_question_is_a_failed_trace(tmp_path: Path) -> None:
    def fails(request: GenerateRequest) -> str:
        if kind(request) == "ANSWER":
            raise RuntimeError("the model fell over")
        return knowing(request)

    with collecting() as collector:
        row = (await answered(tmp_path, f"http://127.0.0.1:{collector.port}", reply=fails))[QUESTION.id]
    (root,) = collector.roots
    assert root.failed and root.attributes["error.type"] == "RuntimeError" and row.error
    assert len(collector.named("chat")) == 1, "what had finished by then is there"


async def test_without_a_collector_a_run_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    questions = [Question(f"q{n}", QUESTION.text) for n in range(40)]
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "1")
    for folder, status in (("wrong", 404), ("none", 0)):
        caplog.clear()
        with collecting(status) as collector:
            address = f"http://127.0.0.1:{collector.port if status else port}"
            rows = await answered(tmp_path / folder, address, questions=questions)
        assert len(rows) == 40 and not any(row.error for row in rows.values())
        assert "export" in caplog.text, "the library says it"


async def test_headers_and_the_services_name_come_from_opentelemetrys_variables(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(
        "OTEL_EXPORTER_OTLP_HEADERS", "Authorization=Basic%20cGs6c2s=,x-langfuse-ingestion-version=4"
    )
    monkeypatch.setenv("OTEL_SERVICE_NAME", "handbook")
    with collecting() as collector:
        await answered(tmp_path, f"http://127.0.0.1:{collector.port}/api/public/otel")
    assert collector.paths[0] == "/api/public/otel/v1/traces"
    assert collector.headers[0]["authorization"] == "Basic cGs6c2s="
    assert collector.headers[0]["x-langfuse-ingestion-version"] == "4"
    assert {span.resource["service.name"] for span in collector.spans} == {"handbook"}


async def test_a_collector_changes_no_settings_so_a_run_goes_on_without_it(tmp_path: Path) -> None:
    with collecting() as collector:
        await answered(tmp_path, f"http://127.0.0.1:{collector.port}")
        seen = len(collector.spans)
        await answered(tmp_path, "", questions=[QUESTION, Question("q2", QUESTION.text)])
        assert len(collector.spans) == seen


def test_ask_sends_the_spans_of_its_question(monkeypatch: pytest.MonkeyPatch) -> None:
    from tests.cli.test_ask import Opened

    monkeypatch.setattr(corag.cli.commands.ask, "open_backends", Opened())
    monkeypatch.setattr(corag.cli.commands.ask, "check_setup", lambda setup: None)
    with collecting() as collector:
        words = ["ask", QUESTION.text, "--method", "one_step", "--model.backend", "transformers"]
        assert main([*words, "--trace", f"http://127.0.0.1:{collector.port}"]) == 0
    assert [root.name for root in collector.roots] == ["invoke_workflow one_step"]
    assert len(collector.named("chat")) == len(collector.named("retrieval")) == 1


async def test_the_services_spans_are_part_of_the_callers_trace() -> None:
    trace, span = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
    with collecting() as collector:
        given = options(trace=f"http://127.0.0.1:{collector.port}")
        async with served(given) as running:
            running.headers = {"traceparent": f"00-{trace}-{span}-01"}
            reply = (await running.ask()).json()
            running.headers = {}
            await running.ask()
    usage = reply["usage"]
    (asked,) = [root for root in collector.roots if root.parent == span]
    assert asked.trace == trace and asked.name == "invoke_workflow corag"
    calls = [each for each in collector.named("chat") if each.trace == trace]
    assert spent(calls).prompt == usage["prompt_tokens"]
    assert spent(calls).generated == usage["completion_tokens"]
    assert sum(root.parent == "" for root in collector.roots) == 1, "who sends no header has a trace alone"


def test_addresses_of_collectors() -> None:
    assert endpoint("http://localhost:6006/v1/traces") == "http://localhost:6006/v1/traces"
    for wrong in ("localhost:4318", "otlp://localhost:4318", "http://me:key@host"):
        with raises_message(ConfigError):
            RunConfig(questions="q.jsonl", trace=wrong)
