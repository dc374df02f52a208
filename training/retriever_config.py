"""Options of training what searches: the encoder of later hops, and a re-ranker."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from annotated_types import Ge, Gt

from corag.core.errors import ConfigError
from corag.core.options.names import Mark, NameOrPath
from training.config import LoopOptions


@dataclass(frozen=True)
class RetrieverTraining(LoopOptions):
    """Options of training an encoder or a re-ranker."""

    pairs: Annotated[list[str], Mark.PLACE] = field(default_factory=list)
    """one or more folders that 'corag pairs' wrote (A,B), learned from together."""

    out: Annotated[str, Mark.PLACE] = ""
    """folder of the model and of its checkpoints."""

    model: NameOrPath = "default"
    """what it starts from: "default" (all-MiniLM-L6-v2), a folder or a Hugging Face name."""

    negatives: Annotated[int, Ge(1)] = 4
    """wrong passages of a query that are taken, the best ranked ones."""

    max_length: Annotated[int, Ge(8)] = 192
    """tokens of a text at most while it is trained; longer ones are cut."""

    learning_rate: Annotated[float, Gt(0)] = 2e-5
    """its greatest value."""

    epochs: Annotated[float, Gt(0)] = 2.0
    """passes over the pairs."""

    batch_size: Annotated[int, Ge(1)] = 32
    """queries per device and step."""

    seed: int = 0
    """of the order of the pairs, and of what a model lacks and begins at random."""

    trainer: dict[str, Any] = field(default_factory=dict)
    """any other argument of sentence-transformers' trainer (and so of transformers' TrainingArguments), as a
    mapping, such as '{max_grad_norm: 0.5}'."""

    def __post_init__(self) -> None:
        if not self.pairs or not self.out:
            raise ConfigError("name the pairs with 'pairs' and where the result goes with 'out'.")


@dataclass(frozen=True)
class EncoderTraining(RetrieverTraining):
    """Options of training/encoder.py."""

    passages: Literal["frozen", "trained"] = "frozen"
    """"frozen" trains how queries are read alone: passages keep the vectors of ``model``, so an index of it
    is searched as it is (--retriever.hop_encoder FOLDER). "trained" trains both: index again with --encoder
    FOLDER."""

    mini_batch: Annotated[int, Ge(0)] = 0
    """with passages "trained", queries whose activations are held at a time, for batches that do not fit
    (GradCache, Gao et al. 2021); 0 for the whole batch. The result is the same."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.mini_batch and self.passages == "frozen":
            raise ConfigError(
                f"mini_batch is {self.mini_batch}, which is for passages=trained: frozen passages need no "
                "activations. Leave it out."
            )


@dataclass(frozen=True)
class RerankerTraining(RetrieverTraining):
    """Options of training/reranker.py."""

    negatives: Annotated[int, Ge(1)] = 7
    batch_size: Annotated[int, Ge(1)] = 8
    loss: Literal["listnet", "lambda"] = "listnet"
    """"listnet" (Cao et al. 2007) and "lambda" (LambdaLoss, Wang et al. 2018) compare the passages of a query
    with each other."""
