"""What of the records of an adapter, of chains or of a run others may read: no path, address or command."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson

from corag.core.errors import ConfigError
from corag.core.options.names import Mark, marked_options
from corag.core.options.shared_values import shared_error, shared_options, shared_value
from corag.core.options.yaml_files import plain
from corag.core.runs.folder import read_lines
from corag.core.runs.manifest import Manifest, Start
from corag.core.runs.shards import SHARD
from corag.core.seeds import stable_hash
from corag.core.system.folder_lock import refuse_if_locked
from corag.core.web.hub_files import is_repository_name
from corag.generation.adapter_weights import CONFIG
from corag.generation.adapters import MERGED_TRAINING, TRAINING, read_manifest
from corag.generation.config import ModelConfig
from corag.generation.models import DEFAULT_MODEL
from eval.experiment.registry import METHODS
from retrieval.config import RetrieverConfig

# The default model is shipped as one file; its adapters name it as the hub does.
DEFAULT_ON_HUB = f"HuggingFaceTB/{DEFAULT_MODEL}"
# Of a start as it stands; the rest, such as the command line and the workers' hosts, is this machine's own.
_SHARED_OF_START = (
    "started", "git_commit", "python", "versions", "batch_size", "scorer", "recall_at", "shard", "asked",
    "aliases", "trained_for", "resumed_from",
)  # fmt: skip
_SHARED_OF_MACHINE = ("platform", "cores", "gpus")
_SYNTHETIC = "made by a program"  # which one may be a model's folder


def shared_manifest(manifest: Manifest) -> Manifest:
    """Return a run's or chains' manifest as others may read it."""
    on_hub = _names_on_hub(*(each.record for each in manifest.starts))
    settings = _shared_settings(manifest.settings, on_hub)
    settings["questions"] = manifest.questions  # a file's hash or a data set's name
    if manifest.method in METHODS:
        settings["options"] = shared_options(manifest.options, METHODS[manifest.method].config, on_hub)
    return replace(
        manifest, settings=settings, starts=[_shared_start(each.record, on_hub) for each in manifest.starts]
    )


def _shared_settings(settings: Mapping[str, Any], on_hub: Collection[str]) -> dict[str, Any]:
    """Return settings of a manifest, with those of the chains and rows in them, as others may read them."""
    shared: dict[str, Any] = shared_value(settings, on_hub)
    for name, value in settings.items():
        if name in ("model", "retriever") and isinstance(value, str):
            shared[name] = _shared_fingerprint(value)
        elif name in ("rows", "chains") and isinstance(value, list):
            shared[name] = [_shared_settings(each, on_hub) for each in value]
    return shared


def _shared_fingerprint(text: str) -> str:
    """Return what tells a model or an index: engines make it of digests, users of what they like."""
    kind, _, rest = text.partition(":")
    return f"{kind}:{stable_hash(rest)}" if re.search(r"[/\\@~]", text) else text


def _names_on_hub(*starts: Mapping[str, Any]) -> set[str]:
    return {name for start in starts for name in start.get("from_hub", ()) if is_repository_name(name)}


def _shared_start(record: Mapping[str, Any], on_hub: Collection[str]) -> Start:
    shared = {name: record[name] for name in _SHARED_OF_START if name in record}
    for name, config in (("model", ModelConfig), ("retriever", RetrieverConfig)):
        if name in record:
            shared[name] = shared_options(record[name], config, on_hub)
    named = {name: record[name] for name in ("corpus", "from_hub") if name in record}
    shared |= shared_value(named, on_hub)
    if "synthetic" in record:
        shared["synthetic"] = _SYNTHETIC
    if "questions" in record:
        shared["questions"] = Path(record["questions"]).name
    if machine := record.get("machine"):
        shared["machine"] = {name: machine[name] for name in _SHARED_OF_MACHINE if name in machine}
    return Start.from_json(shared)


def shared_training(manifest: Mapping[str, Any], base: str) -> dict[str, Any]:
    """Return how an adapter or a model was made (training.json) as others may read it.

    ``base``: the name of the model that it was made of.
    """
    values = {"settings": _shared_settings(manifest["settings"], (base,))}
    values |= {"result": shared_value(manifest["result"])} if "result" in manifest else {}
    if manifest["settings"]["base"]["name"] != "default":
        values["settings"]["base"]["name"] = base
    starts = manifest["starts"]
    return values | {"starts": [dict(_shared_start(each, (base,)).record) for each in starts]}


def shared_settings(file: Path) -> Any:
    """Return a JSON file of an adapter, a model or a tokenizer without the places that it was read from."""

    def without_places(settings: dict[str, Any]) -> dict[str, Any]:
        names = [name for name in settings if name.lstrip("_") != "name_or_path" and name[-5:] != "_file"]
        return {name: settings[name] for name in names}

    return json.loads(file.read_text(encoding="utf-8"), object_hook=without_places)


def shared_adapter_settings(folder: Path) -> dict[str, Any]:
    """Return adapter_config.json without the places that it was made at; patterns of modules are none."""
    settings = shared_settings(folder / CONFIG)
    patterns = [name for name in settings if name.endswith(("modules", "_pattern", "_parameters"))]
    shared: dict[str, Any] = shared_value(settings)
    return shared | {name: settings[name] for name in patterns}


def record_name(folder: Path) -> str:
    """Return the name of the file that says how an adapter or a model was made."""
    return MERGED_TRAINING if (folder / MERGED_TRAINING).is_file() else TRAINING


def base_on_hub(folder: Path) -> str:
    """Return the name on the hub of the base model of an adapter, or of a model that was made of one.

    Raises :class:`ConfigError` if it is only a folder here.
    """
    record = record_name(folder)
    manifest = read_manifest(folder, record)
    if manifest is None:
        name = str(json.loads((folder / CONFIG).read_text("utf-8")).get("base_model_name_or_path") or "")
    else:
        name = str(manifest["settings"]["base"]["name"])
    if name == "default":  # whatever folder of that name may be here
        return DEFAULT_ON_HUB
    # A relative path may look like a name. Trainings note folders; of adapters from elsewhere, the base is
    # looked for where they may have been trained, which is often above them.
    folders = {each.get("base_folder") for each in (manifest or {}).get("starts", ())}
    is_here = any((each / name).is_dir() for each in folder.absolute().parents)
    if name in folders or is_here or not is_repository_name(name):
        raise ConfigError(
            f"'{folder}' was trained on '{name}', a folder of this machine: others need its name on the hub. "
            f"Write that into its {CONFIG if manifest is None else record}."
        )
    return name


def shared_lines(folder: Path) -> bytes:
    """Return the lines of a run or of chains as others may read them: of each question the last one.

    Earlier ones failed. Messages name servers and files, what made a question names a model's folder.
    """
    lines = []
    for line in read_lines(folder).values():
        record = orjson.loads(line.text)
        question = record.get("question")
        changes: dict[str, Any] = {"error": shared_error(record["error"])} if line.failed else {}
        if isinstance(question, dict) and question.get("synthetic"):
            changes["question"] = question | {"synthetic": _SYNTHETIC}
        lines.append(orjson.dumps(record | changes) + b"\n" if changes else line.text)
    return b"".join(lines)


def count_unanswered(folder: Path) -> int:
    """Return how many questions of those that were asked a folder of rows lacks; 0 if that is not known.

    Raises :class:`ConfigError` if a process is at work there, or the folder is a shard.
    """
    refuse_if_locked(folder, advice="wait until it ends")
    if (folder / SHARD).is_file():
        raise ConfigError(
            f"'{folder}' is one shard of a run: join all of them with 'corag table --join' and share that."
        )
    # Of a joined run the starts are those of its shards, which joining found whole.
    manifest = Manifest.read(folder)
    if manifest.last.record.get("shard"):
        return 0
    return max(0, max(each.asked for each in manifest.starts) - len(read_lines(folder)))


def run_options(manifest: Manifest) -> dict[str, Any]:
    """Return the options of 'corag run' that a run was made with, where they differ from the defaults.

    What was only on the machine of the run has a value that is refused until another is given. Questions and
    index are left out: everybody has their own.
    """
    shared_run, method = shared_manifest(manifest), manifest.method
    record = shared_run.last.record
    options: dict[str, Any] = {"method": [method]}
    if method in METHODS:
        kind: Any = METHODS[method].config
        method_options = shared_run.options
        preset = manifest.options.get("preset")
        base = kind(preset=preset) if preset else kind()
        section = {"preset": preset} if preset and preset != vars(kind()).get("preset") else {}
        section |= _differing(method_options, base)
        options |= {method: section} if section else {}
    model = _differing(record.get("model") or {}, ModelConfig())
    options |= {"model": model} if model else {}
    retriever_options = _differing(record.get("retriever") or {}, RetrieverConfig())
    retriever_options.pop("index", None)
    options |= {"retriever": retriever_options} if retriever_options else {}
    options |= {"leave_out_self": True} if manifest.settings.get("leave_out_self") else {}
    questions = manifest.questions
    options |= {name: questions[name] for name in ("dataset", "split", "subset") if questions.get(name)}
    options |= {name: value for name in ("seed", "budget") if (value := getattr(manifest, name))}
    return options | {name: record[name] for name in ("scorer", "recall_at") if record.get(name)}


def _differing(record: Mapping[str, Any], base: Any) -> dict[str, Any]:
    """Return what of a class's options differs from those of ``base`` and is no matter of speed or memory."""
    environment = marked_options(type(base), Mark.ENVIRONMENT)
    return {
        name: value
        for name, value in record.items()
        if hasattr(base, name) and name not in environment and plain(value) != plain(getattr(base, name))
    }
