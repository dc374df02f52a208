"""The answer service: questions that come over HTTP or MCP, answered by any of the methods.

``answering.py`` is the package's centre: it admits a question, answers it by a preset, records what came of
it. ``http/`` is what chat clients and browsers speak to, ``agents.py`` what agents do. Both only translate.
"""
