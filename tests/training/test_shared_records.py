"""What others may read of records: no option, known or new, shares a path, an address or a key."""

import ast
import json
import re
import typing
from dataclasses import asdict, replace
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import yaml

from corag.core.errors import ConfigError
from corag.core.options.command_line import parse
from corag.core.options.help import descriptions
from corag.core.options.names import Mark, kinds_of, marks_of
from corag.core.options.shared_values import FREE, NOT_SHARED, names_on_hub, shared_options, shared_value
from corag.core.runs.manifest import Manifest
from corag.core.types import Question
from corag.generation.adapters import SHIPPED_ADAPTERS
from corag.generation.config import ModelConfig
from eval.experiment.run import RunConfig
from retrieval.config import RetrieverConfig
from tests.eval.runs import make_run, row
from tests.messages import raises_message
from training.shared_records import (
    run_options,
    shared_lines,
    shared_manifest,
    shared_training,
)
from training.sharing import PushConfig, prepare_upload

ROOT = Path(__file__).parents[2]
SPEAKS_OF = re.compile(
    r"\b(paths?|files?|folders?|address(es)?|servers?|urls?|hosts?|headers?|key|token|passwords?)\b"
)
MARKS = {Mark.PLACE, Mark.PRIVATE, Mark.NAME, Mark.PUBLIC}
HOME = "/home/maria/secret"
ADA = Question("a", "Where was Ada born?", ("Orvale",), ("p1",))


def option_classes() -> list[type[Any]]:
    """Every class of options in the project, without importing what has none (and would import torch)."""
    bases: dict[str, set[str]] = {}
    modules: dict[str, str] = {}
    for package in ("corag", "eval", "ircot", "retrieval", "training"):
        for file in (ROOT / package).rglob("*.py"):
            for node in ast.parse(file.read_text(encoding="utf-8")).body:
                if isinstance(node, ast.ClassDef):
                    bases[node.name] = {each.id for each in node.bases if isinstance(each, ast.Name)}
                    modules[node.name] = ".".join(file.relative_to(ROOT).with_suffix("").parts)

    def has_options(name: str) -> bool:
        return any(base == "Options" or has_options(base) for base in bases.get(name, ()))

    return [getattr(import_module(modules[name]), name) for name in bases if has_options(name)]


CLASSES: list[Any] = option_classes()  # mypy takes no class for hashable


def takes_text(kind: Any) -> bool:
    return kind is str or (
        typing.get_origin(kind) not in (typing.Literal, dict) and any(map(takes_text, typing.get_args(kind)))
    )


def test_every_option_that_speaks_of_files_or_servers_says_what_of_it_is_shared() -> None:
    assert len(CLASSES) > 60
    silent = [
        f"{config.__module__}.{config.__name__}.{name}: {said}"
        for config in CLASSES
        for name, said in descriptions(config)
        if name in kinds_of(config)
        and takes_text(kinds_of(config)[name])
        and SPEAKS_OF.search(f"{name.replace('_', ' ')}: {said.lower()}")
        and not marks_of(kinds_of(config, include_extras=True)[name]) & MARKS
    ]
    assert not silent, "give them LocalPath, NameOrPath, Mark.PRIVATE or, if they hold no such, Mark.PUBLIC"


@pytest.mark.parametrize("value", [HOME, f"{HOME}.py:method", "http://maria:8000/v1"])
def test_no_option_of_any_class_shares_a_path_or_an_address(value: str) -> None:
    for config in CLASSES:
        kinds = kinds_of(config, include_extras=True)
        values = {name: [value] for name, kind in kinds.items() if Mark.PUBLIC not in marks_of(kind)}
        shared = shared_options(values | {"of an older version": {value: value}}, config)
        assert "maria" not in json.dumps(shared), config


def test_an_option_that_is_marked_private_is_left_out_whatever_it_holds() -> None:
    shared = shared_options(asdict(ModelConfig(api_key_variable="ADAS_KEY")), ModelConfig)
    assert "api_key_variable" not in shared and "urls" not in shared and shared["name"] == "default"


def test_arguments_of_libraries_are_shared_as_far_as_they_are_numbers() -> None:
    free = {name for config in CLASSES for name, kind in kinds_of(config).items() if kind == dict[str, Any]}
    assert free == FREE
    deep = {"api_key": "k", "max_tokens": 5}
    shared = shared_value({"trainer": {"hub_token": "hf_x", "depth": deep, "args": ["--key", 1]}})["trainer"]
    assert shared["depth"] == {"api_key": NOT_SHARED, "max_tokens": 5}
    assert shared["hub_token"] == NOT_SHARED and shared["args"] == [NOT_SHARED, 1]


