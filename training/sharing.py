"""What is shared on the Hugging Face hub: an adapter, a model, sampled chains or a run, each with a card.

What of a folder's records others may read says :mod:`training.shared_records`; :mod:`training.cards` writes
the card from the same.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import yaml

from corag.core.errors import ConfigError, reason
from corag.core.options.classes import Options
from corag.core.options.names import LocalPath
from corag.core.runs.folder import TRACES
from corag.core.runs.manifest import CHAINS, MANIFEST, VERDICTS, Manifest
from corag.core.system.installation import require
from corag.core.web.hub_files import file_size, is_repository_name
from corag.generation.adapter_weights import CONFIG, PICKLE, WEIGHTS
from corag.generation.adapters import MERGED_TRAINING, TRAINING, adapter_folder, read_manifest
from eval.tables.runs import Runs
from training.cards import chains_card, model_card, run_card
from training.shared_records import (
    base_on_hub,
    count_unanswered,
    record_name,
    run_options,
    shared_adapter_settings,
    shared_lines,
    shared_manifest,
    shared_settings,
    shared_training,
)

_LEFT_OUT = "Paths, addresses and command lines in its records are left out; texts go as they are."
_NO_LICENSE = (
    "No license was given, so the card names none and others may not know what they may do: name it with "
    "'license', such as license=apache-2.0."
)
Kind = Literal["adapter", "model", "chains", "run"]
CARD, OPTIONS = "README.md", "config.yaml"
# What others need of an adapter or a model; checkpoints, logs and locks stay here.
_TOKENIZER_FILES = ("tokenizer*", "*.jinja", "special_tokens*")
_FILES: Mapping[Kind, Sequence[str]] = {
    "adapter": (WEIGHTS, PICKLE, *_TOKENIZER_FILES),
    "model": (
        "config.json", "generation_config.json", "*.safetensors", "*.safetensors.index.json",
        *_TOKENIZER_FILES, "vocab.*", "merges.txt", "added_tokens.json", "*processor_config.json",
    ),
}  # fmt: skip


@dataclass(frozen=True)
class PushConfig(Options):
    """Options of 'corag push'."""

    folder: LocalPath = ""
    """an adapter, a model that was trained whole or merged, a folder of sampled chains or a run."""

    name: str = ""
    """OWNER/NAME on the hub."""

    results: list[LocalPath] = field(default_factory=list)
    """finished runs whose table goes on the card of an adapter or a model."""

    license: str = ""
    """of what is shared, as the hub names licenses (mit, apache-2.0, cc-by-sa-4.0); "" names none."""

    private: bool = False
    """make a new repository, a private one."""

    dry_run: bool = False
    """write the card to standard output and list the files; nothing leaves this machine."""

    def __post_init__(self) -> None:
        if not self.folder or not self.name:
            raise ConfigError(
                "name the folder to share and its name on the hub: corag push FOLDER OWNER/NAME."
            )
        if not is_repository_name(self.name):
            raise ConfigError(f"'{self.name}' is no name on the hub: expected OWNER/NAME.")


@dataclass(frozen=True)
class Upload:
    """What is to be uploaded.

    Attributes:
        kind: what was shared.
        repository: "model" or "dataset".
        files: by their name there, a file here or the bytes of one that was written for it.
        notes: what the user should know before others can read it.
    """

    kind: Kind
    repository: Literal["model", "dataset"]
    files: Mapping[str, Path | bytes]
    notes: Sequence[str]

    @property
    def card(self) -> str:
        """The card's text."""
        content = self.files[CARD]
        assert isinstance(content, bytes)
        return content.decode()

    def sizes(self) -> dict[str, int]:
        """Return the files' sizes in bytes."""
        return {
            name: len(each) if isinstance(each, bytes) else each.stat().st_size
            for name, each in self.files.items()
        }


def prepare_upload(config: PushConfig) -> Upload:
    """Collect the files and write the card.

    Raises :class:`ConfigError` if the folder is none of these, or not finished.
    """
    folder = Path(adapter_folder(config.folder))
    training = read_manifest(folder)
    if training is not None and training["result"] is None:
        raise ConfigError(
            f"the training of '{folder}' has not finished: give the training command again, which goes on, "
            "and then share what it made."
        )
    kind = _kind(folder)
    license_notes = [] if config.license else [_NO_LICENSE]
    if kind in _FILES:
        files = _model_files(folder, kind, config)
        return Upload(kind, "model", files, [_LEFT_OUT, *license_notes])
    if config.results:
        raise ConfigError(
            f"results go on the card of an adapter or a model, but '{config.folder}' holds {_NOUNS[kind]}."
        )
    licenses = (
        "It holds the questions, their gold answers and the text of the passages that were read: check that "
        "their licenses let you share them."
    )
    return Upload(kind, "dataset", _row_files(folder, kind, config), [licenses, _LEFT_OUT, *license_notes])


