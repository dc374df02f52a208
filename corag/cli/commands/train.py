"""Fine-tune on rows of chains, from any folder: 'accelerate launch training/sft.py' with the same options.

corag train --rows rows/mine --out adapters/mine
corag train --rows rows/mine --out adapters/mine --launch=--config_file,accelerate.yaml
"""

from __future__ import annotations

from dataclasses import asdict, dataclass

from training.config import SftConfig
from training.sft import check
from training.stages import SFT, launch_program


@dataclass(frozen=True)
class TrainOptions(SftConfig):
    """Options of 'corag train': those of training/sft.py, and how it is launched.

    Attributes:
        launch: arguments of 'accelerate launch', written --launch=--config_file,accelerate.yaml; nothing for
            one process, on the CPU if there is no GPU.
    """

    launch: tuple[str, ...] = ()


def main(config: TrainOptions) -> int:
    """Train; return the exit status of the training, which has printed what went wrong.

    Raises :class:`ConfigError` or :class:`DataError` for what cannot be trained, before anything is started.
    """
    check(config)
    options = asdict(config)
    launch = options.pop("launch")  # accelerate's, not the training's
    return launch_program(SFT, options, launch)
