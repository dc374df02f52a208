"""A search agent trained by TRL's own loop: what the environment shows and rewards, and two steps of it."""

from __future__ import annotations

import json
import runpy
from collections.abc import Iterator
from pathlib import Path

import jinja2
import pytest
import trl
from transformers import AutoTokenizer
from transformers.utils import get_json_schema

from corag import SearchEnvironment, ask, open_index
from eval.api.opened import Index
from retrieval.config import IndexConfig
from retrieval.index.build import build_index
from tests.fakes import ScriptedGenerator
from tests.training.conftest import PASSAGES, TOWNS

pytestmark = pytest.mark.slow

EXAMPLE = Path(__file__).parents[2] / "examples/grpo_search_agent.py"


@pytest.fixture(scope="module")
def index_folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("index")
    records = ({"id": each.id, "title": each.title, "text": each.text} for each in PASSAGES)
    (folder / "corpus.jsonl").write_text("".join(f"{json.dumps(each)}\n" for each in records))
    build_index(IndexConfig([str(folder / "corpus.jsonl")], out=str(folder / "bm25")), lambda line: None)
    return str(folder / "bm25")


@pytest.fixture(scope="module")
def index(index_folder: str) -> Iterator[Index]:
    with open_index(index_folder) as opened:
        yield opened


def test_a_rollout_searches_answers_and_is_scored(index: Index) -> None:
    environment = SearchEnvironment(index, "hotpotqa", k=1)
    environment.reset(answers=["the year 1900", "1900"], prompt="any other column")
    assert environment.get_reward() == 0.0, "without an answer"
    assert "Mara Velden the 0th" in environment.search("mayor of Arlen")
    environment.answer("year 1901")
    partly = environment.get_reward()
    environment.answer("in the year 1900")
    assert 0 < partly < environment.get_reward() < 1
    environment.answer("1900")
    assert environment.get_reward() == 1.0
    environment.reset(answers=["1901"])
    assert environment.get_reward() == 0.0, "a pooled environment begins anew"
    exact = SearchEnvironment(index, "hotpotqa", measure="em")
    exact.reset(answers=["1900"])
    exact.answer("year 1900")
    assert exact.get_reward() == 0.0
    assert environment.search("zzzz") == "nothing found"


def qwen(messages: list[dict[str, object]], tools: list[dict[str, object]] | None = None) -> str:
    """Write a conversation by Qwen's chat template, with tools or without."""
    template = (Path(trl.__file__).parent / "chat_templates/qwen2_5.jinja").read_text()
    environment = jinja2.Environment(trim_blocks=True, lstrip_blocks=True, autoescape=False)
    environment.policies["json.dumps_kwargs"] = {"ensure_ascii": False}  # as transformers has it
    return environment.from_string(template).render(
        messages=messages, tools=tools, add_generation_prompt=True
    )


def test_the_method_search_r1_asks_as_the_environment_taught(index: Index) -> None:
    """To the letter, so that a trained agent meets what it knows."""
    environment, question = SearchEnvironment(index, k=2), "Who is the mayor of Arlen?"
    call = {"name": "search", "arguments": {"query": "mayor of Arlen"}}
    written = f"I look.\n<tool_call>\n{json.dumps(call)}\n</tool_call>"
    answered = '<tool_call>\n{"name": "answer", "arguments": {"text": "Mara"}}\n</tool_call>'
    model = ScriptedGenerator([written, answered])
    answer = ask(question, "search_r1", model, index, {"preset": "tools", "k": 2})
    asked = [
        qwen([{"role": each.role, "content": each.text} for each in request.prompt.messages])
        for request in model.requests
    ]
    task = runpy.run_path(str(EXAMPLE))["PROMPT"].format(question=question)
    taught = [
        {"role": "user", "content": task},
        {"role": "assistant", "content": "I look.", "tool_calls": [{"type": "function", "function": call}]},
        {"role": "tool", "name": "search", "content": environment.search("mayor of Arlen")},
    ]
    tools = [get_json_schema(tool) for tool in (environment.search, environment.answer)]
    shown = qwen(taught, tools).replace(" \n", "\n")  # methods show passages without outer white space
    assert asked == [qwen(taught[:1], tools), shown]
    assert str(answer.text) == "Mara"


@pytest.fixture
def agent_model(tiny_model: str, tmp_path: Path) -> str:
    """The tiny model with a chat template that has tool calls, Qwen's."""
    from transformers import AutoModelForCausalLM

    folder = tmp_path / "agent"
    AutoModelForCausalLM.from_pretrained(tiny_model).save_pretrained(folder)
    tokenizer = AutoTokenizer.from_pretrained(tiny_model)
    tokenizer.chat_template = (Path(trl.__file__).parent / "chat_templates/qwen2_5.jinja").read_text()
    tokenizer.save_pretrained(folder)
    return str(folder)


def test_the_example_trains_two_steps(
    index_folder: str, agent_model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert len(EXAMPLE.read_text().splitlines()) < 80
    questions = tmp_path / "train.jsonl"
    questions.write_text("".join(
        json.dumps({"id": town, "question": f"Who is the mayor of {town}?", "answers": ["Mara"]}) + "\n"
        for town in TOWNS
    ))  # fmt: skip
    out = tmp_path / "out"
    words = f"--questions {questions} --index {index_folder} --model {agent_model} --output_dir {out} "
    words += "--max_steps 2 --per_device_train_batch_size 4 --num_generations 4 --max_completion_length 8 "
    words += "--report_to none --logging_steps 1 --use_cpu true --bf16 false --gradient_checkpointing false"
    monkeypatch.setattr("sys.argv", ["grpo_search_agent.py", *words.split()])
    runpy.run_path(str(EXAMPLE), run_name="__main__")
    state = json.loads((out / "checkpoint-2/trainer_state.json").read_text())
    assert state["global_step"] == 2 and "rewards/SearchEnvironment/mean" in state["log_history"][0]
    assert (out / "model.safetensors").is_file()
