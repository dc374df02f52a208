"""Distil a larger model, or privileged context, into a model: training/distill.py, from anywhere.

corag rows chains/mine --for distillation --retriever.index indexes/mine --out rows/mine
corag train distill --rows rows/mine --adapter adapters/mine --out adapters/distilled
"""

from __future__ import annotations

from dataclasses import dataclass

from training.distill import DistillConfig
from training.stages import DISTILL, LaunchOptions, launch_program


@dataclass(frozen=True)
class TrainDistillOptions(LaunchOptions, DistillConfig):
    """Options of 'corag train distill': those of training/distill.py, and how it is launched."""


def main(config: TrainDistillOptions) -> int:
    """Train; return the exit status of the training, which has printed what went wrong."""
    return launch_program(DISTILL, config)