def _model_files(folder: Path, kind: Kind, config: PushConfig) -> dict[str, Path | bytes]:
    """Return an adapter's or a model's files with its card.

    Raises :class:`ConfigError` if it has no weights.
    """
    files: dict[str, Path | bytes] = {
        file.name: file for pattern in _FILES[kind] for file in sorted(folder.glob(pattern)) if file.is_file()
    }
    record = record_name(folder)
    base, training = base_on_hub(folder), read_manifest(folder, record)
    if not any(Path(name).suffix in {".safetensors", ".bin"} for name in files):
        raise ConfigError(
            f"the {kind} '{config.folder}' has no weights (no .safetensors file): copy them there, or give "
            "the command that made it again."
        )
    for name in (each for each in files if each.endswith("config.json")):
        files[name] = _json(shared_settings(folder / name))
    if kind == "adapter":
        files[CONFIG] = _json(shared_adapter_settings(folder) | {"base_model_name_or_path": base})
    shared_record = None if training is None else shared_training(training, base)
    if shared_record is not None:
        files[record] = _json(shared_record)
    results = Runs(runs=config.results).by_name() if config.results else {}
    for run in results.values():
        _check_finished(run)
    made: Literal["adapter", "model", "merged"] = (
        "adapter" if kind == "adapter" else "merged" if record == MERGED_TRAINING else "model"
    )
    files[CARD] = model_card(config.name, config.license, made, base, shared_record, results).encode()
    return files


def _row_files(folder: Path, kind: Kind, config: PushConfig) -> dict[str, Path | bytes]:
    """Return the files of chains, which teach in part too, or of a whole run, with the card."""
    manifest = Manifest.read(folder)
    files: dict[str, Path | bytes] = {
        MANIFEST: _json(shared_manifest(manifest).to_json()),
        TRACES: shared_lines(folder),
    }
    if kind == "run":
        _check_finished(folder)
        files[OPTIONS] = yaml.safe_dump(run_options(manifest), sort_keys=False).encode()
        card = run_card(config.name, config.license, folder)
    else:
        card = chains_card(config.name, config.license, folder, count_unanswered(folder))
    return files | {CARD: card.encode()}


def _check_finished(run: Path) -> None:
    """Raise :class:`ConfigError` for a run that lacks questions: those answered first are the short ones."""
    if lacking := count_unanswered(run):
        raise ConfigError(
            f"the run '{run}' lacks {lacking:,} questions, and what is answered first may be easier than the "
            "rest: give its command again, which goes on, and then share it."
        )


def _json(record: Mapping[str, Any]) -> bytes:
    return (json.dumps(record, indent=2) + "\n").encode()


def push(config: PushConfig, upload: Upload, report: Callable[[str], None]) -> str:
    """Upload in one commit and return the page's address.

    Raises :class:`ConfigError` if the hub cannot be reached or refuses; nothing is then changed there.
    """
    require("corag push", "huggingface_hub")
    from huggingface_hub import CommitOperationAdd, HfApi

    report(f"corag: {len(upload.files)} files, {file_size(sum(upload.sizes().values()))}, to {config.name}")
    operations = [
        CommitOperationAdd(name, io.BytesIO(each) if isinstance(each, bytes) else each)
        for name, each in upload.files.items()
    ]
    api = HfApi()
    try:
        api.create_repo(
            config.name, repo_type=upload.repository, private=config.private or None, exist_ok=True
        )
        if config.private and not api.repo_info(config.name, repo_type=upload.repository).private:
            raise ConfigError(
                f"'private' was given, but {config.name} is there already and is public: nothing was "
                "uploaded. Make it private on the hub, or give another name."
            )
        commit = api.create_commit(
            config.name,
            operations,
            repo_type=upload.repository,
            commit_message=f"{_NOUNS[upload.kind].capitalize()} from corag",
        )
    except ConfigError:
        raise
    except Exception as error:  # noqa: BLE001 - no network, no token, no right: whatever the client makes of it
        raise ConfigError(
            f"'{config.folder}' could not be uploaded to {config.name} ({reason(error)}): log in with "
            "`hf auth login`, check the name and the network, and give the same command again."
        ) from None
    return str(commit.repo_url)


_NOUNS: Mapping[Kind, str] = {
    "adapter": "a LoRA adapter", "model": "a model", "chains": "sampled chains", "run": "a run"
}  # fmt: skip


def _kind(folder: Path) -> Kind:
    if (folder / CONFIG).is_file():
        return "adapter"
    if _is_language_model(folder) and (folder / record_name(folder)).is_file():
        return "model"
    if not (folder / MANIFEST).is_file():
        raise ConfigError(
            f"'{folder}' is neither an adapter ({CONFIG}), nor a language model (config.json) with its "
            f"{TRAINING} or {MERGED_TRAINING}, nor a run or chains ({MANIFEST}): name the folder that corag "
            "train, merge, run or sample wrote."
        )
    method = Manifest.read(folder).method
    if method == VERDICTS:
        raise ConfigError(f"'{folder}' holds a judge's verdicts: name the run '{folder.parent}'.")
    return "chains" if method == CHAINS else "run"


def _is_language_model(folder: Path) -> bool:
    """Whether a folder holds one: encoders and re-rankers, too, have a config.json and a training.json."""
    file = folder / "config.json"
    settings = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}
    ends = ("ForCausalLM", "ForConditionalGeneration", "LMHeadModel")
    return any(name.endswith(ends) for name in settings.get("architectures") or ())
