"""The lock files are whole, and installing ends with a torch that works on this machine, or says why not."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from packaging.markers import Marker
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
TORCH = """
class version: cuda = {cuda!r}
class cuda: is_available = staticmethod(lambda: {available})
"""


def pinned(lock: Path, python: str = "3.11") -> dict[str, str]:
    """Return the versions of a lock file by package, for a version of Python."""
    versions = {}
    for line in lock.read_text().splitlines():
        text, _, marker = line.partition(" ; ")
        if not line.startswith("#") and (not marker or Marker(marker).evaluate({"python_version": python})):
            name, version = re.split("={2,3}", text)
            versions[canonicalize_name(name)] = version
    return versions


@pytest.mark.parametrize("python", ["3.11", "3.12", "3.13"])
@pytest.mark.parametrize(("lock", "extra"), [("cpu", "cpu"), ("gpu", "gpu")])
def test_what_the_project_asks_for_is_locked(lock: str, extra: str, python: str) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    versions = pinned(ROOT / f"requirements/{lock}.lock", python)
    asked = requirements(f"corag[{extra},dev,pyserini]", project["optional-dependencies"])
    for wanted in [*map(Requirement, project["dependencies"]), *asked]:
        assert wanted.specifier.contains(versions[canonicalize_name(wanted.name)]), wanted


def requirements(line: str, extras: dict[str, list[str]]) -> Iterator[Requirement]:
    """Yield what a line asks for, and in the place of our own extras what these do."""
    wanted = Requirement(line)
    if wanted.name != "corag":
        yield wanted
    for each in wanted.extras if wanted.name == "corag" else ():
        for inner in extras[each]:
            yield from requirements(inner, extras)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A repository whose .venv has a python that installs nothing and a torch of the test's own making."""
    (tmp_path / "scripts").mkdir()
    shutil.copy(ROOT / "scripts/install.sh", tmp_path / "scripts")
    shutil.copytree(ROOT / "requirements", tmp_path / "requirements")
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    write_program(
        tmp_path / ".venv/bin/python",
        f'[ "$1" != -m ] || exit 0\nPYTHONPATH={tmp_path} exec {sys.executable} "$@"',
    )
    return tmp_path


def write_program(file: Path, script: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(f"#!/bin/sh\n{script}\n")
    file.chmod(0o755)


@pytest.mark.parametrize(
    ("kind", "cuda", "available", "driver", "status", "said"),
    [
        ("", "13.0", True, "580.65.06", 0, "corag: installed in"),
        ("1", None, False, "580.65.06", 2, "torch is a build for CPUs"),
        (
            "1",
            "13.0",
            False,
            "550.54.14",
            2,
            "wants NVIDIA driver 580 (R580) or newer; this machine's is 550.54.14",
        ),
        ("0", None, False, "550.54.14", 0, "corag: installed in"),
    ],
)
def test_installing_for_gpus_ends_with_a_torch_that_finds_them(
    root: Path, kind: str, cuda: str | None, available: bool, driver: str, status: int, said: str
) -> None:
    (root / "torch.py").write_text(TORCH.format(cuda=cuda, available=available))
    write_program(root / "bin/nvidia-smi", f"[ -n '{driver}' ] && echo {driver}")
    environment = os.environ | {"CORAG_GPU": kind, "PATH": f"{root}/bin:{os.environ['PATH']}"}
    done = subprocess.run(
        ["bash", str(root / "scripts/install.sh")], env=environment, capture_output=True, text=True
    )
    assert done.returncode == status, done.stderr
    assert said in done.stderr
    assert (root / ".venv/corag-lock").exists() == (status == 0), (
        "a torch that does not work is not remembered"
    )
    assert f"requirements/{'cpu' if kind == '0' else 'gpu'}.lock" in done.stderr


def install(root: Path, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Install where there is no GPU, as on a cluster's login node."""
    write_program(root / "bin/nvidia-smi", "exit 9")
    (root / "torch.py").write_text(TORCH.format(cuda="13.0", available=False))
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("CORAG")}
    return subprocess.run(
        ["bash", str(root / "scripts/install.sh"), *words],
        env=inherited | {"PATH": f"{root}/bin:{os.environ['PATH']}"} | environment,
        capture_output=True,
        text=True,
    )


def test_on_a_login_node_it_says_what_it_takes_and_keeps_what_it_is_told(root: Path) -> None:
    silently = install(root)
    assert "no GPU is seen here, so this is an installation for CPUs" in silently.stderr
    assert "bash scripts/install.sh --gpu" in silently.stderr and "cpu.lock" in silently.stderr
    told = install(root, "--gpu")
    assert told.returncode == 0 and "gpu.lock" in told.stderr and "no GPU is seen" not in told.stderr
    again = install(root)  # as recipes do
    assert (again.returncode, again.stderr) == (0, ""), "the build for GPUs is kept"
    assert "cpu.lock" in install(root, "--cpu").stderr
    assert "no GPU is seen" not in install(root, "--cpu").stderr


def python_that_makes(root: Path, venv: str) -> str:
    """Return a program that fits, whose 'python -m venv' takes a minute less: ``venv`` is what it runs."""
    program = root / "made/python3.12"
    write_program(program, f'[ "$1" = -m ] || exit 0\n{venv}')
    return str(program)


def test_an_environment_without_pip_is_made_anew(root: Path) -> None:
    """As Ubuntu's python3.11 leaves it where python3.11-venv is not installed."""
    shutil.move(root / ".venv", root / "whole")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(root / ".venv")], check=True)
    remade = python_that_makes(root, f"rm -rf .venv && cp -r {root}/whole .venv")
    done = install(root, CORAG_PYTHON=remade)
    assert done.returncode == 0, done.stderr
    shutil.rmtree(root / ".venv")
    broken = python_that_makes(root, f"{sys.executable} -m venv --without-pip .venv; exit 1")
    done = install(root, CORAG_PYTHON=broken, PATH=bare_path(root))
    assert done.returncode == 2 and "python3-venv" in done.stderr


def bare_path(root: Path) -> str:
    """Return a PATH with what the script calls, and neither Python nor uv."""
    for name in "bash sh cat cut cp chmod dirname grep head mkdir rm sha256sum tail".split():
        (root / "bare").mkdir(exist_ok=True)
        found = shutil.which(name)
        assert found
        (root / "bare" / name).exists() or (root / "bare" / name).symlink_to(found)
    write_program(root / "bare/nvidia-smi", "exit 9")
    return str(root / "bare")


def test_without_a_python_that_fits_uv_is_installed_which_brings_one(root: Path) -> None:
    shutil.move(root / ".venv", root / "whole")
    search = bare_path(root)
    assert "was not found: install one" in install(root, PATH=search).stderr, "nothing to install uv with"
    brought = python_that_makes(root, f"cp -r {root}/whole .venv")
    write_program(root / "uv", f'[ "$2" != find ] || echo {brought}')
    pip = f"mkdir -p {root}/user/bin && cp {root}/uv {root}/user/bin/uv"
    # Ubuntu 22.04's own: 3.10, with pip.
    write_program(
        root / "bare/python3",
        f'case "$*" in "-m pip"*) {pip} ;; "-m site"*) echo {root}/user ;; *) exit 1 ;; esac',
    )
    done = install(root, PATH=search)
    assert done.returncode == 0, done.stderr
