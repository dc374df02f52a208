"""What is shared on the Hugging Face hub: an adapter, sampled chains or a run, each with a card.

The card is written from what the folder itself records (training.json, manifest.json), so it names the base
model, the settings and the command that uses what was shared. Nothing of it is typed by hand.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from shlex import join
from typing import Any, Literal

import yaml

from corag.chains.taught import Taught
from corag.core.errors import ConfigError, reason
from corag.core.hub_files import PREFIX, file_size, is_repository_name
from corag.core.installation import require
from corag.core.option_names import Mark, marked
from corag.core.options import Options
from corag.core.runs.folder import TRACES, read_rows
from corag.core.runs.manifest import CHAINS, MANIFEST, VERDICTS, Manifest
from corag.core.servers import is_address
from corag.core.yaml_files import plain
from corag.generation.adapter_weights import CONFIG, PICKLED, WEIGHTS
from corag.generation.adapters import TRAINING, adapter_folder, read_manifest
from corag.generation.config import ModelConfig
from corag.generation.models import DEFAULT_MODEL
from eval.experiment.registry import METHODS
from eval.tables.formats import to_markdown
from eval.tables.results import table_of_runs
from eval.tables.runs import Runs
from retrieval.config import RetrieverConfig
from training.chains import describe, read_chains

Kind = Literal["adapter", "chains", "run"]
CARD, OPTIONS = "README.md", "config.yaml"
# The default model is shipped as one file; its adapters name it as the hub does.
_HUB_NAMES = {"default": f"HuggingFaceTB/{DEFAULT_MODEL}"}
# Files by kind that others need; checkpoints, logs and locks stay here.
_FILES: Mapping[Kind, tuple[str, ...]] = {
    "adapter": (CONFIG, WEIGHTS, PICKLED, TRAINING, "tokenizer*", "*.jinja", "special_tokens*"),
    "chains": (MANIFEST, TRACES),
    "run": (MANIFEST, TRACES),
}


@dataclass(frozen=True)
class PushConfig(Options):
    """Options of 'corag push'.

    Attributes:
        folder: an adapter, a folder of sampled chains or a run.
        name: OWNER/NAME on the hub.
        results: finished runs whose table goes on an adapter's card.
        license: of what is shared, as the hub names licenses (mit, apache-2.0, cc-by-sa-4.0); "" names none.
        private: make a new repository private.
        dry_run: write the card to standard output and list the files; nothing leaves this machine.
    """

    folder: str = ""
    name: str = ""
    results: list[str] = field(default_factory=list)
    license: str = ""
    private: bool = False
    dry_run: bool = False

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

    Raises :class:`ConfigError` if the folder is none of the three, or not finished.
    """
    folder = Path(adapter_folder(config.folder))
    kind = _kind(folder)
    if config.results and kind != "adapter":
        raise ConfigError(f"results go on an adapter's card, but '{config.folder}' holds {_NOUNS[kind]}.")
    files: dict[str, Path | bytes] = {
        file.name: file for pattern in _FILES[kind] for file in sorted(folder.glob(pattern)) if file.is_file()
    }
    if kind == "adapter":
        files[CONFIG] = _adapter_settings(folder)
        if not files.keys() & {WEIGHTS, PICKLED}:
            raise ConfigError(
                f"the adapter '{config.folder}' has no weights ({WEIGHTS}): copy that file there, or give "
                "the command that trained it again."
            )
        card = _adapter_card(folder, config)
        notes = [f"{TRAINING} names paths, the command line and the machine."] if TRAINING in files else []
    else:
        manifest = Manifest.read(folder)
        writes = _chains_card if kind == "chains" else _run_card
        card = writes(folder, manifest, config)
        if kind == "run":
            files[OPTIONS] = yaml.safe_dump(run_options(manifest), sort_keys=False).encode()
        notes = [
            "It holds the questions, their gold answers and the text of the passages that were read: check "
            "that their licenses let you share them.",
            f"{MANIFEST} names paths, the command line and the machine.",
        ]
    files[CARD] = card.encode()
    return Upload(kind, "model" if kind == "adapter" else "dataset", files, notes)


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
                f"--private was given, but {config.name} is there already and is public: nothing was "
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


_NOUNS: Mapping[Kind, str] = {"adapter": "a LoRA adapter", "chains": "sampled chains", "run": "a run"}


