"""A killed run leaves no engine behind, whether it is killed while the engine starts or later."""

import os
import signal
import subprocess
import sys

import pytest

from generation.owner import OWNER

WORKER = "import time; from generation.owner import end_with_owner; end_with_owner(); print('up', flush=True); time.sleep(60)"
ENGINE = "import subprocess, sys; subprocess.run([sys.executable, '-c', sys.argv[1]])"


@pytest.mark.parametrize("while_starting", [True, False])
def test_engine_and_worker_end_with_the_process_that_opened_them(while_starting: bool) -> None:
    owner = subprocess.Popen(["sleep", "60"])
    if while_starting:
        owner.kill()
        owner.wait()
    environment = os.environ | {OWNER: str(owner.pid)}
    engine = subprocess.Popen([sys.executable, "-c", ENGINE, WORKER], env=environment, stdout=subprocess.PIPE)
    assert engine.stdout is not None
    if not while_starting:
        assert engine.stdout.readline() == b"up\n" and engine.poll() is None
        owner.kill()
        owner.wait()
    assert engine.wait(30) == -signal.SIGKILL
    assert engine.stdout.read() == b"", "and the worker, which holds the other end"
    engine.stdout.close()
