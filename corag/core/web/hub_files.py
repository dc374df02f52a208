"""Files on the Hugging Face hub: data sets listed, measured and fetched into its cache; whole repositories.

They are named ``hub:OWNER/NAME``, with ``@REVISION`` behind it (a branch, tag or commit, such as
``refs/convert/parquet``) and ``/FILES`` (a file, a folder, or a pattern such as ``data/train-*``). Only files
are fetched: no code of a repository runs. HF_HUB_OFFLINE, HF_HOME and HF_ENDPOINT are heeded, as by all tools
of the hub.
"""

from __future__ import annotations

import glob
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache, partial
from pathlib import Path
from typing import Literal, Self

from corag.core.errors import ConfigError, nearest, reason
from corag.core.system.installation import require

PREFIX = "hub:"
_NAME = re.compile(r"hub:([\w.-]+/[\w.-]+)(?:@(refs/(?:convert|pr)/[^/@]+|[^/@]+))?(?:/+(.+?))?/*")
_REPOSITORY = re.compile(r"[\w.-]+/[\w.-]+")
_CACHE_PATH = re.compile(r".*/datasets--([^/]+?)--([^/]+)/snapshots/([^/]+)/(.+)")
_MOST_NAMES = 8  # files that a sentence names
Choose = Callable[[Sequence[str]], list[str]]
"""Returns those of some files, by their names in a repository, that are wanted."""


def is_repository_name(text: str) -> bool:
    """Whether a text is a name on the hub, OWNER/NAME."""
    return _REPOSITORY.fullmatch(text) is not None


def is_hub_name(text: str) -> bool:
    """Whether a text names files of the hub."""
    return text.startswith(PREFIX)


def hub_name(path: str) -> str:
    """Return what a file in the hub's cache is called everywhere; any other path as it is.

    >>> hub_name("/c/hub/datasets--corag--kilt-corpus/snapshots/ab12/data/train-0.parquet")
    'hub:corag/kilt-corpus@ab12/data/train-0.parquet'
    """
    match = _CACHE_PATH.fullmatch(path)
    return f"{PREFIX}{match[1]}/{match[2]}@{match[3]}/{match[4]}" if match else path


@dataclass(frozen=True)
class HubFiles:
    """Files of a data set on the hub.

    ``revision``: "" for the newest. ``pattern``: which of its files, "" for all.
    """

    repository: str
    revision: str = ""
    pattern: str = ""

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read ``hub:OWNER/NAME@REVISION/FILES``. Raises :class:`ConfigError` for anything else."""
        match = _NAME.fullmatch(text)
        if match is None:
            raise ConfigError(
                f"'{text}' names nothing on the hub: expected hub:OWNER/NAME, with @REVISION or /FILES "
                "behind it where they are needed, such as hub:mteb/scidocs/corpus.jsonl."
            )
        return cls(match[1], match[2] or "", match[3] or "")

    def __str__(self) -> str:
        return PREFIX + self.repository + f"@{self.revision}" * bool(self.revision)

    def select(self, names: Sequence[str]) -> list[str]:
        """Return the names that the pattern means: a file, all below a folder, or what fits it.

        Raises :class:`ConfigError` if there are none.
        """
        if not self.pattern:
            return list(names)
        below = f"{self.pattern}/"
        matches = [
            name
            for name in names
            if name == self.pattern or name.startswith(below) or fnmatchcase(name, self.pattern)
        ]
        if not matches:
            hint = nearest(self.pattern, names, otherwise=f"it has {', '.join(names[:_MOST_NAMES])}.")
            raise ConfigError(f"{self} has no files '{self.pattern}': {hint}")
        return matches

    def fetch(self, choose: Choose, report: Callable[[str], None]) -> list[Path]:
        """Return the chosen files; what is not in the hub's cache is fetched, after its size was reported.

        An interrupted download goes on with the file that it was at. Where the hub cannot be reached, or is
        not to be (HF_HUB_OFFLINE), what the cache has is taken.

        Args:
            choose: which of the files that the pattern means.
            report: gets sentences of progress.

        Raises:
            ConfigError: if the data set cannot be found or fetched, or the disk has no room for it.
        """
        require(f"'{self}'", "datasets", otherwise="give the folder of a copy")
        from huggingface_hub import HfApi, snapshot_download

        revision = self.revision or None
        fetch = partial(snapshot_download, self.repository, repo_type="dataset", revision=revision)
        try:
            info = HfApi().dataset_info(self.repository, revision=revision, files_metadata=True, timeout=30)
            sizes = {each.rfilename: each.size or 0 for each in info.siblings or ()}
        except Exception:  # noqa: BLE001 - offline, no network, a proxy: whatever the client makes of it
            with _asking_hub(str(self)):  # for no file at all: a folder will do that has some of them only
                folder = Path(fetch(allow_patterns=["\n"]))
            files = [file for file in folder.rglob("*") if file.is_file()]
            sizes = {file.relative_to(folder).as_posix(): file.stat().st_size for file in files}
        names = choose(self.select(sorted(sizes)))
        size = file_size(sum(sizes[name] for name in names))
        report(f"{self}: {len(names):,} files, {size}; what is not in the hub's cache is fetched")
        with _asking_hub(str(self)):
            folder = Path(fetch(allow_patterns=list(map(glob.escape, names))))
        return [folder / name for name in names]


@contextmanager
def _asking_hub(name: str) -> Iterator[None]:
    """Around what fetches ``name`` from the hub. Raises :class:`ConfigError` if that fails."""
    try:
        yield
    except Exception as error:  # noqa: BLE001 - no network, no such name, a full disk: as above
        raise ConfigError(
            f"{name} is not on this machine and could not be fetched ({reason(error)}). Check the name and "
            "the network, and give the same command again, which goes on; for one that is gated or private, "
            "log in with `hf auth login`. Without a network bring the hub's cache along from another machine "
            "(HF_HOME), or give the folder of a copy."
        ) from None


@cache
def fetch_folder(text: str, kind: Literal["dataset", "model"]) -> Path:
    """Return the folder of a whole repository, ``hub:OWNER/NAME`` with ``@REVISION`` where one is meant.

    What ``corag push`` shared is read with it. Without a network what the hub's cache has is taken.

    Raises :class:`ConfigError` if it can neither be fetched nor is in the cache.
    """
    from huggingface_hub import snapshot_download

    name = HubFiles.parse(text)
    with _asking_hub(f"the {kind} {name}"):
        return Path(snapshot_download(name.repository, repo_type=kind, revision=name.revision or None))


def local_folder(path: str) -> Path:
    """Return a path, or the folder of a shared one, ``hub:OWNER/NAME``. Raises as :func:`fetch_folder`."""
    return fetch_folder(path, "dataset") if is_hub_name(path) else Path(path)


def file_size(count: int) -> str:
    """Return a number of bytes for people.

    >>> file_size(12_345_000_000), file_size(4_200)
    ('12.3 GB', '0.0 MB')
    """
    return f"{count / 1e9:,.1f} GB" if count >= 1e9 else f"{count / 1e6:,.1f} MB"