@pytest.mark.parametrize("name", SHIPPED_ADAPTERS)
def test_settings_without_paths_are_shared_as_they_are(name: str) -> None:
    manifest = json.loads((Path(SHIPPED_ADAPTERS[name]) / "training.json").read_text())
    shared = shared_training(manifest, "me/x")
    adapter = manifest["settings"]["options"].get("adapter")
    if adapter and "/" in adapter["name"]:
        adapter["name"] = NOT_SHARED
    assert shared["settings"] == manifest["settings"] and shared["result"] == manifest["result"]
    for start, own in zip(shared["starts"], manifest["starts"], strict=True):
        assert "command" not in start and start["versions"] == own["versions"]


def a_local_run(folder: Path) -> Path:
    (mine := folder.parent / "mine.txt").write_text("x")
    rows = [row(ADA, "Orvale", ["p1"])]
    settings = {
        "method": "corag",
        "options": {"preset": "small_model", "sub_query_prompt": str(mine)},
        "prompts": [f"{mine} v1 0123456789abcdef"],
        "demonstrations": {str(mine): "0123456789abcdef"},
    }
    return make_run(
        folder,
        rows,
        settings,
        model={
            "name": "/home/maria/models/tuned",
            "adapter": "/home/maria/adapters/towns",
            "urls": ["http://maria:1"],
        },
        retriever={"index": ["/home/maria/idx"], "url": [], "encoder": "http://maria:2/v1#e5"},
        questions="/home/maria/data/dev.jsonl",
        command=["/home/maria/.venv/bin/corag", "run"],
        machine={"platform": "Linux", "cores": 4, "hostname": "maria"},
        workers={"nodes": {"maria": {"address": "10.0.0.7"}}},
    )


def test_a_runs_manifest_keeps_names_and_loses_places(tmp_path: Path) -> None:
    manifest = Manifest.read(a_local_run(tmp_path / "run"))
    shared = shared_manifest(manifest)
    text = json.dumps(shared.to_json())
    assert "maria" not in text and "10.0.0.7" not in text and str(tmp_path) not in text
    assert shared.last.model == shared.last.adapter == NOT_SHARED
    assert shared.last.questions == "dev.jsonl" and shared.last.searched_sources == NOT_SHARED
    assert shared.settings["questions"] == manifest.settings["questions"], "what identifies it stays"


def test_a_shared_run_of_a_local_model_is_not_run_with_another_one_by_mistake(tmp_path: Path) -> None:
    options = run_options(Manifest.read(a_local_run(tmp_path / "run")))
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(options))
    words = ["--config", str(tmp_path / "config.yaml"), "--questions", "q.jsonl", "--retriever.index", "idx"]
    with raises_message(ConfigError):
        parse(RunConfig, words, "run", "a run")
    words += ["--corag.sub_query_prompt", "sub_query", "--retriever.encoder", "intfloat/e5-base-v2"]
    with raises_message(ConfigError):
        parse(RunConfig, words, "run", "a run")
    config = parse(
        RunConfig, [*words, "--model.name", "Qwen/Qwen3-8B", "--model.adapter", ""], "run", "a run"
    )
    assert config.model.name == "Qwen/Qwen3-8B" and not config.model.adapter, "which was for the other model"


def uploaded(folder: Path) -> str:
    """All that 'corag push' would write of a run."""
    files = prepare_upload(PushConfig(str(folder), "me/x")).files.values()
    return "\n".join((each if isinstance(each, bytes) else each.read_bytes()).decode() for each in files)


def test_the_errors_of_failed_questions_are_shared_without_their_messages(tmp_path: Path) -> None:
    failed = replace(
        row(ADA, None), error="BackendError: gpu7.corp:8000 is gone ('/home/maria smith/log.txt').\nTraceback"
    )
    text = uploaded(make_run(tmp_path / "run", [failed]))
    assert "BackendError (not shared)" in text
    assert not any(each in text for each in ("gpu7", "maria", "smith", "Traceback"))


def test_a_failure_that_was_answered_later_is_not_shared(tmp_path: Path) -> None:
    failed = replace(row(ADA, None), error="BackendError: http://10.0.0.7:8000 is gone ('/home/maria').")
    run = make_run(tmp_path / "run", [failed, row(ADA, "Orvale", ["p1"])])
    assert [json.loads(line)["error"] for line in shared_lines(run).splitlines()] == [""]


@pytest.mark.parametrize("model", [HOME, "models/maria/tuned", "maria@gpu7:8000"])
def test_what_made_questions_is_shared_without_the_models_folder(model: str, tmp_path: Path) -> None:
    origin = f"made with {model} with adapter default"
    rows = [row(replace(ADA, synthetic=origin), "Orvale", ["p1"])]
    text = uploaded(make_run(tmp_path / "run", rows, synthetic=origin))
    assert "maria" not in text and text.count("made by a program") >= 2


