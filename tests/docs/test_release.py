"""A release publishes only what was built, installed and tested, under the one version that there is."""

from __future__ import annotations

import importlib.util
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.docs.test_pages import ROOT

WORKFLOWS = sorted((ROOT / ".github/workflows").glob("*.yml"))
RELEASE: dict[Any, Any] = yaml.safe_load((ROOT / ".github/workflows/release.yml").read_text())
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
SCRIPT = ROOT / "scripts/check_release.py"
RELEASED = "## [Unreleased]\n\n## [0.2.0] - 2027-01-31\n"


def checked(changelog: str, tag: str = "", **citation: str) -> list[str]:
    specification = importlib.util.spec_from_file_location("check_release", SCRIPT)
    assert specification and specification.loader
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    sentences: list[str] = module.disagreements("0.2.0", changelog, {"version": "0.2.0"} | citation, tag)
    return sentences


def test_what_stands_here_agrees() -> None:
    done = subprocess.run([sys.executable, str(SCRIPT)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    refused = subprocess.run([sys.executable, str(SCRIPT), "v9.9.9"], capture_output=True, text=True)
    assert refused.returncode == 1 and "The tag is v9.9.9" in refused.stderr


def test_a_release_has_one_version_and_one_date() -> None:
    date = {"date-released": "2027-01-31"}
    assert checked(RELEASED, "v0.2.0", **date) == []
    assert checked("## [Unreleased]\n") == [], "before the first release"
    assert len(checked(RELEASED, "v0.2.0")) == 1, "the citation lacks the date"
    assert len(checked(RELEASED, "0.2.0", **date)) == 1
    assert len(checked("## [Unreleased]\n", "v0.2.0")) == 1, "the changelog does not name the release"
    assert len(checked(RELEASED, "v0.2.0", **date, version="0.1.0")) == 1


def test_nothing_is_published_that_was_not_built_and_tried() -> None:
    jobs = RELEASE["jobs"]
    publish = jobs["publish"]
    assert set(publish["needs"]) == jobs.keys() - {"publish"} and publish["if"] == "github.ref_type == 'tag'"
    assert RELEASE[True]["push"] == {"tags": ["v*"]}, "YAML reads 'on' as true"
    # Only the jobs that publish may write, and no password is kept anywhere.
    assert RELEASE["permissions"] == {"contents": "read"}
    writing = {name for name, job in jobs.items() if "write" in str(job.get("permissions", ""))}
    assert writing == {"image", "publish"}
    assert re.findall(r"secrets\.(\w+)", str(jobs)) == ["GITHUB_TOKEN"]
    assert {"test", "install"} <= set(jobs["image"]["needs"]), "an image is pushed once the tests have passed"
    pushes = [step for step in jobs["image"]["steps"] if "docker push" in step.get("run", "")]
    assert pushes and all(step["if"] == "github.ref_type == 'tag'" for step in pushes)


def test_it_is_tried_on_every_python_that_is_promised() -> None:
    pythons = RELEASE["jobs"]["install"]["strategy"]["matrix"]["python"]
    low, high = re.findall(r"3\.(\d+)", PROJECT["requires-python"])
    assert pythons == [f"3.{minor}" for minor in range(int(low), int(high))]


def test_images_have_the_bases_that_are_documented() -> None:
    bases = {each["kind"]: each["base"] for each in RELEASE["jobs"]["image"]["strategy"]["matrix"]["include"]}
    text = (ROOT / "Dockerfile").read_text()
    assert f"ARG BASE={bases['cpu']}\n" in text and f"--build-arg BASE={bases['gpu']}" in text


@pytest.mark.parametrize("file", WORKFLOWS, ids=lambda file: file.name)
def test_workflows_run_scripts_that_are_here(file: Path) -> None:
    jobs = yaml.safe_load(file.read_text())["jobs"]
    steps = [step for job in jobs.values() for step in job["steps"]]
    assert all(("run" in step) != ("uses" in step) for step in steps)
    assert all("timeout-minutes" in job for job in jobs.values())
    commands = " ".join(step.get("run", "") for step in steps)
    for name in re.findall(r"(?:bash|python) ((?:scripts|\.ci)/\S+)", commands):
        assert (ROOT / name).exists(), name
    if program := shutil.which("actionlint"):
        done = subprocess.run([program, str(file)], capture_output=True, text=True)
        assert done.returncode == 0, done.stdout
