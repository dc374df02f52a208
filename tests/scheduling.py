"""Which process of pytest-xdist runs which tests, and in which order: hooks of tests/conftest.py."""

from __future__ import annotations

import gc
import signal
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path

import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling
from xdist.workermanage import WorkerController

# What kills processes, drives a browser or installs: only scripts/test.sh --all runs it.
DRILLS = (
    "tests/drills/", "tests/eval/test_report_browser.py", "tests/service/test_page_browser.py",
    "tests/cli/test_install.py",
)  # fmt: skip
SHARED = 'loop_scope="session"'  # what stands in a file whose tests share the engines of tests/conftest.py


class ByFile(LoadScopeScheduling):
    """A file's tests run in one process, and so do all files that share the engines.

    Groups of xdist's own (the mark ``xdist_group``) do nothing under pytest 9.2: items keep no node id there
    that xdist could write a group's name to.
    """

    def _split_scope(self, nodeid: str) -> str:
        return scope(nodeid, self.config.rootpath)

    def remove_node(self, node: WorkerController) -> str | None:
        """Hand out what a process left that is gone; return the test that it died of, if any.

        xdist hands out all that the process was ever given. So the test kills the next one too, and a file
        that was done is a piece of work without tests: who gets it as its last waits for ever.
        """
        given = self.assigned_work.pop(node)
        left = {name: [test for test, done in tests.items() if not done] for name, tests in given.items()}
        left = {name: tests for name, tests in left.items() if tests}
        if not left:
            return None
        died_of = next(iter(left.values())).pop(0)
        self.workqueue.update({name: dict.fromkeys(tests, False) for name, tests in left.items() if tests})
        for other in self.nodes:
            self._reschedule(other)
        return died_of

    def add_node_collection(self, node: WorkerController, collection: Sequence[str]) -> None:
        """Note what a process found; raise if it found other tests than those that are handed out.

        xdist writes that down and goes on. If no other process is left, nothing would ever end the run.
        """
        super().add_node_collection(node, collection)
        if node not in self.registered_collections:
            raise RuntimeError(
                f"{node.gateway.id} stands in for a process that died, but finds other tests: was a test "
                "file changed meanwhile? Run the tests again."
            )

    def _reschedule(self, node: WorkerController) -> None:
        """Give a process work, also if it is of one test: it begins none before it knows what comes next.

        One that stands in for a process that died may still be collecting: xdist asks again when it is done.
        """
        if node not in self.registered_collections:
            return
        # A process that has just died takes no more work; xdist is told of it next, and gives it to others.
        with suppress(OSError):
            super()._reschedule(node)
            while not node.shutting_down and self._pending_of(self.assigned_work[node]) < 2:
                super()._reschedule(node)


def scope(nodeid: str, root: Path) -> str:
    """Return what a test shares its process with."""
    file = nodeid.partition("::")[0]
    return "engines" if SHARED in text(root / file) else file


@cache
def text(file: Path) -> str:
    """Return a test file's text."""
    return file.read_text()


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> ByFile:
    """Hand out whole files."""
    return ByFile(config, log)


def pytest_handlecrashitem(crashitem: str, report: pytest.TestReport) -> None:
    """Say what a process died of: which signal or status, and where, if Java wrote that down."""
    process = report.node.gateway._io.popen  # type: ignore[attr-defined]
    with suppress(subprocess.TimeoutExpired):
        status = process.wait(10)
        died_of = signal.Signals(-status).name if status < 0 else f"status {status}"
        report.longrepr = f"{report.longrepr}: {died_of}"
    if (file := Path(f"hs_err_pid{process.pid}.log")).is_file():
        report.longrepr = f"{report.longrepr}\n{file.read_text(errors='replace')[:4000]}"


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark drills, and begin with what is slow; the shared engines are opened late."""
    for item in items:
        if item.nodeid.startswith(DRILLS) and item.get_closest_marker("slow"):
            item.add_marker("drill")
    scopes = {item.nodeid: scope(item.nodeid, config.rootpath) for item in items}
    slow = {scopes[item.nodeid] for item in items if item.get_closest_marker("slow")}
    order = {"engines": 1}
    items.sort(key=lambda item: order.get(scopes[item.nodeid], 0 if scopes[item.nodeid] in slow else 2))


def pytest_collection_finish(session: pytest.Session) -> None:
    """Leave what the imports made to no garbage collection: trainers collect often, for a second each."""
    gc.collect()
    gc.freeze()
