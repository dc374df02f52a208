"""Recursive RAG: four ways of searching more than once, and a choice between them, after a tutorial of 2023.

``method`` has the modes and the final answer; ``replies`` reads what the model says and passages refer to.
"""

from corag.baselines.recursive.method import RecursiveAnswer, RecursiveConfig, recursive

__all__ = ["RecursiveAnswer", "RecursiveConfig", "recursive"]
