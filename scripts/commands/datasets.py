"""List the datasets that --dataset names, with their scorers.

For KILT's tasks also what CoRAG's prompts say of them.

corag datasets
corag datasets kilt_fever     # what a run says of these questions, unless --corag.task says something else
"""

from __future__ import annotations

from dataclasses import dataclass

from core.errors import ConfigError, nearest
from eval.datasets import DATASETS, task_description
from eval.datasets.kilt import KILT_TASKS
from eval.scoring.scorers import default_scorer


@dataclass(frozen=True)
class DatasetsOptions:
    """Options of 'corag datasets'.

    Attributes:
        name: print the task description of this dataset and nothing else.
    """

    name: str = ""

    def __post_init__(self) -> None:
        if self.name and self.name not in DATASETS:
            raise ConfigError(f"there is no dataset '{self.name}': {nearest(self.name, DATASETS)}")


def main(config: DatasetsOptions) -> int:
    """Print one line per dataset, or one task description."""
    if config.name:
        print(task_description(config.name))
        return 0
    width = max(map(len, DATASETS))
    for name, title in DATASETS.items():
        task = f"; task: {KILT_TASKS[name].task}" if name in KILT_TASKS else ""
        print(f"{name:<{width}}  {title} (scorer: {default_scorer(name).title}{task})")
    return 0
