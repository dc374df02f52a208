"""Fine-tune on rows of chains, from any folder: 'accelerate launch training/sft.py' with the same options.

corag train --rows rows/mine --out adapters/mine
corag train --rows rows/mine --out adapters/mine --launch=--config_file,accelerate.yaml
"""

from __future__ import annotations

from training.stages import SFT, TrainOptions, launch_program


def main(config: TrainOptions) -> int:
    """Train; return the exit status of the training, which has printed what went wrong."""
    return launch_program(SFT, config)
