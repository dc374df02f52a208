"""A killed run leaves no engine behind, and Lucene survives vLLM's libraries in the same process."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import vllm.utils.cpu_resource_utils as resources
from vllm import envs

from corag.core.system.process import OWNER
from corag.generation.vllm_start import CPU_KV_CACHE_GB, _set_environment, cpu_kv_cache_gb

WORKER = """
import time
from corag.core.system.process import end_with_owner
end_with_owner()
print("up", flush=True)
time.sleep(60)
"""


@pytest.mark.parametrize("while_starting", [True, False])
def test_a_worker_ends_with_the_process_that_opened_its_engine(while_starting: bool) -> None:
    owner = subprocess.Popen(["sleep", "60"])
    if while_starting:
        owner.kill()
        owner.wait()
    environment = os.environ | {OWNER: str(owner.pid)}
    worker = subprocess.Popen([sys.executable, "-c", WORKER], env=environment, stdout=subprocess.PIPE)
    assert worker.stdout is not None
    if not while_starting:
        assert worker.stdout.readline() == b"up\n" and worker.poll() is None
        owner.kill()
        owner.wait()
    assert worker.wait(30) == -signal.SIGKILL
    assert worker.stdout.read() == b""
    worker.stdout.close()


STARTING = """
import multiprocessing, os, signal, time
from corag.core.system.process import mark_processes
from corag.generation.vllm_processes import OwnerWatch

def engine(vllm_config):
    "One that waits for its owner's first word, and then starts workers."
    time.sleep(300)

if __name__ == "__main__":
    mark_processes()
    from vllm.config import VllmConfig
    config = VllmConfig(additional_config={"corag": OwnerWatch("owner")})
    config.compute_hash()  # a part of it must be something that JSON knows
    process = multiprocessing.get_context("spawn").Process(target=engine, args=(config,))
    process.start()  # returns when the configuration is written to it
    print(process.pid, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.drill
def test_an_engine_ends_whose_owner_was_killed_before_they_spoke(tmp_path: Path) -> None:
    """vLLM's engine waits five minutes for it, and loads none of our plug-ins meanwhile."""
    file = tmp_path / "owner.py"
    file.write_text(STARTING)
    owner = subprocess.run([sys.executable, str(file)], stdout=subprocess.PIPE, text=True, timeout=300)
    assert owner.returncode == -signal.SIGKILL  # and so the engine has let go of the pipe, too
    engine = Path(f"/proc/{owner.stdout.strip()}/stat")
    assert not engine.exists() or engine.read_text().rpartition(")")[2].split()[0] == "Z"


ADOPTED = """
import ctypes, multiprocessing, os, signal, subprocess, sys, time
from corag.core.system.process import end_with_owner, mark_processes

def engine(up):
    "An engine that is its own worker, as vLLM's is with one GPU."
    owner = os.getppid()
    if sys.argv[1] == "running":
        end_with_owner()
    up.set()
    while os.getppid() == owner:
        time.sleep(0.01)
    end_with_owner()
    time.sleep(60)

if __name__ == "__main__":
    if sys.argv[2:] == ["owner"]:
        mark_processes()
        context = multiprocessing.get_context("spawn")
        up = context.Event()
        context.Process(target=engine, args=(up,)).start()
        up.wait()
        os.kill(os.getpid(), signal.SIGKILL)
    ctypes.CDLL(None).prctl(36, 1)  # PR_SET_CHILD_SUBREAPER: orphans become its own, as slurmstepd's do
    subprocess.Popen([sys.executable, __file__, sys.argv[1], "owner"])
    ended = []
    try:
        while True:
            ended.append(os.waitstatus_to_exitcode(os.wait()[1]))
    except ChildProcessError:
        print(ended.count(-signal.SIGKILL), "killed", flush=True)
"""


@pytest.mark.parametrize("when", ["starting", "running"])
def test_who_adopts_an_engine_of_a_killed_process_is_left_alone(when: str, tmp_path: Path) -> None:
    file = tmp_path / "adopter.py"
    file.write_text(ADOPTED)
    adopter = subprocess.run([sys.executable, str(file), when], capture_output=True, text=True, timeout=300)
    assert (adopter.returncode, adopter.stdout) == (0, "2 killed\n"), adopter.stderr


def test_engines_are_spawned_for_a_running_java_does_not_survive_a_fork(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """vLLM's own reading of the environment, which for GPUs says fork unless told otherwise."""
    monkeypatch.delenv("VLLM_WORKER_MULTIPROC_METHOD", raising=False)
    assert envs.VLLM_WORKER_MULTIPROC_METHOD == "fork", "vLLM has another default: is this still needed?"
    _set_environment()
    assert envs.VLLM_WORKER_MULTIPROC_METHOD == "spawn"


RAY = "import ray; ray.init(address='local', num_cpus=1, include_dashboard=False, log_to_driver=False)"


@pytest.mark.slow
@pytest.mark.parametrize("taking", ["import xgrammar  # what vLLM loads", f"{RAY}; ray.shutdown()"])
def test_the_handler_that_java_installed_is_kept(taking: str) -> None:
    script = f"""
from corag.core.system.process import fault_handlers, keep_fault_handlers
def handler():
    return fault_handlers()[11][:8]
from retrieval.lucene.java import java_class
java_class("java.lang.String")
before = handler()
with keep_fault_handlers():
    {taking}
    assert handler() != before, "the library takes the handler, or this test and its subject can go"
assert handler() == before
"""
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr


@pytest.mark.parametrize(("free", "taken"), [(32.0, CPU_KV_CACHE_GB), (2.6, 1.3)])
def test_the_prefix_cache_leaves_half_of_a_small_machine(
    monkeypatch: pytest.MonkeyPatch, free: float, taken: float
) -> None:
    monkeypatch.setattr(
        resources, "get_memory_node_info", lambda: resources.MemoryNodeInfo(2**36, int(free * 2**30))
    )
    assert cpu_kv_cache_gb() == pytest.approx(taken)
