"""Corpora in the layouts of datasets, known to ``corag index --format`` beside the plain ones of retrieval.

Importing this module registers them, which every process that reads corpora has to do once
(``eval.experiment.extensions`` does it for the commands).
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from corag.core.errors import CoragError
from corag.core.own_objects import is_user_object
from corag.core.runs.manifest import Start
from corag.core.web.hub_files import HubFiles, is_hub_name
from eval.datasets.paragraphs import read_pooled
from eval.datasets.registry import CORPUS_FORMATS, DATASETS
from retrieval.corpora.formats import register_format
from retrieval.index.aliases import Aliases
from retrieval.index.manifest import IndexManifest, read_manifest

_MAX_FILES = 3  # of a corpus of more files they are counted
PAGED_FORMATS = frozenset(name for name, form in CORPUS_FORMATS.items() if form.has_pages)
"""Formats whose passage ids begin with a page's ``wikipedia_id``."""
PAGES = (
    "Pages are read from passage ids: right only if these begin with the wikipedia_id (corag index --format "
    "kilt)."
)
"""What a table says of measures by page over a corpus of another format."""
POOLED_FORMATS = frozenset(name for name, each in DATASETS.items() if each.paragraphs is not None)
"""Formats of question files whose own paragraphs are the corpus."""
POOLED_NOTE = ", pooled-distractor: the questions' own paragraphs"


def index_manifest(index: str) -> IndexManifest | None:
    """Return the manifest of an index folder, None if it has none that can be read."""
    try:
        return read_manifest(Path(index))
    except CoragError:
        # The index has been damaged since it was searched. That is no reason to withhold a table.
        return None


def index_aliases(start: Start) -> Aliases:
    """Return what gold ids mean in the indexes of a run, as it recorded that: they may be elsewhere by now.

    Those of passages with the same text stand in its rows as the index calls them.
    """
    return Aliases(numbered=start.has_parts, titled=any(map(is_user_object, start.index)))


def describe_corpora(indexes: Sequence[str]) -> str:
    """Return the corpora of some indexes with their numbers of passages; "" if no folder has a manifest.

    One that was pooled from questions is called by the field's name for it: every question's passages are in
    it, so its figures are others than those of a whole Wikipedia.
    """
    descriptions = []
    for manifest in filter(None, map(index_manifest, indexes)):
        paths = [file.path for file in manifest.settings.corpus]
        repositories = dict.fromkeys(
            f"hub:{HubFiles.parse(path).repository}" for path in paths if is_hub_name(path)
        )
        others = [Path(path) for path in paths if not is_hub_name(path)]
        files = ", ".join([*repositories, *([_name_files(others)] if others else [])])
        pooled_note = POOLED_NOTE if manifest.settings.detail("format") in POOLED_FORMATS else ""
        descriptions.append(f"{files} ({manifest.passages:,} passages{pooled_note})")
    return " and ".join(dict.fromkeys(descriptions))


def _name_files(files: Sequence[Path]) -> str:
    """Name a few files, or count them and name the folder that they lie in.

    >>> _name_files([Path("docs/a.md"), Path("docs/b.md")])
    'a.md, b.md'
    >>> _name_files([Path(f"docs/{n}/a.md") for n in range(61)])
    '61 files of docs'
    """
    if len(files) <= _MAX_FILES:
        return ", ".join(file.name for file in files)
    try:
        folder = Path(os.path.commonpath(files)).name
    except ValueError:  # some are absolute, others are not
        folder = ""
    return f"{len(files):,} files{f' of {folder}' if folder else ''}"


for _form in CORPUS_FORMATS.values():
    register_format(_form.name, _form.read_passages)
for _dataset in DATASETS.values():
    if _dataset.paragraphs is not None:  # a question file's own paragraphs, pooled into one corpus
        _reader = partial(read_pooled, paragraphs=_dataset.paragraphs, read_file=_dataset.read_file)
        register_format(_dataset.name, _reader, marks=_dataset.marks)
