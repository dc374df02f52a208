"""Question files of the multi-hop datasets, read as :class:`core.types.Question`."""

from eval.datasets.load import DATASETS, load_questions

__all__ = ["DATASETS", "load_questions"]
