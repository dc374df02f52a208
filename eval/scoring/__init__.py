"""How answers and passages are scored: each dataset's official rule, KILT's provenance, recall, and a judge.

A scorer compares one prediction with gold answers (``scorers``); ``rows`` scores a row of a run by it;
``official_scores`` scores whole prediction files as the datasets' own scripts do. All scores are fractions.
"""

from eval.scoring.judge import JudgeConfig, judge, parse_verdict
from eval.scoring.official_scores import hotpotqa_scores, kilt_scores, musique_scores, two_wiki_scores
from eval.scoring.retrieval_metrics import answer_recall, page_recall, r_precision
from eval.scoring.rows import FURTHER_MEASURES, MEASURES, Measures, ScoredRow, Scores, score_row, score_rows
from eval.scoring.scorers import SCORERS, ItemScore, Scorer, default_scorer, scorer, scorer_title

__all__ = [
    "FURTHER_MEASURES", "MEASURES", "SCORERS", "ItemScore", "JudgeConfig", "Measures", "ScoredRow", "Scorer",
    "Scores", "answer_recall", "default_scorer", "hotpotqa_scores", "judge", "kilt_scores", "musique_scores",
    "page_recall", "parse_verdict", "r_precision", "score_row", "score_rows", "scorer", "scorer_title",
    "two_wiki_scores",
]  # fmt: skip
