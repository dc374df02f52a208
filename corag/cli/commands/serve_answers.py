"""Serve answers over HTTP: to OpenAI's clients, to agents over MCP, and as a page.

corag serve answers --index indexes/world-bm25 --method corag
corag serve answers --index indexes/world-bm25 --presets presets.yaml --api_key_file keys.txt
corag serve answers --index indexes/world-bm25 --stdio      # to the agent that starts this command (MCP)
"""

from __future__ import annotations

from corag.service.options import AnswersOptions
from corag.service.serve import run


def main(config: AnswersOptions) -> int:
    """Open model and index and answer questions until interrupted."""
    run(config)
    return 0
