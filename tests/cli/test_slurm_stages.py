"""The job scripts of CoRAG's stages under SLURM: what each asks for, which it waits for, and how it ends."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.cli.test_install import write_program
from tests.cli.test_recipes import ROOT

pytestmark = pytest.mark.slow

RECIPE = ROOT / "scripts/recipes/slurm_stages.sh"
STAGES = "index sample rows train run table".split()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with the named files and a corag that notes what it is called with."""
    for name in ("train.jsonl", "test.jsonl", "corpus.jsonl"):
        (tmp_path / name).touch()
    write_program(tmp_path / ".venv/bin/corag", f'echo "$*" >>{tmp_path}/noted')
    return tmp_path


def stages(folder: Path, *names: str, **more: str) -> subprocess.CompletedProcess[str]:
    files = {"QUESTIONS": "train.jsonl", "TEST": "test.jsonl", "CORPUS": "corpus.jsonl"}
    environment = os.environ | files | {"CORAG_ROOT": str(folder), "TRAIN": _config("1gpu_qlora")} | more
    environment["PATH"] = f"{folder}/bin:{environment['PATH']}"
    command = ["bash", str(RECIPE), *names]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=600)


def _config(name: str) -> str:
    return str(ROOT / f"training/configs/{name}.yaml")


def test_a_dry_run_checks_every_command_with_the_real_options(folder: Path) -> None:
    corag = folder / ".venv/bin/corag"
    corag.unlink()
    program = "from corag.cli.main import main; raise SystemExit(main())"
    write_program(corag, f"PYTHONPATH='{ROOT}' exec {sys.executable} -c '{program}' \"$@\"")
    done = stages(folder, DRY="1", SHARDS="4")
    assert done.returncode == 0, done.stderr
    assert [line.split(":")[0] for line in done.stdout.splitlines()] == [
        f"results/slurm/jobs/{stage}.sbatch" for stage in STAGES
    ]
    assert "4 h, after sample" in done.stdout and "1 GPU, array of 4" in done.stdout
    wrong = stages(folder, "sample", DRY="1", OPTIONS="--corag.max_hosp 3")
    assert wrong.returncode == 2 and "did you mean 'corag.max_hops'?" in wrong.stderr


def test_official_files_are_named_in_every_command_that_reads_them(folder: Path) -> None:
    assert stages(folder, DRY="1", FORMAT="2wikimultihopqa", DATASET="2wikimultihopqa").returncode == 0
    commands = {line.split()[0]: line for line in (folder / "noted").read_text().splitlines()}
    assert "corpus.jsonl --format 2wikimultihopqa --out" in commands["index"]
    for stage, file in (("sample", "train.jsonl"), ("run", "test.jsonl")):
        assert f"--questions {file} --dataset 2wikimultihopqa --" in commands[stage]


def test_every_job_asks_for_what_it_needs(folder: Path) -> None:
    assert stages(folder, DRY="1", GPUS_PER_ENGINE="2").returncode == 0
    asked = {}
    for stage in STAGES:
        text = (folder / f"results/slurm/jobs/{stage}.sbatch").read_text()
        asked[stage] = re.findall(r"^#SBATCH --(\S+?)[= ](\S+)", text, re.MULTILINE)
        names = {name for name, _ in asked[stage]}
        assert {"cpus-per-task", "mem", "time", "signal", "output"} <= names and "--requeue" in text
    assert ("gpus-per-node", "2") in asked["sample"] and ("array", "1-8") in asked["run"]
    assert not any(
        name == "gpus-per-node" for stage in ("index", "rows", "table") for name, _ in asked[stage]
    )
    noted = (folder / "noted").read_text()
    assert noted.count("--model.tensor_parallel 2") == 2, "sampling and decoding"
    assert "rows results/slurm/chains.shard-1-of-8 " in noted


@pytest.mark.parametrize(("more", "seconds"), [({}, "300"), ({"GRACE": "900"}, "900")])
def test_jobs_have_time_to_write_a_checkpoint(folder: Path, more: dict[str, str], seconds: str) -> None:
    assert stages(folder, "train", DRY="1", **more).returncode == 0
    script = (folder / "results/slurm/jobs/train.sbatch").read_text()
    assert f"#SBATCH --signal=B:USR1@{seconds}\n" in script


def test_each_job_waits_for_the_one_before(folder: Path) -> None:
    write_program(folder / "bin/sbatch", f'echo "$*" >>{folder}/submitted; wc -l <{folder}/submitted')
    done = stages(folder, SBATCH="--account=me")
    assert done.returncode == 0, done.stderr
    submitted = (folder / "submitted").read_text().splitlines()
    assert [re.findall(r"afterok:(\d+)", line) for line in submitted] == [
        [],
        ["1"],
        ["2"],
        ["3"],
        ["4"],
        ["5"],
    ]
    assert all("--account=me" in line for line in submitted) and not (folder / "noted").exists()


def test_a_job_at_its_time_limit_stops_its_command_and_is_queued_again(folder: Path) -> None:
    assert stages(folder, "rows", DRY="1").returncode == 0
    write_program(
        folder / ".venv/bin/corag",
        f'trap "echo stopped >>{folder}/noted; exit 143" TERM; touch {folder}/started; sleep 600 & wait',
    )
    write_program(folder / "bin/scontrol", f'echo "$*" >>{folder}/noted; exit 1')
    (folder / "noted").unlink()
    environment = os.environ | {"SLURM_JOB_ID": "17", "PATH": f"{folder}/bin:{os.environ['PATH']}"}
    job = subprocess.Popen(["bash", "results/slurm/jobs/rows.sbatch"], cwd=folder, env=environment)
    until = time.monotonic() + 200
    while not (folder / "started").exists():
        assert job.poll() is None and time.monotonic() < until
        time.sleep(0.1)
    job.send_signal(signal.SIGUSR1)
    assert job.wait(200) == 1
    assert (folder / "noted").read_text() == "stopped\nrequeue 17\n"
