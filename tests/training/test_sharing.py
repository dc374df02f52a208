"""Adapters, chains and runs go to a hub with a card written from their records, and come back by its name."""

import json
import os
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path

import pytest
import yaml

from corag.chains.config import CoRAGConfig
from corag.core.errors import ConfigError
from corag.core.options.shared_values import NOT_SHARED
from corag.core.types import Question
from corag.generation.adapters import adapter_folder
from tests.eval.runs import make_run, row
from tests.fakes import PROMPTS
from tests.hub import serving
from tests.messages import raises_message
from tests.training.toy import many, write_chains
from training.sampling import SampleConfig
from training.sharing import PushConfig, prepare_upload, run_options

pytestmark = pytest.mark.slow

ADA = Question("a", "Where was Ada born?", ("Orvale",), ("p1",))
BEN = Question("b", "Where was Ben born?", ("Issel",), ("p2",))


def corag(*words: object, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a command in a process of its own: the hub's client reads its environment at the start."""
    return subprocess.run(
        [sys.executable, "-m", "corag.cli", *map(str, words)],
        env=os.environ | environment,
        capture_output=True,
        text=True,
        check=False,
    )


def a_run(folder: Path) -> Path:
    options = asdict(CoRAGConfig(preset="small_model", max_hops=3))
    model = {"name": "default", "adapter": "default", "urls": ["http://10.0.0.7:8000"], "batch_size": 5}
    return make_run(
        folder,
        [row(ADA, "Orvale", ["p1"]), row(BEN, "Orvale", ["p9"])],
        {"method": "corag", "options": options, "seed": 7},
        model=model,
    )


def test_a_run_is_shared_and_read_back_by_its_name(tmp_path):
    run = a_run(tmp_path / "run")
    with serving({}) as hub:
        here = {"HF_HOME": str(tmp_path / "home"), "HF_ENDPOINT": hub.url, "HF_TOKEN": "hf_secret"}
        dry = corag("push", run, "me/towns", "--dry_run", **here)
        assert dry.returncode == 0, dry.stderr
        assert "Nothing was uploaded" in dry.stdout and "traces.jsonl: " in dry.stdout
        assert not hub.repositories, "a dry run sends nothing"
        done = corag("push", run, "me/towns", "--license", "mit", "--json", **here)
        assert done.returncode == 0, done.stderr
        sizes = json.loads(done.stdout.splitlines()[-1])["files"]
        shared = hub.repositories["me/towns"]
        assert sizes == {name: len(content) for name, content in shared.items()}
        assert set(shared) == {"README.md", "config.yaml", "manifest.json", "traces.jsonl"}
        refused = corag("push", run, "me/towns", "--private", **here)
        assert refused.returncode == 2 and "me/towns is there already and is public" in refused.stderr
        table = corag("table", "hub:me/towns", "--json", **here)
        assert table.returncode == 0, table.stderr
        again = corag("run", "--config", "hub:me/towns", "--questions", "q", "--print_config", **here)
    assert "towns" in table.stdout and "50.0" in table.stdout, "a run is called by its name on the hub"
    assert "licenses" in done.stderr and "text of the passages" in done.stderr, "others will read them"
    card = shared["README.md"].decode()
    assert yaml.safe_load(card.split("---")[1])["license"] == "mit"
    assert "| corag | 50.0 " in card and "corag run --config hub:me/towns" in card
    options = yaml.safe_load(again.stdout)
    assert options["corag"]["max_hops"] == 3 and options["corag"]["preset"] == "small_model"
    assert options["seed"] == 7 and options["model"]["adapter"] == "default"
    assert "10.0.0.7" not in shared["config.yaml"].decode(), "servers are this machine's own"


def test_how_a_run_searched_is_shared_too_but_where_is_not(tmp_path):
    from corag.core.runs.manifest import Manifest

    searched = {"index": ["/home/me/idx"], "bm25": "ircot", "links": "titles", "threads": 3}
    run = make_run(
        tmp_path / "run",
        [row(ADA, "Orvale", ["p1"])],
        {"method": "ircot", "leave_out_self": True},
        retriever=searched | {"reranker": "http://10.0.0.7:9"},
    )
    options = run_options(Manifest.read(run))
    reranked = {"reranker": NOT_SHARED}  # without one the run would be another
    assert options["retriever"] == {"bm25": "ircot", "links": "titles"} | reranked
    assert options["leave_out_self"] is True


def test_an_adapter_goes_with_its_weights_and_says_what_its_record_holds(tmp_path):
    folder = tmp_path / "adapter"
    folder.mkdir()
    lora = {"base_model_name_or_path": "Qwen/Qwen3-8B", "init_lora_weights": "/home/me/init"}
    (folder / "adapter_config.json").write_text(json.dumps(lora | {"target_modules": "layers/.*_proj"}))
    with raises_message(ConfigError):
        prepare_upload(PushConfig(str(folder), "me/x"))
    (folder / "adapter_model.bin").write_bytes(b"x")
    settings = {
        "base": {"name": "Qwen/Qwen3-8B", "digest": "0"},
        "options": {"adapter": {"name": "/home/me/adapters/first"}, "trainer": {"logging_dir": "/home/me/l"}},
        "rows": [],
    }
    record = {"settings": settings, "result": None, "starts": [{"command": ["/home/me/corag", "train"]}]}
    (folder / "training.json").write_text(json.dumps(record))
    with raises_message(ConfigError):
        prepare_upload(PushConfig(str(folder), "me/x"))
    config = (folder / "adapter_config.json").read_text()
    (folder / "adapter_config.json").unlink()  # as it is until the training ends
    with pytest.raises(ConfigError, match="has not finished: give the training command again"):
        prepare_upload(PushConfig(str(folder), "me/x"))
    (folder / "adapter_config.json").write_text(config)
    (folder / "training.json").write_text(json.dumps(record | {"result": {"steps": 5}}))
    run = a_run(tmp_path / "run")
    upload = prepare_upload(PushConfig(str(folder), "me/x", results=[str(run)]))
    shared = [each.decode() for each in upload.files.values() if isinstance(each, bytes)]
    assert "adapter_model.bin" in upload.files and not any("/home/me" in each for each in shared)
    assert any("layers/.*_proj" in each for each in shared), "a pattern of modules is no place"
    assert not any(str(tmp_path) in each or "10.0.0.7" in each for each in shared)
    assert "| trained further from | (not shared) |" in upload.card and "  max_hops: 3" in upload.card, (
        "how the results were made"
    )


def test_an_adapter_is_shared_with_its_training_and_results_and_is_used_by_its_name(tmp_path):
    run = a_run(tmp_path / "run")
    with serving({}) as hub:
        here = {"HF_HOME": str(tmp_path / "home"), "HF_ENDPOINT": hub.url, "HF_TOKEN": "hf_secret"}
        done = corag("push", "wikipedia", "me/wiki", "--results", run, **here)
        assert done.returncode == 0, done.stderr
        read = "from corag.generation.adapters import adapter_folder; print(adapter_folder('hub:me/wiki'))"
        command = [sys.executable, "-c", read]
        fetched = subprocess.run(command, env=os.environ | here, capture_output=True, text=True, check=False)
        assert fetched.returncode == 0, fetched.stderr[-2000:]
    folder = Path(fetched.stdout.strip())
    shipped = Path(adapter_folder("wikipedia"))
    weights = "adapter_model.safetensors"
    assert (folder / weights).read_bytes() == (shipped / weights).read_bytes()
    settings = json.loads((folder / "adapter_config.json").read_text())
    assert settings["base_model_name_or_path"] == "HuggingFaceTB/SmolLM2-135M-Instruct"
    card = (folder / "README.md").read_text()
    assert yaml.safe_load(card.split("---")[1])["base_model"] == "HuggingFaceTB/SmolLM2-135M-Instruct"
    assert "--model.adapter hub:me/wiki" in card and "--corag.stop learned" in card, "asks as it was taught"
    assert "No license was given" in done.stderr and "'license'" in done.stderr
    assert "| mean loss | 0.2739 |" in card and "| run | 50.0 " in card


def test_chains_are_shared_with_what_is_in_them(tmp_path):
    config = CoRAGConfig(**PROMPTS, passages_per_hop=2, search_depth=3, context_passages=3)
    write_chains(tmp_path / "chains", SampleConfig(chains=3, max_hops=3), config, questions=many(3))
    (tmp_path / "chains/traces.jsonl.bak").write_text("of another run, put aside")
    upload = prepare_upload(PushConfig(str(tmp_path / "chains"), "me/chains"))
    assert upload.repository == "dataset" and set(upload.files) == {
        "README.md",
        "manifest.json",
        "traces.jsonl",
    }
    assert "questions 3, failed 0, kept 3" in upload.card and "corag rows hub:me/chains" in upload.card
    assert "for 3 questions" in upload.card
    manifest = json.loads((tmp_path / "chains/manifest.json").read_text())
    manifest["starts"][-1] |= {
        "questions": "/home/me/towns_train.jsonl", "model": {"name": "default", "adapter": "default"}
    }  # fmt: skip
    (tmp_path / "chains/manifest.json").write_text(json.dumps(manifest))
    card = prepare_upload(PushConfig(str(tmp_path / "chains"), "me/chains")).card
    assert "questions (towns_train.jsonl)" in card and "/home/me" not in card
    manifest = json.loads((tmp_path / "chains/manifest.json").read_text())
    manifest["starts"][-1]["asked"] = 10
    (tmp_path / "chains/manifest.json").write_text(json.dumps(manifest))
    part = prepare_upload(PushConfig(str(tmp_path / "chains"), "me/chains"))
    assert "for 3 of 10 questions" in part.card, "a part of them teaches as well"


@pytest.mark.parametrize("made", ["trained", "merged"])
def test_a_whole_model_is_shared_with_its_base_its_rows_and_the_command_that_asks_it(
    made, tmp_path, options, tiny_model, start
):
    from training.sft import main as fine_tune

    folder, record = tmp_path / "model", "training.json" if made == "trained" else "merged_training.json"
    if made == "trained":
        fine_tune(options(tuning="full", out=str(folder)))
    else:
        merged = corag("merge", start, "--out", folder)
        assert merged.returncode == 0, merged.stderr
    with pytest.raises(ConfigError, match=f"a folder of this machine: .* Write that into its {record}"):
        prepare_upload(PushConfig(str(folder), "me/whole"))
    training = json.loads((folder / record).read_text())
    training["settings"]["base"]["name"] = "Qwen/Qwen3-8B"
    (folder / record).write_text(json.dumps(training))
    settings = json.loads((folder / "config.json").read_text()) | {"_name_or_path": tiny_model}
    (folder / "config.json").write_text(json.dumps(settings))
    with serving({}) as hub:
        here = {"HF_HOME": str(tmp_path / "home"), "HF_ENDPOINT": hub.url, "HF_TOKEN": "hf_secret"}
        dry = corag("push", folder, "me/whole", "--dry_run", **here)
        assert dry.returncode == 0 and not hub.repositories, dry.stderr
        assert "Without 'dry_run': the model me/whole." in dry.stdout and "model.safetensors: " in dry.stdout
        done = corag("push", folder, "me/whole", "--license", "mit", **here)
        assert done.returncode == 0, done.stderr
        read = "from corag.generation.models import model_folder; print(model_folder('me/whole'))"
        fetched = subprocess.run(
            [sys.executable, "-c", read], env=os.environ | here, capture_output=True, text=True, check=False
        )
        assert fetched.returncode == 0, fetched.stderr[-2000:]
        shared = hub.repositories["me/whole"]
    there = Path(fetched.stdout.strip())
    assert (there / "model.safetensors").read_bytes() == (folder / "model.safetensors").read_bytes()
    assert {record, "config.json", "generation_config.json", "tokenizer.json"} <= {*shared}
    assert not any("optimizer" in name or "checkpoint" in name or "adapter" in name for name in shared)
    places = (tiny_model, str(tmp_path), start)
    assert not any(each.encode() in content for each in places for content in shared.values())
    card = shared["README.md"].decode()
    head = yaml.safe_load(card.split("---")[1])
    assert (head["library_name"], head["base_model"]) == ("transformers", "Qwen/Qwen3-8B")
    assert "--model.name me/whole" in card and "--model.adapter" not in card
    assert "| rows of | final_answer, sub_answer, sub_query |" in card and "| questions | 8 |" in card
    assert ("| rank |" in card) == (made == "merged") and f"All settings and figures: `{record}`" in card
