"""Serve answers to one agent, which starts this command and speaks MCP over its standard input and output.

corag mcp --index indexes/world-bm25 --method corag
"""

from __future__ import annotations

import asyncio

from corag.service.options import ServiceOptions
from corag.service.serve import open_service, preset_lines, report_line


def main(config: ServiceOptions) -> int:
    """Open model and index and answer until the agent closes standard input."""
    asyncio.run(_serve(config))
    return 0


async def _serve(config: ServiceOptions) -> None:
    from corag.service.agents import agent_server
    from corag.service.keys import Keys

    async with open_service(config) as service:
        for line in preset_lines(service.presets):
            report_line(line)
        await agent_server(service, Keys()).run_stdio_async()
