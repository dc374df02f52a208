"""A small corpus, and one real index of each kind that several tests search."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from corag.core.types import Hit, Passage
from retrieval.config import IndexConfig, RetrieverConfig
from retrieval.index.build import build_index
from retrieval.search.pipeline import open_retriever

RIVERS = ["Arlen", "Bost", "Corvane", "Dulle", "Estrel", "Fenwick", "Garrow", "Hollin"]
TRADES = ["glass", "paper", "salt", "clocks", "rope", "ink", "tiles", "honey"]


def make_passages() -> list[Passage]:
    """Return 72 short passages about towns, their rivers and their mayors."""
    passages = []
    for number in range(24):
        town, river, trade = f"Town{number:02d}", RIVERS[number % 8], TRADES[(number * 3) % 8]
        passages += [
            Passage(f"t{number}", town, f"{town} lies on the river {river} and is known for its {trade}."),
            Passage(
                f"m{number}",
                f"Mayor of {town}",
                f"Mayor number {number} of {town} began by selling {trade} in {1900 + number}.",
            ),
            Passage(
                f"b{number}",
                "",
                f"A bridge from {1800 + 7 * number} crosses the {river} at {town}, naïve travellers say 😀.",
            ),
        ]
    return passages


def write_jsonl(path: Path, passages: list[Passage]) -> Path:
    """Write passages as the default corpus format."""
    records = ({"id": passage.id, "title": passage.title, "text": passage.text} for passage in passages)
    path.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")
    return path


def ignore(_: str) -> None:
    """Swallow progress."""


async def search(index: Path | str, query: str, k: int = 3, **options: object) -> Sequence[Hit]:
    """Open an index, search it once, and close it."""
    retriever = await open_retriever(RetrieverConfig([str(index)], **options))  # type: ignore[arg-type]
    try:
        return await retriever.search(query, k)
    finally:
        await retriever.close()


@pytest.fixture(scope="session")
def passages() -> list[Passage]:
    return make_passages()


@pytest.fixture(scope="session")
def corpus(passages: list[Passage], tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_jsonl(tmp_path_factory.mktemp("corpus") / "corpus.jsonl", passages)


@pytest.fixture(scope="session")
def index_of(corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], str]:
    """Return the folder of an index over the small corpus, built once per kind: bm25 or dense."""
    folders: dict[str, str] = {}

    def build(kind: str) -> str:
        if kind not in folders:
            folders[kind] = str(tmp_path_factory.mktemp("index") / kind)
            build_index(IndexConfig([str(corpus)], folders[kind], kind=kind, shard_size=32), ignore)  # type: ignore[arg-type]
        return folders[kind]

    return build


@pytest.fixture(scope="session")
def tiny_encoder(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return a folder with another encoder than the default: one random layer, 384 dimensions too."""
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Pooling, Transformer
    from transformers import BertConfig, BertModel

    from retrieval.dense.encoder import encoder_folder

    folder = tmp_path_factory.mktemp("encoder")
    save_tiny_bert(
        BertModel(
            BertConfig(hidden_size=384, num_hidden_layers=1, num_attention_heads=4, intermediate_size=64)
        ),
        folder / "bert",
    )
    transformer = Transformer(str(folder / "bert"))
    SentenceTransformer(modules=[transformer, Pooling(384)], device="cpu").save(str(folder / "tiny"))
    assert encoder_folder(str(folder / "tiny")) == folder / "tiny"
    return str(folder / "tiny")


@pytest.fixture(scope="session")
def tiny_reranker(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return a folder with a cross-encoder of one random layer."""
    import torch
    from transformers import BertConfig, BertForSequenceClassification

    torch.manual_seed(1)
    config = BertConfig(
        hidden_size=32, num_hidden_layers=1, num_attention_heads=2, intermediate_size=64, num_labels=1
    )
    folder = tmp_path_factory.mktemp("reranker")
    save_tiny_bert(BertForSequenceClassification(config), folder)
    return str(folder)


def save_tiny_bert(model, folder: Path) -> None:  # type: ignore[no-untyped-def]
    """Save a BERT-like model with the default encoder's tokenizer."""
    from transformers import AutoTokenizer

    from retrieval.dense.encoder import encoder_folder

    model.save_pretrained(folder)
    AutoTokenizer.from_pretrained(encoder_folder("default")).save_pretrained(folder)


def static_encoder(folder: Path) -> str:
    """Save a static encoder, the mean of random vectors of tokens: fast, and blind for upper case."""
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.models import StaticEmbedding
    from transformers import AutoTokenizer

    from retrieval.dense.encoder import encoder_folder

    tokenizer = AutoTokenizer.from_pretrained(encoder_folder("default")).backend_tokenizer
    modules = [StaticEmbedding(tokenizer, embedding_dim=64)]
    SentenceTransformer(modules=modules, device="cpu").save(str(folder))
    return str(folder)
