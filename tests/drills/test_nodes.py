"""Several nodes: the SLURM recipe's own command line over a cluster of two raylets on this machine."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from corag.core.runs.manifest import Manifest
from tests.drills.answering import ROOT

ray = pytest.importorskip("ray", reason="Ray is an extra: pip install 'corag[ray]'")
pytestmark = [pytest.mark.slow, pytest.mark.drill]

# What 'ray symmetric-run' does on two nodes, both of them here. It itself takes every address of this machine
# for the first node's, and ends with 'ray stop', which ends the clusters of others, too.
RAY = """#!/usr/bin/env bash
[ "$1" = symmetric-run ] || exec "$REAL_RAY" "$@"
address=$3
while [ "$1" != -- ]; do shift; done
shift
"$REAL_RAY" start --head --node-ip-address="${address%%:*}" --port="${address##*:}" --num-cpus 1 \\
    --include-dashboard=false --block >>"$NOTED" 2>&1 &
nodes=($!)
until "$REAL_RAY" status --address "$address" >>"$NOTED" 2>&1; do sleep 1; done
"$REAL_RAY" start --address "$address" --num-cpus 1 --block >>"$NOTED" 2>&1 &
nodes+=($!)
until "$REAL_RAY" status --address "$address" | grep -q '/2.0 CPU'; do sleep 1; done
"$@"
status=$?
kill "${nodes[@]}"
wait "${nodes[@]}" 2>>"$NOTED"
exit $status
"""
SRUN = """#!/usr/bin/env bash
while [ "$1" != ray ]; do shift; done
exec "$@"
"""
MODEL = """
import os, time

def reply(prompt):
    with open("workers.txt", "a") as file:
        file.write(f"{os.getpid()}\\n")
    time.sleep(0.2)
    return "Oslo"
"""


def test_every_node_of_a_slurm_job_answers_questions(tmp_path: Path) -> None:
    ip = ray.util.get_node_ip_address()
    for name, script in {"ray": RAY, "srun": SRUN, "hostname": f"#!/bin/sh\necho {ip}\n"}.items():
        (tmp_path / name).write_text(script)
        (tmp_path / name).chmod(0o755)
    (tmp_path / "model.py").write_text(MODEL)
    lines = [{"id": f"q{n}", "question": f"Where is town {n}?", "answers": ["Oslo"]} for n in range(40)]
    (tmp_path / "q.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    programs = Path(sys.executable).parent
    (tmp_path / ".venv/bin").mkdir(parents=True)
    (tmp_path / ".venv/bin/ray").symlink_to(tmp_path / "ray")
    (tmp_path / ".venv/bin/corag").symlink_to(programs / "corag")
    environment = os.environ | {
        "PATH": os.pathsep.join([str(tmp_path), str(programs), os.environ["PATH"]]),
        "CORAG_ROOT": str(tmp_path), "REAL_RAY": str(programs / "ray"), "NODES": "2",
        "GPUS_PER_ENGINE": "0", "NOTED": str(tmp_path / "noted"),
        "SLURM_JOB_ID": str(os.getpid() % 1000),
    }  # fmt: skip
    environment.pop("RAY_ADDRESS", None)
    command = ["bash", str(ROOT / "scripts/recipes/slurm_ray.sh"), "run", "--method", "closed_book"]
    options = ["--model", "model.py:reply", "--questions", "q.jsonl", "--out", "out", "--batch_size", "4"]
    done = subprocess.run(
        [*command, *options], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stdout + done.stderr + (tmp_path / "noted").read_text()
    workers = Manifest.read(tmp_path / "out/closed_book").last.record["workers"]
    assert len(set((tmp_path / "workers.txt").read_text().split())) == 2, "each answers some"
    assert workers["count"] == 2 and [node["workers"] for node in workers["nodes"]] == [1, 1]
