"""Train the encoder of later hops on pairs of queries and passages: training/encoder.py, from anywhere.

corag train encoder --pairs pairs/mine --out encoders/mine
corag train encoder --config training/configs/encoder_cpu.yaml --pairs pairs/a,pairs/b --out encoders/mine

Passages keep the vectors of the index that is there, and --retriever.hop_encoder FOLDER searches it; with
--passages trained they are learned too, and an index is built with --encoder FOLDER.
"""

from __future__ import annotations

from dataclasses import dataclass

from training.retriever_config import EncoderTraining
from training.stages import ENCODER, LaunchOptions, launch_program


@dataclass(frozen=True)
class TrainEncoderOptions(LaunchOptions, EncoderTraining):
    """Options of 'corag train encoder': those of training/encoder.py, and how it is launched."""


def main(config: TrainEncoderOptions) -> int:
    """Train; return the exit status of the training, which has printed what went wrong."""
    return launch_program(ENCODER, config)
