"""Question files of the multi-hop and single-hop datasets and of KILT, read as
:class:`core.types.Question`.
"""

from eval.datasets.kilt import task_description
from eval.datasets.load import DATASETS, load_questions, read_question_records

__all__ = ["DATASETS", "load_questions", "read_question_records", "task_description"]
