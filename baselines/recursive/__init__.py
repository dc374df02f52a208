"""Recursive RAG: four ways of searching more than once, and a choice between them, after a tutorial of 2023.

``method`` chooses a mode and reads in the end; ``rounds`` and ``sub_questions`` hold the modes; ``trail`` is
what they have found; ``replies`` reads what the model says to them.
"""

from baselines.recursive.config import RecursiveConfig
from baselines.recursive.method import RecursiveAnswer, recursive

__all__ = ["RecursiveAnswer", "RecursiveConfig", "recursive"]
