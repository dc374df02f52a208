"""Freed memory stays with a training on a CPU."""

import subprocess
import sys

import pytest

ROUNDS = """
import resource
from training.program import keep_freed_memory

def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(3):
        pieces = [bytearray(b"x" * 2**25) for _ in range(3)]
        del pieces
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

if KEEP:
    print(keep_freed_memory())
faults()
print(faults())
"""


@pytest.mark.skipif(sys.platform != "linux", reason="only glibc can be told to keep memory")
def test_what_is_freed_is_not_touched_anew():
    def said(keep):
        script = ROUNDS.replace("KEEP", str(keep))
        return subprocess.run(
            [sys.executable, "-c", script], capture_output=True, text=True, check=True
        ).stdout.split()

    (given_back,) = said(False)
    kept, faults = said(True)
    assert kept == "True" and int(faults) < 100 < 10_000 < int(given_back)