def _kind(folder: Path) -> Kind:
    if (folder / CONFIG).is_file():
        return "adapter"
    if not (folder / MANIFEST).is_file():
        raise ConfigError(
            f"'{folder}' is neither an adapter ({CONFIG}) nor a run or chains ({MANIFEST}): name the folder "
            "that corag train, run or sample wrote."
        )
    method = Manifest.read(folder).method
    if method == VERDICTS:
        raise ConfigError(f"'{folder}' holds a judge's verdicts: name the run '{folder.parent}'.")
    return "chains" if method == CHAINS else "run"


def _adapter_settings(folder: Path) -> bytes:
    """Return adapter_config.json with the base's name on the hub, where a path of this machine stands."""
    settings = json.loads((folder / CONFIG).read_text(encoding="utf-8"))
    settings["base_model_name_or_path"] = _base(folder)
    return (json.dumps(settings, indent=2) + "\n").encode()


def _base(folder: Path) -> str:
    """Return the base model's name on the hub. Raises :class:`ConfigError` if it is only a folder here."""
    manifest = read_manifest(folder)
    if manifest is None:
        name = str(json.loads((folder / CONFIG).read_text("utf-8")).get("base_model_name_or_path") or "")
    else:
        name = str(manifest["settings"]["base"]["name"])
    name = _HUB_NAMES.get(name, name)
    if not is_repository_name(name) or Path(name).exists():
        raise ConfigError(
            f"the adapter '{folder}' was trained on '{name}', a folder of this machine: others need its name "
            f"on the hub. Write that into its {CONFIG if manifest is None else TRAINING}."
        )
    return name


def _front(config: PushConfig, **fields: Any) -> str:
    """Return the card's head, which the hub reads."""
    licence = {"license": config.license} if config.license else {}
    return f"---\n{yaml.safe_dump({**licence, **fields}, sort_keys=False)}---\n\n"


def _adapter_card(folder: Path, config: PushConfig) -> str:
    base, manifest = _base(folder), read_manifest(folder)
    head = _front(
        config, library_name="peft", base_model=base, pipeline_tag="text-generation",
        tags=["corag", "lora", "retrieval-augmented-generation", "multi-hop-question-answering"],
    )  # fmt: skip
    settings = manifest["settings"] if manifest else {}
    taught = Taught.read(settings)
    named = [] if base in _HUB_NAMES.values() else ["--model.name", base]
    words = ["corag", "ask", "--method", "corag", "--retriever.index", "INDEX", *named]
    words += ["--model.adapter", PREFIX + config.name, *(taught.words() if taught else ())]
    lines = [
        f"# {config.name.partition('/')[2]}",
        "",
        f"A LoRA adapter for [{base}](https://huggingface.co/{base}), trained with corag for "
        f"{'chains of retrieval (CoRAG, Wang et al., 2025)' if taught else 'retrieval-augmented answers'}.",
        "",
        *_block(join(words)),
        *_training_lines(manifest),
    ]
    if config.results:
        table = table_of_runs(Runs(runs=config.results).by_name())
        lines += ["## Results", "", to_markdown(table)]
        lines += ["Made with:", "", *_block(*map(_command, config.results))]
    return head + "\n".join(lines).rstrip() + "\n"


def _training_lines(manifest: Mapping[str, Any] | None) -> list[str]:
    if manifest is None:
        return [f"How it was trained is not recorded (no {TRAINING}).", ""]
    options, result = manifest["settings"].get("options", {}), manifest["result"] or {}
    rows = manifest["settings"].get("rows", ())
    rows = [rows] if isinstance(rows, Mapping) else rows
    figures = {
        "rows of": ", ".join(sorted({task for each in rows for task in each["rows"]["tasks"]})),
        "questions": sum(each.get("questions") or 0 for each in rows),
        "training tokens of the rows": sum(each.get("tokens") or 0 for each in rows),
        "epochs": options.get("epochs"),
        "rows a batch": options.get("batch_size"),
        "learning rate": options.get("learning_rate"),
        "rank": (options.get("lora") or {}).get("rank"),
        "seed": options.get("seed"),
        "steps": result.get("steps"),
        "mean loss": result.get("train_loss"),
        "after": Path((options.get("adapter") or {}).get("name") or "").name,  # not where it lies here
    }
    lines = [f"| {name} | {_figure(value)} |" for name, value in figures.items() if value]
    return ["## Training", "", "| | |", "| --- | --- |", *lines, "", f"All settings: `{TRAINING}`.", ""]


