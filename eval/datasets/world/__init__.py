"""A fictional universe with passages and multi-hop questions: run, test, train and scale without a download.

``world.toml`` says what there is and how English tells it, ``relations`` reads it, ``names`` invents names.
``facts`` draws a province, ``passages`` and ``questions`` write about it, ``world`` cuts it into splits and
``write`` puts it into a folder.
"""

from eval.datasets.world.world import MAX_PASSAGES, MIN_PASSAGES, Province, generate
from eval.datasets.world.write import WorldManifest, write_world

__all__ = ["MAX_PASSAGES", "MIN_PASSAGES", "Province", "WorldManifest", "generate", "write_world"]