def test_relative_folders_are_withheld_wherever_the_push_is_made(tmp_path: Path) -> None:
    model = {"name": "models/maria/tuned", "adapter": "maria/towns", "engine": {"x-api-key": "K", "depth": 2}}
    searched = {"index": ["clients/maria/minutes", "maria.corp:81"], "url": [], "encoder": "intfloat/e5"}
    settings = {"prompts": ["../maria/layout.txt v1 0123456789abcdef"]}
    rows, start = [row(ADA, "Orvale", ["p1"])], {"model": model, "retriever": searched}
    text = uploaded(make_run(tmp_path / "run", rows, settings, **start))
    assert "maria" not in text and '"K"' not in text and "intfloat/" not in text, (
        "nobody noted that it is a name"
    )
    assert f'"name": "{NOT_SHARED}"' in text and f'"{NOT_SHARED}"' in text
    text = uploaded(make_run(tmp_path / "other", rows, settings, from_hub=["intfloat/e5"], **start))
    assert "encoder: intfloat/e5" in text


def test_a_run_notes_which_of_its_names_are_the_hubs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "models/tuned").mkdir(parents=True)
    searched = RetrieverConfig(encoder="intfloat/e5", index=["/indexes/a"])
    assert names_on_hub(ModelConfig(name="models/tuned"), searched) == ["intfloat/e5"]
    assert names_on_hub(ModelConfig(backend="server", name="a/theirs", urls=("http://a:1",))) == [], (
        "a server's own folder"
    )


def test_a_part_of_the_questions_asked_later_does_not_make_a_run_finished(tmp_path: Path) -> None:
    make_run(tmp_path / "run", [row(ADA, "Orvale", ["p1"])], asked=24)
    make_run(tmp_path / "run", [], asked=1)
    with raises_message(ConfigError):
        prepare_upload(PushConfig(str(tmp_path / "run"), "me/x"))


@pytest.mark.parametrize(
    "text",
    ["gpu01:8000", "10.0.0.7:80", "maria@gpu7:80", "\\\\maria\\share\\x", "file:/home/maria/x", "a maria/x"],
)
def test_places_of_every_spelling_are_withheld(text: str) -> None:
    assert shared_options({"name": text}, ModelConfig)["name"] == NOT_SHARED


def test_what_tells_a_model_or_an_index_stays_the_same_text_or_its_digest(tmp_path: Path) -> None:
    def shared(model: str) -> str:
        settings = {"model": model, "retriever": "bm25:1|rrf"}
        manifest = shared_manifest(Manifest.read(make_run(tmp_path / model[-3:], [], settings)))
        assert manifest.retriever == "bm25:1|rrf"
        return manifest.model

    assert shared("vllm:0a1b:bfloat16:chat=way") == "vllm:0a1b:bfloat16:chat=way"
    own = shared("python:mine.llm:/home/maria/a")
    assert own.startswith("python:") and "maria" not in own and own != shared("python:mine.llm:/home/maria/b")


def test_an_adapters_tokenizer_says_not_where_it_lay(tmp_path: Path) -> None:
    (tmp_path / "adapter_config.json").write_text(json.dumps({"base_model_name_or_path": "Qwen/Qwen3-8B"}))
    (tmp_path / "adapter_model.safetensors").write_bytes(b"x")
    settings = {"name_or_path": HOME, "vocab_file": HOME, "chat_template": "/no_think {{ a/b }}"}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(settings))
    shared = prepare_upload(PushConfig(str(tmp_path), "me/x")).files["tokenizer_config.json"]
    assert isinstance(shared, bytes) and json.loads(shared) == {"chat_template": "/no_think {{ a/b }}"}


def test_an_adapter_of_a_relative_model_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "models/tuned").mkdir(parents=True)
    (folder := tmp_path / "adapters/towns").mkdir(parents=True)
    (folder / "adapter_config.json").write_text(json.dumps({"base_model_name_or_path": "models/tuned"}))
    with raises_message(ConfigError):
        prepare_upload(PushConfig(str(folder), "me/x"))


def test_a_base_folder_that_is_gone_is_not_taken_for_a_name_of_the_hub(tmp_path: Path) -> None:
    """Until the name on the hub is written in its place."""

    def trained_on(name: str) -> PushConfig:
        manifest = {"settings": {"base": {"name": name, "digest": "0"}}, "result": {}, "starts": [start]}
        (tmp_path / "training.json").write_text(json.dumps(manifest))
        return PushConfig(str(tmp_path), "me/x")

    start = {"base_folder": "models/gone"}
    (tmp_path / "adapter_config.json").write_text(json.dumps({"base_model_name_or_path": "models/gone"}))
    (tmp_path / "adapter_model.safetensors").write_bytes(b"x")
    with raises_message(ConfigError):
        prepare_upload(trained_on("models/gone"))
    upload = prepare_upload(trained_on("Qwen/Qwen3-8B"))
    assert "base_model: Qwen/Qwen3-8B" in upload.card
    shared = upload.files["training.json"]
    assert isinstance(shared, bytes) and b"models/gone" not in shared
