"""A release publishes only what was built, installed and tested, under the one version that there is."""

from __future__ import annotations

import re
import shutil
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.docs.test_pages import ROOT

WORKFLOWS = sorted((ROOT / ".github/workflows").glob("*.yml"))
RELEASE: dict[Any, Any] = yaml.safe_load((ROOT / ".github/workflows/release.yml").read_text())
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def test_the_citation_has_the_packages_version() -> None:
    assert yaml.safe_load((ROOT / "CITATION.cff").read_text())["version"] == PROJECT["version"]


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
