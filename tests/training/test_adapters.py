"""LoRA adapters: every back end says the same with one, refuses one that does not fit, and 'corag merge'
folds it in.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM

from corag.baselines.one_step import OneStepConfig
from corag.chains.config import CoRAGConfig
from corag.cli.commands.merge import MergeOptions, main
from corag.cli.commands.quickstart import METHODS
from corag.core.errors import ConfigError
from corag.core.prompting.prompt import Prompt
from corag.core.protocols import GenerateRequest, Generation, Generator, Sampling, ScoreRequest
from corag.generation.adapter_weights import check_weights
from corag.generation.adapters import SHIPPED_ADAPTERS, adapter_folder, check_adapter, read_manifest
from corag.generation.config import ModelConfig
from corag.generation.models import model_folder
from corag.generation.trained_for import trained_for
from corag.generation.transformers_engine import TransformersGenerator
from corag.generation.vllm_engine import VllmGenerator
from corag.generation.vllm_start import lora_rank
from tests.fakes import chat_prompt
from tests.messages import raises_message
from tests.tiny import save_tiny_model
from training.config import SftConfig
from training.sft import main as train

pytestmark = pytest.mark.slow

Options = Callable[..., SftConfig]
PROMPTS = [
    chat_prompt("What is the capital of France? Answer in one sentence."),
    Prompt.of_text("The three largest cities of Peru are"),
]
REQUESTS = [
    ScoreRequest(prompt, target, end_of_turn=True)
    for prompt in PROMPTS
    for target in (" Paris", "Lima, I think")
]


@pytest.fixture
def adapter(options: Options) -> str:
    """Return an adapter that was trained on the tiny model."""
    config = options(learning_rate=2e-2)
    train(config)
    return config.out


def random_adapter(folder: Path, model: str, rank: int = 6, size: float = 0.1) -> str:
    """Save an adapter with random weights and without a manifest."""
    from peft import LoraConfig, get_peft_model

    torch.manual_seed(0)
    base = AutoModelForCausalLM.from_pretrained(model_folder(model), dtype=torch.float32)
    config = LoraConfig(
        r=rank, target_modules=["q_proj", "v_proj"], init_lora_weights=False, task_type="CAUSAL_LM"
    )
    adapted = get_peft_model(base, config)
    for name, weights in adapted.named_parameters():
        if "lora_" in name:
            weights.data.normal_(std=size)
    adapted.save_pretrained(folder)
    return str(folder)


def transformers_with(name: str, adapter: str = "") -> TransformersGenerator:
    config = ModelConfig(
        backend="transformers", name=name, adapter=adapter, dtype="float32", max_context=1024
    )
    return TransformersGenerator.open(config)


async def greedy(generator: Generator) -> list[Generation]:
    try:
        asked = (generator.generate(GenerateRequest(prompt, Sampling(16))) for prompt in PROMPTS)
        return list(await asyncio.gather(*asked))
    finally:
        await generator.close()


def scores(generator: Generator, requests: Sequence[ScoreRequest] = REQUESTS) -> list[float]:
    async def ask() -> list[float]:
        found = await asyncio.gather(*(generator.score(request) for request in requests))
        await generator.close()
        return [logprob for score in found for logprob in score.token_logprobs]

    return asyncio.run(ask())


def test_both_engines_say_the_same_with_an_adapter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    adapter = random_adapter(tmp_path / "adapter", "default")
    # On a CPU vLLM reads a merged model, which would stay in the user's cache.
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache/models").symlink_to(Path(model_folder("default")).parent)
    monkeypatch.setenv("CORAG_CACHE", str(tmp_path / "cache"))

    def tokens(generator: Generator) -> list[tuple[int, ...]]:
        return [reply.completions[0].token_ids for reply in asyncio.run(greedy(generator))]

    base, plain = tokens(transformers_with("default")), tokens(transformers_with("default", adapter))
    assert plain != base
    config = ModelConfig(dtype="float32", adapter=adapter, max_context=1024, kv_cache_gb=0.5)
    assert tokens(VllmGenerator.open(config)) == plain


def test_an_adapter_changes_scores_and_fingerprint(tiny_model: str, adapter: str) -> None:
    base, adapted = transformers_with(tiny_model), transformers_with(tiny_model, adapter)
    assert base.fingerprint != adapted.fingerprint
    assert max(abs(a - b) for a, b in zip(scores(base), scores(adapted), strict=True)) > 0.1


def test_an_adapter_for_another_base_model_is_refused(
    adapter: str, tiny_model: str, other_model: str, options: Options, tmp_path: Path
) -> None:
    said = rf"trained for the model '{tiny_model}' \(\w+\), but '{other_model}' is another"
    with pytest.raises(ConfigError, match=said):
        transformers_with(other_model, adapter)
    with pytest.raises(ConfigError, match=said):
        VllmGenerator.open(ModelConfig(name=other_model, adapter=adapter))
    with pytest.raises(ConfigError, match=said):
        train(options(model=other_model, adapter=adapter, out=str(tmp_path / "further")))


def says_its_base(adapter: str, base: str) -> None:
    file = Path(adapter, "adapter_config.json")
    file.write_text(json.dumps(json.loads(file.read_text()) | {"base_model_name_or_path": base}))


def test_an_adapter_that_does_not_say_its_base_is_refused_by_its_shape(
    tiny_model: str, tmp_path: Path
) -> None:
    wider = save_tiny_model(tmp_path / "wider", seed=0, hidden=96)
    adapter = random_adapter(tmp_path / "adapter", tiny_model)
    says_its_base(adapter, "")
    with raises_message(ConfigError):
        transformers_with(wider, adapter)


def test_an_adapter_of_others_comes_with_a_line_on_its_base(
    tiny_model: str, other_model: str, tmp_path: Path
) -> None:
    """Of the same shape, so nothing else would tell."""
    adapter = random_adapter(tmp_path / "adapter", tiny_model)
    says_its_base(adapter, "meta-llama/Llama-3.1-8B")
    line = check_adapter(adapter, other_model)[1]
    assert "for 'meta-llama/Llama-3.1-8B'. Nothing but its shapes" in line and other_model in line


def renamed_weights(adapter: str, change: Callable[[str], str | None]) -> None:
    """Give the weights of an adapter other names; those that get none are left out."""
    file = Path(adapter, "adapter_model.safetensors")
    weights = {change(name): weight for name, weight in load_file(file).items()}
    save_file({name: weight for name, weight in weights.items() if name}, file)


def nest(name: str) -> str:
    return name.replace("model.model.layers", "model.language_model.layers")


@pytest.mark.parametrize(
    ("change", "counted"),
    [
        (nest, r"0 of the 8 weights .* 'base_model.model.language_model.layers.0.self_attn"),
        (lambda name: name.replace("layers.1.", "layers.9."), "4 of the 8 weights"),
        (lambda name: None if "layers.1." in name else name, "lacks 4 weights"),
        (lambda name: None, "lacks 8 weights"),
    ],
)
def test_an_adapter_of_which_not_all_weights_fit_is_refused_everywhere(
    change: Callable[[str], str | None], counted: str, tiny_model: str, options: Options, tmp_path: Path
) -> None:
    """PEFT leaves aside what has no place, so that the base model would answer, merged and cached as such."""
    adapter = random_adapter(tmp_path / "adapter", tiny_model)
    renamed_weights(adapter, change)
    with pytest.raises(ConfigError, match=counted):
        transformers_with(tiny_model, adapter)
    with pytest.raises(ConfigError, match=counted):
        VllmGenerator.open(ModelConfig(name=tiny_model, adapter=adapter))
    with pytest.raises(ConfigError, match=counted):
        main(MergeOptions(adapter, str(tmp_path / "merged"), model=tiny_model))
    assert not (tmp_path / "merged").exists()
    with pytest.raises(ConfigError, match=counted):
        train(options(adapter=adapter, out=str(tmp_path / "further")))


def test_an_adapter_may_hold_weights_of_the_model_itself(tiny_model: str, tmp_path: Path) -> None:
    adapter = random_adapter(tmp_path / "adapter", tiny_model)
    weights = load_file(Path(adapter) / "adapter_model.safetensors")
    rows = load_file(Path(tiny_model) / "model.safetensors")["model.embed_tokens.weight"]
    weights["base_model.model.model.embed_tokens.weight"] = rows  # as PEFT's save_embedding_layers writes it
    save_file(weights, Path(adapter) / "adapter_model.safetensors")
    transformers_with(tiny_model, adapter)


def quantised(folder: Path, method: str) -> str:
    """Let a model folder say that its weights are quantised, as copies in 4 and 8 bits do."""
    settings = json.loads((folder / "config.json").read_text())
    settings["quantization_config"] = {"quant_method": method, "bits": 4}
    (folder / "config.json").write_text(json.dumps(settings))
    (folder / "model.safetensors").write_bytes(b"other bits")
    return str(folder)


def test_an_adapter_fits_copies_of_its_base_in_other_bits_and_says_so(
    adapter: str, tiny_model: str, tmp_path: Path
) -> None:
    """Of the weights only digests are known, which differ; where the shapes differ too it is refused."""
    copy = quantised(Path(shutil.copytree(tiny_model, tmp_path / "elsewhere-AWQ")), "awq")
    line = check_adapter(adapter, copy)[1]
    assert "Nothing but its shapes" in line and "(awq)" in line and tiny_model in line
    check_weights(adapter, copy)
    wider = quantised(Path(save_tiny_model(tmp_path / "wider", seed=0, hidden=96)), "awq")
    with pytest.raises(ConfigError, match="of the 28 weights"):
        check_weights(adapter, wider)
    with pytest.raises(ConfigError, match=r"quantised \(awq\): name the model"):
        main(MergeOptions(adapter, str(tmp_path / "merged"), model=copy))


def test_a_mirror_with_other_shards_is_the_same_model(adapter: str, tiny_model: str, tmp_path: Path) -> None:
    mirror = shutil.copytree(tiny_model, tmp_path / "mirror")
    AutoModelForCausalLM.from_pretrained(tiny_model).save_pretrained(mirror, max_shard_size="1MB")
    (mirror / "model.safetensors").unlink()
    assert len(list(mirror.glob("model-*.safetensors"))) > 1
    assert check_adapter(adapter, str(mirror))[1] == ""


@pytest.mark.parametrize("missing", [".", "nowhere"])
def test_a_folder_without_an_adapter_is_refused(missing: str, tiny_model: str, tmp_path: Path) -> None:
    folder = str(tmp_path / missing)
    said = f"'{folder}' is no LoRA adapter"
    with pytest.raises(ConfigError, match=said):
        transformers_with(tiny_model, folder)
    with pytest.raises(ConfigError, match=said):
        VllmGenerator.open(ModelConfig(name=tiny_model, adapter=folder))
    with pytest.raises(ConfigError, match=said):
        main(MergeOptions(folder, str(tmp_path / "merged"), model=tiny_model))


def test_an_adapter_whose_training_has_not_finished_is_refused(tiny_model: str, tmp_path: Path) -> None:
    record = {"settings": {"base": {"name": tiny_model, "digest": "0"}}, "result": None, "starts": []}
    (tmp_path / "training.json").write_text(json.dumps(record))
    with raises_message(ConfigError):
        transformers_with(tiny_model, str(tmp_path))
    with pytest.raises(ConfigError, match="has not finished: give the training command again"):
        main(MergeOptions(str(tmp_path), str(tmp_path / "merged")))


def test_the_rank_is_rounded_up_to_one_that_vllm_offers(tmp_path: Path) -> None:
    def configured(**settings: object) -> str:
        record = {"r": 8, "lora_alpha": 16, "target_modules": ["q_proj"]} | settings
        (tmp_path / "adapter_config.json").write_text(json.dumps(record))
        return str(tmp_path)

    for rank, offered in ((1, 8), (8, 8), (9, 16), (320, 320)):
        assert lora_rank(configured(r=rank)) == offered
    assert lora_rank(configured(rank_pattern={"q_proj": 40})) == 64
    for unfit in ({"r": 1000}, {"use_dora": True}, {"modules_to_save": ["lm_head"]}, {"bias": "all"}):
        with raises_message(ConfigError):
            lora_rank(configured(**unfit))


def merge(adapter: str, out: Path, *more: str) -> subprocess.CompletedProcess[str]:
    words = [sys.executable, "-m", "corag.cli", "merge", adapter, "--out", str(out), "--dtype", "float32"]
    words += ["--json", *more]
    return subprocess.run(words, capture_output=True, text=True, check=False)


def test_a_merged_model_scores_as_base_and_adapter(adapter: str, tiny_model: str, tmp_path: Path) -> None:
    ended = merge(adapter, tmp_path / "merged")
    (tmp_path / "plain").touch()
    assert {file.stat().st_mode for file in (tmp_path / "merged").iterdir()} == {
        (tmp_path / "plain").stat().st_mode
    }
    record = json.loads(ended.stdout.splitlines()[-1])
    assert record["base"] == tiny_model and record["folder"] == str(tmp_path / "merged")
    merged = scores(transformers_with(str(tmp_path / "merged")))
    assert merged == pytest.approx(scores(transformers_with(tiny_model, adapter)), abs=1e-4)
    assert max(abs(a - b) for a, b in zip(merged, scores(transformers_with(tiny_model)), strict=True)) > 0.1
    made = (tmp_path / "merged/merged_training.json").read_bytes()
    assert made == (Path(adapter) / "training.json").read_bytes()
    assert not (tmp_path / "merged/adapter_config.json").exists()


def test_merging_overwrites_nothing(adapter: str, tmp_path: Path) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full/notes.txt").write_text("mine")
    (tmp_path / "file").write_text("mine")
    for name in ("full", "file"):
        with pytest.raises(ConfigError, match=f"'{tmp_path / name}' is in the way"):
            main(MergeOptions(adapter, str(tmp_path / name)))
    with raises_message(ConfigError):
        main(MergeOptions(adapter))


def test_merging_into_another_base_model_is_refused(adapter: str, other_model: str, tmp_path: Path) -> None:
    with raises_message(ConfigError):
        main(MergeOptions(adapter, str(tmp_path / "merged"), model=other_model))
    assert not (tmp_path / "merged").exists()


@pytest.mark.parametrize("name", SHIPPED_ADAPTERS)
def test_shipped_adapters_are_for_the_default_model_and_small(name: str) -> None:
    shipped = Path(adapter_folder(name))
    assert check_adapter(str(shipped), model_folder("default"))[0]["base_model_name_or_path"] == "default"
    manifest = read_manifest(shipped)
    assert manifest is not None and manifest["result"]["steps"] > 0
    assert sum(file.stat().st_size for file in shipped.iterdir()) < 10e6


def test_shipped_adapters_say_for_which_prompts_they_were_trained() -> None:
    """If a prompt changes, what is asked is no longer what was taught, and tables would say so."""
    chains = CoRAGConfig(preset="small_model", stop="learned").templates()
    assert trained_for("default", "default") == {"corag": [each.identity for each in chains]}
    reader = OneStepConfig().templates()
    assert trained_for("one_step", "default") == {"one_step": [each.identity for each in reader]}


def test_the_quickstart_has_a_row_that_was_trained_as_corag_was() -> None:
    """All its methods ask with prompts of chat models; the row beside CoRAG's with those it was taught."""
    asked = {name: [each.identity for each in options.templates()] for name, (_, options) in METHODS.items()}
    assert asked["corag"] == trained_for("default", "default")["corag"]
    assert asked["one_step"] == trained_for("one_step", "default")["one_step"]
    assert not any(identity.startswith("layout") for each in asked.values() for identity in each)
