"""A tokenizer is read from a folder as its own file has it, whatever class the settings name."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from corag.core.errors import ConfigError
from corag.core.tokenizer import load_tokenizer, require_words, shared_tokenizer, tokenizer_folder
from tests.messages import raises_message
from tests.tiny import save_tiny_encoder
from tests.vocabularies import FAMILIES, renderer_of, save_tokenizer

TEXT = "The capital of Norway\n\nis Oslo, isn't it?  In 12345: <s> Zürich"
CLASSES = ("LlamaTokenizerFast", "GemmaTokenizer", "Qwen2Tokenizer")


def folder_of(path: Path, family: str, class_name: str, architecture: str = "llama") -> str:
    folder = save_tokenizer(path, family, {"tokenizer_class": class_name, "legacy": True})
    (path / "config.json").write_text(json.dumps({"model_type": architecture}))
    return folder


@pytest.mark.parametrize("architecture", ["llama", "qwen3"])
@pytest.mark.parametrize("class_name", CLASSES)
@pytest.mark.parametrize("family", FAMILIES)
def test_a_folder_is_read_as_its_file_says_here_and_by_every_library(
    tmp_path: Path, family: str, class_name: str, architecture: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As R1-Distill-Llama and R1-0528-Qwen3, which are byte level and name LlamaTokenizerFast."""
    monkeypatch.setenv("CORAG_CACHE", str(tmp_path / "cache"))
    folder = folder_of(tmp_path, family, class_name, architecture)
    expected = PreTrainedTokenizerFast.from_pretrained(folder).encode(TEXT)
    assert load_tokenizer(folder).encode(TEXT) == expected
    other = tokenizer_folder(folder)
    assert AutoTokenizer.from_pretrained(other).encode(TEXT) == expected
    assert tokenizer_folder(other) == other


def test_a_tokenizer_is_loaded_once_for_each_state_of_its_folder(tmp_path: Path) -> None:
    folder = folder_of(tmp_path, "llama-3", "PreTrainedTokenizerFast")
    (tmp_path / "gone").symlink_to(tmp_path / "pruned")  # as of a snapshot of which something was removed
    first = shared_tokenizer(folder)
    assert shared_tokenizer(folder) is first
    settings = json.loads((tmp_path / "tokenizer_config.json").read_text())
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(settings | {"model_max_length": 77}))
    assert shared_tokenizer(folder).model_max_length == 77


def test_one_vocabulary_that_is_read_in_several_ways_has_several_fingerprints() -> None:
    names = ["metaspace always", "mistral-v0.3 (a blank before the first text)", "metaspace never"]
    renderers = [renderer_of(name) for name in names]
    vocabularies = {str(sorted(each.template.tokenizer.get_vocab().items())) for each in renderers}
    assert len(vocabularies) == 1
    assert len({each.fingerprint for each in renderers}) == len(names)


def test_a_tokenizer_that_loses_blanks_or_cannot_be_read_is_a_sentence(tmp_path: Path) -> None:
    folder = folder_of(tmp_path, "llama-3", "LlamaTokenizerFast")
    with raises_message(ConfigError):
        require_words(AutoTokenizer.from_pretrained(folder), "the tokenizer of 'x'")
    (tmp_path / "tokenizer.json").write_text("{}")
    with raises_message(ConfigError):
        load_tokenizer(folder)


def test_an_encoder_whose_tokenizer_loses_blanks_is_refused(tmp_path: Path) -> None:
    from retrieval.dense.encoder import Encoder

    folder = save_tiny_encoder(tmp_path)
    save_tokenizer(Path(folder), "llama-3", {"tokenizer_class": "LlamaTokenizerFast"})
    with raises_message(ConfigError):
        Encoder(folder)
