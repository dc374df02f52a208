"""The model folder, or a sentence that says what is wrong with it."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from corag.core.errors import ConfigError
from corag.generation.models import folder_digest, model_folder
from tests.messages import raises_message


@pytest.fixture
def small_files(tmp_path: Path) -> Path:
    """Copy everything of the default model but its weights."""
    for path in Path(model_folder("default")).iterdir():
        if path.suffix != ".safetensors":
            shutil.copy(path, tmp_path)
    return tmp_path


def test_the_default_model_is_made_once_with_tokenizer_and_chat_template() -> None:
    folder = Path(model_folder("default"))
    made = (folder / "model.safetensors").stat().st_mtime
    assert model_folder("default") == str(folder) and (folder / "model.safetensors").stat().st_mtime == made
    assert (folder / "chat_template.jinja").is_file()
    assert not list(folder.parent.glob("*.tmp"))


def test_a_folder_that_is_not_there_or_incomplete_is_named_with_what_is_missing(small_files: Path) -> None:
    with raises_message(ConfigError):
        model_folder("./nowhere")
    with raises_message(ConfigError):
        model_folder(str(small_files))
    assert model_folder(str(small_files), weights=False) == str(small_files)
    (small_files / "tokenizer.json").unlink()
    with raises_message(ConfigError):
        model_folder(str(small_files), weights=False)
    (small_files / "config.json").unlink()
    with raises_message(ConfigError):
        model_folder(str(small_files))


def test_the_digest_changes_with_the_content(small_files: Path) -> None:
    before = folder_digest(small_files)
    (small_files / "adapter_model.safetensors").write_bytes(b"weights of round 1")
    first = folder_digest(small_files)
    (small_files / "adapter_model.safetensors").write_bytes(b"weights of round 2")
    assert len({before, first, folder_digest(small_files)}) == 3
