"""A hub of Hugging Face's on this machine: a server of repositories, and caches as its client leaves them."""

from __future__ import annotations

import base64
import hashlib
import io
import json
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

COMMIT = "c0ffee" * 6 + "c0ff"


def parquet(rows: Sequence[Mapping[str, Any]]) -> bytes:
    """Return rows as a Parquet file of small row groups."""
    import pyarrow
    import pyarrow.parquet

    stream = io.BytesIO()
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(list(rows)), stream, row_group_size=2)
    return stream.getvalue()


def cache_files(cache: Path, repository: str, files: Mapping[str, bytes]) -> Path:
    """Write files into a hub's cache as a download leaves them; return the folder of the revision."""
    folder = cache / f"datasets--{repository.replace('/', '--')}"
    (folder / "refs").mkdir(parents=True)
    (folder / "refs" / "main").write_text(COMMIT)
    for name, content in files.items():
        path = folder / "snapshots" / COMMIT / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return folder / "snapshots" / COMMIT


class Hub(ThreadingHTTPServer):
    """Serves repositories by name, takes commits.

    ``torn``: files that break off, so many times. ``moved``: what a repository's branch has since it was
    listed.
    """

    daemon_threads = True

    def __init__(self, repositories: Mapping[str, Mapping[str, bytes]]) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.repositories = dict(repositories)
        self.torn: dict[str, int] = {}
        self.moved: dict[str, Mapping[str, bytes]] = {}
        self.sent: list[str] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class _Handler(BaseHTTPRequestHandler):
    server: Hub
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: object) -> None:
        pass

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        path = self.path.split("?")[0].strip("/")
        if path.startswith(("api/datasets/", "api/models/")):
            owner, name, *further = path.split("/")[2:]
            self._list(f"{owner}/{name}", as_tree=further[:1] == ["tree"])
            return
        # OWNER/NAME/resolve/REVISION/FILE, with datasets/ before it for a data set
        owner, name, _, revision, *rest = [*path.removeprefix("datasets/").split("/"), *[""] * 4]
        file, repository = "/".join(rest).rstrip("/"), f"{owner}/{name}"
        listed = self.server.repositories.get(repository, {})
        content = (listed if revision == COMMIT else self.server.moved.get(repository, listed)).get(file)
        if content is None:
            self._reply(404, b"", {})
        else:
            self._send_file(file, content)

    def do_POST(self) -> None:
        """Create a repository, say how its files are to be sent, and take a commit of them."""
        body = self.rfile.read(int(self.headers["Content-Length"]))
        path = self.path.split("?")[0].strip("/")
        if path == "api/repos/create":
            asked = json.loads(body)
            name = f"{asked.get('organization') or 'me'}/{asked['name']}"
            self.server.repositories.setdefault(name, {})
            answer: dict[str, Any] = {"url": f"{self.server.url}/{name}"}
        elif path == "api/validate-yaml":  # of a card's head
            answer = {"errors": [], "warnings": []}
        elif "/preupload/" in path:
            files = json.loads(body)["files"]
            answer = {
                "files": [
                    {"path": each["path"], "uploadMode": "regular", "shouldIgnore": False} for each in files
                ]
            }
        else:
            name = "/".join(path.split("/")[2:4])
            lines = [json.loads(line) for line in body.splitlines()]
            self.server.repositories[name] = {
                **self.server.repositories[name],
                **{
                    each["value"]["path"]: base64.b64decode(each["value"]["content"])
                    for each in lines
                    if each["key"] == "file"
                },
            }
            answer = {"commitUrl": f"{self.server.url}/{name}/commit/{COMMIT}", "commitOid": COMMIT}
        self._reply(200, json.dumps(answer).encode(), {"Content-Type": "application/json"})

    def _list(self, repository: str, *, as_tree: bool) -> None:
        if repository not in self.server.repositories:
            self._reply(404, b'{"error": "Repository not found"}', {"X-Error-Code": "RepoNotFound"})
            return
        files = self.server.repositories[repository]
        siblings = [
            {"rfilename": name, "size": len(content), "blobId": _digest(content)}
            for name, content in files.items()
        ]
        tree = [
            {"type": "file", "path": name, "size": len(content), "oid": _digest(content)}
            for name, content in files.items()
        ]
        info = {"id": repository, "sha": COMMIT, "siblings": siblings, "private": False, "tags": []}
        self._reply(200, json.dumps(tree if as_tree else info).encode(), {"Content-Type": "application/json"})

    def _send_file(self, name: str, content: bytes) -> None:
        headers = {"X-Repo-Commit": COMMIT, "ETag": f'"{_digest(content)}"'}
        torn = False
        if self.command == "GET":
            self.server.sent.append(name)
            torn = self.server.torn.get(name, 0) > 0
            self.server.torn[name] = self.server.torn.get(name, 0) - torn
        self._reply(200, content, headers, torn=torn)

    def _reply(self, status: int, content: bytes, headers: Mapping[str, str], *, torn: bool = False) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if self.command != "HEAD":
            sent = content[: len(content) // 2] if torn else content
            self.wfile.write(sent)
        if torn:
            self.close_connection = True
            self.wfile.flush()
            self.connection.close()


def _digest(content: bytes) -> str:
    return hashlib.sha1(content).hexdigest()


@contextmanager
def serving(repositories: Mapping[str, Mapping[str, bytes]]) -> Iterator[Hub]:
    """Serve data sets as long as the block runs."""
    hub = Hub(repositories)
    thread = threading.Thread(target=hub.serve_forever, daemon=True)
    thread.start()
    try:
        yield hub
    finally:
        hub.shutdown()
        hub.server_close()
        thread.join()
