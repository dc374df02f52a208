"""What a run was made with: settings, on which its results depend, and its environment, on which they do not.

Settings identify a run: one with others is another run, and the two are never mixed in one folder.
The environment is recorded at every start and may differ between them. Which is which is decided by who
makes the run.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import orjson

from corag.core.errors import DataError, reason
from corag.core.system.files import write_atomically

MANIFEST = "manifest.json"
FORMAT = 1
"""The format of a manifest and of the rows beside it. No other is read."""
# What a folder that holds no answers names where a run names its method; no method may be called so.
CHAINS, VERDICTS = "sample", "judge"
DETERMINISTIC = ":deterministic"
"""Part of the fingerprint of a model whose replies do not depend on what else is in flight."""
SERVICE_SOURCE = "(served)"
"""What a run of served questions has where others name their question file."""


@dataclass(frozen=True, slots=True)
class Start:
    """The environment of one start; what its command does not record is empty.

    ``record``: all as JSON. ``questions``: their file. ``model``, ``adapter``, ``index`` and ``url`` are
    names and places: what they held is among the settings. ``trained_for``: the prompts that the model was
    fine-tuned for, by method. ``corpus``: what the index was made of. ``has_parts``: whether passages of
    its that shared an id are parts of one document, which a gold id means. ``aliases``: the hash of their
    file, "" for none, None if it was not recorded. ``synthetic``: how a program made the questions, "" if
    people asked them. ``asked``: how many questions were to be answered, 0 if that was not recorded.
    """

    record: Mapping[str, Any]
    questions: str = ""
    scorer: str = "auto"
    recall_at: int = 0
    aliases: str | None = None
    model: str = ""
    adapter: str = ""
    trained_for: Mapping[str, Sequence[str]] = field(default_factory=dict)
    index: tuple[str, ...] = ()
    url: tuple[str, ...] = ()
    corpus: str = ""
    has_parts: bool = False
    started: str = ""
    versions: Mapping[str, str] = field(default_factory=dict)
    platform: str = ""
    gpus: tuple[str, ...] = ()
    synthetic: str = ""
    asked: int = 0

    @classmethod
    def from_json(cls, record: Mapping[str, Any]) -> Start:
        """Read what a command recorded."""
        model, retriever, machine = (record.get(name, {}) for name in ("model", "retriever", "machine"))
        nested_values = {
            "model": model.get("name", ""),
            "adapter": model.get("adapter", ""),
            "index": tuple(retriever.get("index", ())),
            "url": tuple(retriever.get("url", ())),
            "platform": machine.get("platform", ""),
            "gpus": tuple(machine.get("gpus", ())),
        }
        names = {each.name for each in fields(cls)}
        values = {name: value for name, value in record.items() if name in names}
        return cls(record, **values | nested_values)

    @property
    def searched_sources(self) -> str:
        """The indexes or servers that were searched."""
        return ", ".join(self.index or self.url)


@dataclass(frozen=True, slots=True)
class Manifest:
    """A run's settings as JSON, which is how they are compared, with properties to read them; its starts."""

    settings: Mapping[str, Any]
    starts: Sequence[Start]

    @classmethod
    def read(cls, folder: Path) -> Manifest:
        """Read a run's manifest, an object with ``settings`` and ``starts``.

        Raises :class:`DataError` if the folder is not a run.
        """
        file = folder / MANIFEST
        try:
            record = json.loads(file.read_text(encoding="utf-8"))
            settings, starts, form = record["settings"], record["starts"], record.get("format")
        except (FileNotFoundError, NotADirectoryError):
            inside = (
                f"Its folders are runs: give {folder}/*/."
                if any(folder.glob(f"*/{MANIFEST}"))
                else "Check the path, or make one with 'corag run'."
            )
            raise DataError(f"'{folder}' is not a run: it has no {MANIFEST}. {inside}") from None
        except (OSError, ValueError, LookupError, TypeError) as error:  # not readable, no JSON, another's
            raise DataError(
                f"'{folder}' is not a run: its {MANIFEST} is no run's ({type(error).__name__}: "
                f"{reason(error)}). Name a folder that 'corag run' made, or restore that file."
            ) from None
        if form != FORMAT:
            raise DataError(
                f"'{file}' has the format {form}, but this version reads format {FORMAT} alone: run again "
                "into another folder."
            )
        return cls(settings, [Start.from_json(start) for start in starts])

    def write(self, folder: Path) -> None:
        """Write the manifest, replacing what is there."""
        text = orjson.dumps(self.to_json(), option=orjson.OPT_INDENT_2).decode()
        write_atomically(folder / MANIFEST, text + "\n")

    def to_json(self) -> dict[str, Any]:
        """Return the manifest as it stands in its file."""
        starts = [start.record for start in self.starts]
        return {"format": FORMAT, "settings": self.settings, "starts": starts}

    @property
    def last(self) -> Start:
        """The last start."""
        return self.starts[-1]

    @property
    def method(self) -> str:
        """The method's name; that of sampled chains and of verdicts is their kind."""
        return str(self.settings["method"])

    @property
    def options(self) -> Mapping[str, Any]:
        """The method's options."""
        return dict(self.settings["options"])

    @property
    def prompts(self) -> Sequence[str]:
        """Name, version and hash of every prompt."""
        return list(self.settings["prompts"])

    @property
    def questions(self) -> Mapping[str, str]:
        """What identifies the questions: source (a file's hash or a hub's name), dataset, split, subset."""
        return dict(self.settings["questions"])

    @property
    def is_served(self) -> bool:
        """Whether the questions came to a service: each run then has its own."""
        return self.questions["source"] == SERVICE_SOURCE

    @property
    def dataset(self) -> str:
        """The format of the questions."""
        return self.questions["dataset"]

    @property
    def seed(self) -> int:
        """The seed that all randomness derives from."""
        return int(self.settings["seed"])

    @property
    def budget(self) -> int:
        """Most tokens that a question may spend, 0 for no limit."""
        return int(self.settings["budget"])

    @property
    def model(self) -> str:
        """The model's fingerprint."""
        return str(self.settings["model"])

    @property
    def may_vary(self) -> bool:
        """Whether equal runs may differ, since the model rounds by what else is in flight."""
        engine = self.model.partition(":")[0]
        return engine in ("vllm", "transformers", "server", "openai") and DETERMINISTIC not in self.model

    @property
    def retriever(self) -> str:
        """The retriever's fingerprint, "" if the method does not search."""
        return str(self.settings["retriever"])

    @property
    def searches(self) -> bool:
        """Whether the method searches."""
        return bool(self.retriever)
