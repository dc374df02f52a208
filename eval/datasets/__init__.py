"""Questions of the multi-hop and single-hop datasets, of KILT and of files of your own, read as one type.

A dataset's layout, ids and oddities stay in its file in ``sets/``, from which :class:`Question` comes. The
questions' own paragraphs make a corpus (``paragraphs``); ``exports`` writes what other tools read.
"""

from eval.datasets.dataset import Dataset
from eval.datasets.load import load_questions, read_question_records
from eval.datasets.registry import DATASETS, find_dataset

__all__ = ["DATASETS", "Dataset", "find_dataset", "load_questions", "read_question_records"]
