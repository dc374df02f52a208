"""The file of messages, tests/messages.json: each belongs to a test that is there."""

from __future__ import annotations

import ast
import tempfile

from tests.messages import ROOT, messages, normalised


def test_each_message_belongs_to_a_test() -> None:
    for file, tests in messages().items():
        tree = ast.parse((ROOT / file).read_text())
        functions = {
            node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        }
        assert {name.partition("[")[0].rpartition("::")[2] for name in tests} <= functions, file


def test_what_differs_from_run_to_run_is_left_out() -> None:
    file = f"{tempfile.gettempdir()}/pytest-of-root/pytest-12/popen-gw1/test_a0/q.jsonl"
    seen = f"'{file}' and http://127.0.0.1:4567/v1: <a at 0x7f4a1b2c3d4e>"
    assert normalised(seen) == "'TMP/q.jsonl' and http://127.0.0.1:PORT/v1: <a at 0xADDRESS>"
