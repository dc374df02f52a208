"""Recipes find the GPUs that CUDA would, and batch jobs the programs of the installation."""

from __future__ import annotations

import importlib
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import get_type_hints

import pytest

from benchmarks.__main__ import BENCHES
from corag.cli.commands import load_command
from corag.core.options.names import options_of, resolve_alias
from tests.cli.test_install import write_program

ROOT = Path(__file__).parents[2]
CHECK = ROOT / "scripts/recipes/gpu_check.sh"
BATCH = ROOT / "scripts/recipes/batch_inference.sh"
WHOLE = "GPU 0: NVIDIA H100 (UUID: GPU-aa)\nGPU 1: NVIDIA H100 (UUID: GPU-bb)"
CUT = """GPU 0: NVIDIA A100 (UUID: GPU-aa)
  MIG 3g.20gb     Device  0: (UUID: MIG-11)
  MIG 3g.20gb     Device  1: (UUID: MIG-22)
GPU 1: NVIDIA A100 (UUID: GPU-bb)"""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A repository whose corag notes what it is called with, and on which GPUs."""
    (tmp_path / "scripts/recipes").mkdir(parents=True)
    shutil.copy(BATCH, tmp_path / "scripts/recipes")
    write_program(
        tmp_path / ".venv/bin/corag",
        f'echo "${{CUDA_VISIBLE_DEVICES-unset}}: $*" >>{tmp_path}/noted\n'
        """echo '{"runs": {"m": {"folder": "runs/m"}}, "max_failed": 0}'""",
    )
    return tmp_path


def batch(root: Path, visible: str | None, listed: str = "", **more: str) -> subprocess.CompletedProcess[str]:
    """Run the recipe; ``listed``: what nvidia-smi says."""
    write_program(root / "bin/nvidia-smi", f"[ -n '{listed}' ] && echo '{listed}'")
    kept = {name: value for name, value in os.environ.items() if name != "CUDA_VISIBLE_DEVICES"}
    environment = kept | more | {"PATH": f"{root}/bin:{os.environ['PATH']}", "LOGS": str(root / "logs")}
    if visible is not None:
        environment["CUDA_VISIBLE_DEVICES"] = visible
    command = ["bash", str(root / "scripts/recipes/batch_inference.sh"), "--config", "my.yaml"]
    return subprocess.run(command, env=environment, cwd=root, capture_output=True, text=True, timeout=300)


@pytest.mark.parametrize(
    ("visible", "listed", "taken"),
    [
        ("2,3", WHOLE, ["2", "3"]),
        ("MIG-11,MIG-22", CUT, ["MIG-11", "MIG-22"]),
        ("1,-1,0", WHOLE, ["1"]),
        ("-1", WHOLE, ["-1"]),
        ("", WHOLE, [""]),
        (None, WHOLE, ["0", "1"]),
        (None, CUT, ["1", "MIG-11", "MIG-22"]),
        (None, "", ["unset"]),
    ],
)
def test_there_is_a_shard_for_each_gpu_that_cuda_sees(
    visible: str | None, listed: str, taken: list[str], root: Path
) -> None:
    done = batch(root, visible, listed)
    assert done.returncode == 0, done.stderr
    noted = (root / "noted").read_text().splitlines()
    assert sorted(line.partition(":")[0] for line in noted if " run " in line) == taken
    assert {re.findall(r"--shard \d+/(\d+)", line)[0] for line in noted if " run " in line} == {
        str(len(taken))
    }
    assert "table runs/m --join" in noted[-1]


@pytest.mark.parametrize("visible", ["NoDevFiles", "-1", ""])
def test_no_gpu_is_not_counted_as_one(visible: str, root: Path) -> None:
    assert batch(root, visible, WHOLE, AT_ONCE="2").returncode == 0
    noted = (root / "noted").read_text()
    assert f"{visible}: run --config my.yaml --shard 1/2" in noted and "--shard 2/2" in noted


def test_a_job_asks_for_cores_and_memory(root: Path) -> None:
    for page in ("scripts/recipes/batch_inference.sh", "docs/guides/clusters.md"):
        commands = re.findall(r"sbatch --array.*", (ROOT / page).read_text())
        assert commands and all("--cpus-per-task=" in each and "--mem=" in each for each in commands), page
    environment = os.environ | {"DRY": "1", "NODES": "2", "SLURM_CPUS_ON_NODE": "64"}
    command = ["bash", str(ROOT / "scripts/recipes/slurm_ray.sh"), "run", "--config", "my.yaml"]
    planned = subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout
    assert "--cpus-per-task 64 --cpu-bind none --mem 0 ray symmetric-run" in planned
    cluster = re.findall(r"symmetric-run --address (\S+)", planned)
    assert re.findall(r"--workers.address (\S+)", planned) == cluster, "else one node of the job works"


def test_engines_of_several_gpus(root: Path) -> None:
    assert batch(root, "4,5,6,7", GPUS_PER_ENGINE="2").returncode == 0
    noted = (root / "noted").read_text()
    assert "4,5: run --model.tensor_parallel 2" in noted and "6,7: run --model.tensor_parallel 2" in noted
    for visible, said in (("1,-1,0", "the GPUs are only 1: give a smaller one"), ("MIG-11,MIG-22", "(MIG)")):
        refused = batch(root, visible, GPUS_PER_ENGINE="2")
        assert refused.returncode == 2 and said in refused.stderr


@pytest.mark.parametrize("page", ["scripts/recipes/batch_inference.sh", "docs/guides/clusters.md"])
def test_a_batch_job_finds_the_programs_of_the_installation(page: str, root: Path) -> None:
    """Kernels are compiled by programs that lie beside corag."""
    write_program(root / ".venv/bin/ninja", f"echo compiled >>{root}/noted")
    write_program(root / ".venv/bin/corag", 'ninja && echo "$*"')
    wrapped = re.findall(r"sbatch .*?--wrap '(.*?)'", (ROOT / page).read_text(), re.DOTALL)[0]
    job = re.sub(r"\n#", "\n", wrapped)
    environment = os.environ | {"SLURM_ARRAY_TASK_ID": "3"}
    done = subprocess.run(["sh", "-c", job], cwd=root, env=environment, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "run --config my.yaml --shard 3/8\n"), done.stderr
    assert (root / "noted").read_text() == "compiled\n"


def check(
    root: Path, *steps: str, corag: str = "exit 3"
) -> tuple[subprocess.CompletedProcess[str], list[dict]]:
    """Run the steps of gpu_check.sh without a GPU; ``corag``: what that program does."""
    shutil.copy(CHECK, root / "scripts/recipes")
    shutil.copy(BATCH, root / "scripts/recipes")
    write_program(root / ".venv/bin/corag", corag)
    write_program(root / ".venv/bin/python", f'exec {sys.executable} "$@"')
    (root / "torch.py").write_text("class cuda: device_count = staticmethod(lambda: 0)")
    command = ["bash", str(root / "scripts/recipes/gpu_check.sh"), *steps]
    environment = os.environ | {"PYTHONPATH": str(root), "OUT": str(root / "checked")}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
    return done, [json.loads(line) for line in done.stdout.splitlines()]


def test_a_step_that_fails_stops_no_other_and_is_seen_at_the_end(root: Path) -> None:
    done, lines = check(root, "batch", "decode", corag='echo "corag: no disk is left." >&2; exit 3')
    assert done.returncode == 1
    assert [line["status"] for line in lines] == ["failed", "skipped"]
    assert "exit status 3" in lines[0]["reason"] and "corag: no disk is left." in lines[0]["reason"]


def test_a_dry_run_prints_every_step_with_options_that_there_are() -> None:
    names = re.findall(r"^steps=\((.*)\)$", CHECK.read_text(), re.MULTILINE)[0].split()
    environment = os.environ | {"DRY": "1"}
    done = subprocess.run(["bash", str(CHECK)], env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert re.findall(r"^step_(\w+) \(\)", done.stdout, re.MULTILINE) == names
    assert set(re.findall(r"{ bench (\w+); }", CHECK.read_text())) <= set(BENCHES)
    text = CHECK.read_text()
    head = {word for line in text.split("set -euo")[0].splitlines() for word in re.findall(r"\w+", line)}
    assert set(names) <= head, "the head says of each step what it checks"
    for command, words in re.findall(
        r"corag (ask|run|world|index|sample|rows|train) (.*)", CHECK.read_text()
    ):
        module = load_command(command)
        options, *_ = get_type_hints(module.main).values()
        known = dict(options_of(options))
        for name in re.findall(r"--([a-z_.]+)", words):
            assert resolve_alias(name, options) in known, f"corag {command} --{name}"


def test_what_scripts_import_of_corag_is_there() -> None:
    """Python within a shell's script is seen by no linter, and runs where nobody tries it before."""
    pattern = re.compile(r"from ((?:corag|eval|retrieval|training|ircot)[\w.]*) import (\w+(?:, \w+)*)")
    imports = [match for file in ROOT.glob("scripts/**/*.sh") for match in pattern.findall(file.read_text())]
    assert len(imports) > 4
    for module, names in imports:
        for name in names.split(", "):
            assert hasattr(importlib.import_module(module), name), f"{module} has no {name}"
