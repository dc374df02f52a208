"""Arguments of vLLM's engine are passed through from shell, YAML and Python, and their names are checked."""

from __future__ import annotations

import json
from dataclasses import asdict, fields
from pathlib import Path

import pytest

from corag.core.errors import ConfigError
from corag.core.options.command_line import parse
from corag.generation import engine_arguments
from corag.generation.config import ModelConfig
from corag.generation.engine_arguments import identity, with_exact_head
from corag.generation.forced import forced_sampling
from corag.generation.models import quantisation
from eval.experiment.run import RunConfig
from tests.messages import raises_message

WRITTEN = "{quantization: fp8, max_num_batched_tokens: 8192, hf_overrides: {rope_theta: 1e6, tie: false}}"
MEANT = {
    "quantization": "fp8",
    "max_num_batched_tokens": 8192,
    "hf_overrides": {"rope_theta": 1e6, "tie": False},
}


def test_shell_yaml_and_python_give_the_engine_the_same(tmp_path: Path) -> None:
    file = tmp_path / "run.yaml"
    file.write_text(f"model:\n  engine: {WRITTEN}\n")
    questions = ["--questions", "q.jsonl"]
    given = [
        parse(RunConfig, [*questions, "--model.engine", WRITTEN], "corag run", ""),
        parse(RunConfig, [*questions, "--config", str(file)], "corag run", ""),
        RunConfig(questions="q.jsonl", model=ModelConfig(engine=MEANT)),
    ]
    for config in given:
        assert isinstance(config, RunConfig) and config.model.engine == MEANT
        assert json.loads(json.dumps(asdict(config.model)))["engine"] == MEANT, "as the manifest has it"
    assert ModelConfig(backend="auto", engine=MEANT).backend == "vllm"


@pytest.mark.parametrize(
    "engine",
    [
        "fp8",
        {"max_model_len": 4096},
        {"tensor_parallel_size": 2},
        {"speculative_config": {"method": "ngram", "num_speculative_tokens": 4}},
        {"logits_processors": ["mine:Processor"]},
    ],
)
def test_what_options_set_and_what_scores_rest_on_is_refused(engine: object) -> None:
    with raises_message(ConfigError):
        ModelConfig(engine=engine)  # type: ignore[arg-type]


def test_the_tables_name_arguments_that_the_installed_engine_has() -> None:
    arguments = pytest.importorskip("vllm.engine.arg_utils").AsyncEngineArgs
    names = {each.name for each in fields(arguments)}
    tables = (engine_arguments._OPTIONS, engine_arguments._RESERVED, engine_arguments._SPEED)
    assert {name for table in tables for name in table} - names == set()
    from vllm.usage.usage_lib import UsageContext

    batched, sequences = arguments.get_batch_defaults(1)
    assert UsageContext.LLM_CLASS in batched and UsageContext.LLM_CLASS in sequences
    assert UsageContext.ENGINE_CONTEXT not in batched, "then no usage need be named any more"


def test_what_changes_results_is_in_the_fingerprint() -> None:
    assert identity({}) == identity({"max_num_batched_tokens": 4096, "cpu_offload_gb": 4}) == ""
    assert identity({"quantization": "fp8"}) != identity({"quantization": "awq"}) != ""
    assert identity({"a": 1, "b": 2}) == identity({"b": 2, "a": 1})


def test_the_output_layer_ends_in_float32_where_it_can(tmp_path: Path) -> None:
    assert with_exact_head({}, quantized=False) == {"hf_overrides": {"head_dtype": "float32"}}
    stated = {"hf_overrides": {"head_dtype": "model", "rope_theta": 1e6}}
    assert with_exact_head(stated, quantized=False) == stated, "the user's word counts"
    assert with_exact_head({"quantization": "fp8"}, quantized=False) == {"quantization": "fp8"}
    assert with_exact_head({}, quantized=True) == {}
    for config, quantized in (
        ({}, False),
        ({"quantization_config": {"quant_method": "awq"}}, True),
        ({"text_config": {"quantization_config": {}}}, True),
        ({"text_config": None}, False),
    ):
        (tmp_path / "config.json").write_text(json.dumps(config))
        assert bool(quantisation(str(tmp_path))) is quantized
    (tmp_path / "hf_quant_config.json").write_text("{}")
    assert quantisation(str(tmp_path))


def test_vllm_takes_both_ways_to_force_tokens() -> None:
    params = pytest.importorskip("vllm").SamplingParams
    assert params(**forced_sampling([5, 6], replay=True)).trace_decode_token_ids == [5, 6]
    plugged = params(**forced_sampling([5, 6], replay=False))
    assert plugged.extra_args == {"forced_tokens": [5, 6]} and plugged.trace_decode_token_ids is None
