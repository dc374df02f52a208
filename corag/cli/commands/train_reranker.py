"""Train a re-ranker, a cross-encoder, on pairs of queries and passages: training/reranker.py, from anywhere.

corag train reranker --pairs pairs/mine --out rerankers/mine
corag train reranker --config training/configs/reranker_cpu.yaml --pairs pairs/a,pairs/b --out rerankers/mine

--retriever.reranker FOLDER searches with it.
"""

from __future__ import annotations

from dataclasses import dataclass

from training.retriever_config import RerankerTraining
from training.stages import RERANKER, LaunchOptions, launch_program


@dataclass(frozen=True)
class TrainRerankerOptions(LaunchOptions, RerankerTraining):
    """Options of 'corag train reranker': those of training/reranker.py, and how it is launched."""


def main(config: TrainRerankerOptions) -> int:
    """Train; return the exit status of the training, which has printed what went wrong."""
    return launch_program(RERANKER, config)
