"""Servers of embeddings and re-ranking whose replies are written after vLLM's, TEI's and Ollama's sources."""

from __future__ import annotations

import base64
import json
import threading
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

Kind = Literal["vllm", "tei", "ollama", "hosted"]
LIMIT = 40  # words that the models read
TEI_BATCH = 32


def vector_of(text: str, dimension: int) -> NDArray[np.float32]:
    """Return a vector that is near those of texts with the same words."""
    vector = np.full(dimension, 1e-3, np.float32)
    for word in text.lower().split():
        vector[zlib.crc32(word.strip(".,?").encode()) % dimension] += 1
    return vector


def score_of(query: str, text: str) -> float:
    """Return the share of a query's words that a text has."""
    words = query.lower().split()
    return sum(word in text.lower().split() for word in words) / max(1, len(words))


class ModelStandIn:
    """A server of one kind; ``faults`` yields a status to fail with, or 0, for each request that is posted.

    ``asked``: the bodies of what was posted, by path. ``headers``: of the last request.
    ``connections``: those that are open.
    """

    def __init__(self, kind: Kind, models: Sequence[str] = ("BAAI/bge-m3",), dimension: int = 64) -> None:
        self.kind, self.models, self.dimension = kind, list(models), dimension
        self.asked: list[tuple[str, dict[str, Any]]] = []
        self.headers: dict[str, str] = {}
        self.connections: set[object] = set()
        self.faults: Iterator[int] = iter(())
        self.garble: Callable[[Any], Any] = lambda reply: reply

    def __enter__(self) -> ModelStandIn:
        stand_in = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def setup(self) -> None:
                super().setup()
                stand_in.connections.add(self)

            def finish(self) -> None:
                super().finish()
                stand_in.connections.discard(self)

            def do_GET(self) -> None:
                self._reply(*stand_in.look_up(self.path))

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["content-length"])))
                stand_in.headers = {name.lower(): value for name, value in self.headers.items()}
                stand_in.asked.append((self.path, body))
                if fault := next(stand_in.faults, 0):
                    self._reply(fault, {"error": "Model is overloaded", "error_type": "Overloaded"})
                    return
                status, reply = stand_in.answer(self.path, body)
                self._reply(status, stand_in.garble(reply) if status == 200 else reply)

            def _reply(self, status: int, content: Any) -> None:
                data = content.encode() if isinstance(content, str) else json.dumps(content).encode()
                self.send_response(status)
                self.send_header("content-length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *_: Any) -> None: ...

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def look_up(self, path: str) -> tuple[int, Any]:
        if path == "/v1/models" and self.kind != "tei":
            owner = {"vllm": "vllm", "ollama": "library", "hosted": "system"}[self.kind]
            data = [{"id": name, "object": "model", "created": 1, "owned_by": owner} for name in self.models]
            return 200, {"object": "list", "data": data}
        if path == "/info" and self.kind == "tei":
            return 200, {
                "model_id": self.models[0], "model_sha": None, "model_dtype": "float16",
                "served_model_name": self.models[0], "model_type": {"embedding": {"pooling": "cls"}},
                "max_concurrent_requests": 512, "max_input_length": 512, "max_batch_tokens": 16384,
                "max_client_batch_size": TEI_BATCH, "auto_truncate": True, "version": "1.8.0",
            }  # fmt: skip
        return 404, ""

    def answer(self, path: str, body: dict[str, Any]) -> tuple[int, Any]:
        if path == "/v1/embeddings":
            return self._embed(body)
        if path == "/rerank" and self.kind != "ollama":
            if self.kind == "tei":
                return 422, "Failed to deserialize the JSON body into the target type: missing field `texts`"
            return self._rank(body)
        return 404, {"detail": "Not Found"}

    def _embed(self, body: dict[str, Any]) -> tuple[int, Any]:
        texts = body["input"]
        if self.kind != "tei" and body.get("model") not in self.models:
            error = {"message": f"The model `{body.get('model')}` does not exist.", "type": "NotFoundError"}
            return 404, {"error": error | {"param": "model", "code": 404}}
        if self.kind == "tei" and len(texts) > TEI_BATCH:
            message = f"batch size {len(texts)} > maximum allowed batch size {TEI_BATCH}"
            return 422, {"message": message, "code": 422, "type": "Validation"}
        if self.kind == "hosted" and (other := body.keys() - {"input", "model", "encoding_format"}):
            error = {"message": f"Unknown parameter: {min(other)}", "type": "invalid_request_error"}
            return 400, {"error": error | {"param": min(other), "code": "unknown_parameter"}}
        if (refusal := self._too_long(texts, body)) is not None:
            return refusal
        data = []
        for index, text in enumerate(texts):
            vector: Any = vector_of(" ".join(text.split()[:LIMIT]), self.dimension)
            if body.get("encoding_format") == "base64" and self.kind != "ollama":
                vector = base64.b64encode(vector.astype("<f4").tobytes()).decode()
            else:
                vector = vector.tolist()
            data.append({"object": "embedding", "embedding": vector, "index": index})
        usage = {"prompt_tokens": 9, "total_tokens": 9}
        model = self.models[0] if self.kind == "tei" else body.get("model") or self.models[0]
        return 200, {"object": "list", "data": data[::-1], "model": model, "usage": usage}

    def _too_long(self, texts: Sequence[str], body: dict[str, Any]) -> tuple[int, Any] | None:
        longest = max(len(text.split()) for text in texts)
        if (
            self.kind not in ("vllm", "hosted")
            or longest <= LIMIT
            or body.get("truncate_prompt_tokens") == -1
        ):
            return None
        message = f"This model's maximum context length is {LIMIT} tokens. However, you requested {longest}"
        return 400, {"error": {"message": message, "type": "BadRequestError", "param": None, "code": 400}}

    def _rank(self, body: dict[str, Any]) -> tuple[int, Any]:
        if (refusal := self._too_long(body["documents"], body)) is not None:
            return refusal
        scores = Counter({i: score_of(body["query"], text) for i, text in enumerate(body["documents"])})
        results = [
            {
                "index": index,
                "document": {"text": body["documents"][index], "multi_modal": None},
                "relevance_score": score,
            }
            for index, score in scores.most_common(body["top_n"] or None)
        ]
        return 200, {"id": "rerank-1", "model": self.models[0], "usage": {}, "results": results}
