"""A fictional universe with passages and multi-hop questions: to run, test, train and scale without any
download.
"""

from eval.datasets.world.world import MAX_PASSAGES, MIN_PASSAGES, Province, generate
from eval.datasets.world.write import WorldManifest, write_world

__all__ = ["MAX_PASSAGES", "MIN_PASSAGES", "Province", "WorldManifest", "generate", "write_world"]
