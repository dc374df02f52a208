"""Lucene must survive vLLM's libraries in the same process."""

import subprocess
import sys

import pytest


@pytest.mark.slow
def test_the_handler_that_java_installed_is_kept():
    script = """
import ctypes
def handler():
    action = ctypes.create_string_buffer(256)
    ctypes.CDLL(None).sigaction(11, None, action)
    return action.raw[:8]
from retrieval.lucene.java import java_class
java_class("java.lang.String")
before = handler()
from generation.segfaults import keep_fault_handler
with keep_fault_handler():
    import xgrammar  # what vLLM loads
    assert handler() != before, "the library takes the handler, or this test and its subject can go"
assert handler() == before
"""
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