def _figure(value: Any) -> str:
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _chains_card(folder: Path, manifest: Manifest, config: PushConfig) -> str:
    rows = read_chains([folder])
    head = _front(config, tags=["corag", "chain-of-retrieval"], task_categories=["question-answering"])
    lines = [
        f"# {config.name.partition('/')[2]}",
        "",
        f"Chains of sub-queries and sub-answers for {len(rows):,} questions ({manifest.dataset}), sampled "
        "with corag.",
        "",
        *_block(*describe(rows).lines()),
        "Training rows from them, with the index that they were sampled with:",
        "",
        *_block(f"corag rows {PREFIX}{config.name} --retriever.index INDEX --out rows"),
        *_provenance(manifest),
    ]
    return head + "\n".join(lines) + "\n"


def _run_card(folder: Path, manifest: Manifest, config: PushConfig) -> str:
    head = _front(config, tags=["corag", "run"], task_categories=["question-answering"])
    name = PREFIX + config.name
    if manifest.served:
        table = [f"{len(read_rows(folder)):,} questions that a service was asked."]
    else:
        table = [to_markdown(table_of_runs({manifest.method: folder}))]
    lines = [
        f"# {config.name.partition('/')[2]}",
        "",
        f"Answers of the method `{manifest.method}` to questions of {manifest.dataset}, with every step that "
        "led to them, made with corag.",
        "",
        *table,
        "",
        "Read it, compare your own run with it, run it again:",
        "",
        *_block(
            f"corag table {name}",
            f"corag table {name} YOUR_RUN --baseline {config.name.partition('/')[2]}",
            f"corag run --config {name} --questions FILE --retriever.index INDEX",
        ),
        *_provenance(manifest),
    ]
    return head + "\n".join(lines) + "\n"


def _provenance(manifest: Manifest) -> list[str]:
    last = manifest.last
    facts = {
        "questions": f"{Path(last.questions).name}, {manifest.questions['source']}",
        "corpus": last.corpus,
        "model": f"{last.model} {last.adapter}".strip(),
        "seed": manifest.seed,
        "versions": ", ".join(f"{name} {version}" for name, version in last.versions.items()),
    }
    lines = [f"| {name} | {value} |" for name, value in facts.items() if value not in ("", None)]
    return ["| | |", "| --- | --- |", *lines, ""]


def _block(*lines: str) -> list[str]:
    return ["```", *lines, "```", ""]


def _command(run: str) -> str:
    words = Manifest.read(Path(run)).last.record.get("command") or []
    return join([Path(words[0]).name, *words[1:]]) if words else f"# {Path(run).name}: not recorded"


def run_options(manifest: Manifest) -> dict[str, Any]:
    """Return the options of 'corag run' that a run was made with, where they differ from the defaults.

    Questions and index are left out: their paths are those of another machine.
    """
    record, method = manifest.last.record, manifest.method
    options: dict[str, Any] = {"method": [method]}
    if method in METHODS:
        kind: Any = METHODS[method].config
        preset = manifest.options.get("preset")
        base = kind(preset=preset) if preset else kind()
        section = {"preset": preset} if preset and preset != getattr(kind(), "preset", "") else {}
        section |= _differing(manifest.options, base)
        options |= {method: section} if section else {}
    model = _differing(record.get("model") or {}, ModelConfig())
    for private in ("urls", "api_key_variable", "retries", "timeout_s", "batch_size"):
        model.pop(private, None)
    options |= {"model": model} if model else {}
    searched = _differing(record.get("retriever") or {}, RetrieverConfig())
    for private in ("index", "url", *marked(RetrieverConfig, Mark.ENVIRONMENT)):
        searched.pop(private, None)
    searched = {name: value for name, value in searched.items() if not is_address(str(value))}
    options |= {"retriever": searched} if searched else {}
    options |= {"leave_out_self": True} if manifest.settings.get("leave_out_self") else {}
    questions = manifest.questions
    options |= {name: questions[name] for name in ("dataset", "split", "subset") if questions.get(name)}
    options |= {name: value for name in ("seed", "budget") if (value := getattr(manifest, name))}
    return options | {name: record[name] for name in ("scorer", "recall_at") if record.get(name)}


def _differing(record: Mapping[str, Any], base: Any) -> dict[str, Any]:
    return {
        name: value
        for name, value in record.items()
        if hasattr(base, name) and plain(value) != plain(getattr(base, name))
    }
