"""Turn sampled chains into training rows: prompt and completion for every task, tokenised as decoding does
it.

    corag rows chains/world --retriever.index indexes/world-bm25 --out rows/world
    corag rows chains/world --rows.tasks no_chain --retriever.index indexes/world-bm25 --out rows/world-no-chain

Several folders of chains go into one set. Passages are read from the index by id; nothing is searched again
and no model is started.
"""

from __future__ import annotations

import asyncio
import json
import sys
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Literal

from core.errors import ConfigError
from eval.experiment.backends import require_index
from generation.models import context_window, model_folder
from generation.rendering import Renderer
from retrieval.config import RetrieverConfig
from retrieval.open import open_retriever
from training.data import RowsConfig
from training.rows import Report, write_rows


@dataclass(frozen=True)
class Config:
    """Options of 'corag rows'.

    Attributes:
        chains: one or more folders that 'corag sample' wrote.
        out: folder of the rows.
        model: the model that will be trained, whose tokenizer the rows are written for: "default", a folder
            or a Hugging Face name.
        chat: whether prompts go through the model's chat template, as in decoding; auto does if it has one.
        rows: which rows are made.
        retriever: the index that the chains were sampled with.
    """

    chains: list[str] = field(default_factory=list)
    out: str = ""
    model: str = "default"
    chat: Literal["auto", "yes", "no"] = "auto"
    rows: RowsConfig = field(default_factory=RowsConfig)
    retriever: RetrieverConfig = field(default_factory=RetrieverConfig)

    def __post_init__(self) -> None:
        if not self.chains or not self.out:
            raise ConfigError(
                "name the chains and where the rows go: corag rows CHAINS --out ROWS --retriever.index INDEX."
            )
        require_index(self.retriever)


def main(config: Config) -> int:
    """Write the rows, print the report, return 0."""
    report = asyncio.run(make(config))
    for line in report.lines():
        print(line)
    print(json.dumps({"folder": config.out, **{k: v for k, v in asdict(report).items() if k != "settings"}}))
    return 0


async def make(config: Config) -> Report:
    """Open index and tokenizer and write the rows."""
    folder = model_folder(config.model, weights=False)
    renderer = Renderer.load(folder, config.chat)
    chosen = within_window(config, folder)
    retriever = await open_retriever(config.retriever)
    try:
        return await write_rows(
            [Path(chain) for chain in config.chains], Path(config.out), retriever, renderer, chosen
        )
    finally:
        await retriever.close()


def within_window(config: Config, folder: str) -> RowsConfig:
    """Return the options of the rows, none longer than the model in ``folder`` can read: decoding would
    shorten prompts too.
    """
    window = context_window(folder)
    if window is None or config.rows.max_length <= window:
        return config.rows
    print(
        f"corag: '{config.model}' was made to read {window} tokens at once, so rows have at most so many, "
        f"not {config.rows.max_length}.",
        file=sys.stderr,
    )
    return replace(config.rows, max_length=window)
