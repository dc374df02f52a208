"""Questions of the multi-hop and single-hop datasets, of KILT and of files of your own, read as one type.

A dataset's layout, ids and oddities stay in this room. What comes out is :class:`core.types.Question`; what
the questions' own paragraphs make is a corpus (``paragraphs``); what other tools read is in ``exports``.
"""

from eval.datasets.kilt import task_description
from eval.datasets.load import DATASETS, load_questions, read_question_records

__all__ = ["DATASETS", "load_questions", "read_question_records", "task_description"]
