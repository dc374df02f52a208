"""Fine-tune on rows of chains, from any folder: 'accelerate launch training/sft.py' with the same options.

corag train --rows rows/mine --out adapters/mine
corag train --rows rows/mine --out adapters/mine --launch=--config_file,accelerate.yaml
"""

from __future__ import annotations

import os
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path

from training.config import SftConfig
from training.launched import STATUS_FILE
from training.sft import check
from training.stages import ACCELERATE, SFT, default_launch, run_with_options


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
    # quiet: accelerate else reports a failure of the training as one of its own, in thirty lines.
    launch = config.launch or ["--quiet", *default_launch()]
    options = asdict(config)
    del options["launch"]  # accelerate's, not the training's
    with tempfile.TemporaryDirectory(prefix="corag-") as folder:
        status_file = Path(folder) / "status"
        os.environ[STATUS_FILE] = str(status_file)
        status = run_with_options([*ACCELERATE, *launch, SFT], options, Path(folder) / "options.yaml")
        return int(status_file.read_text()) if status_file.is_file() else status
