"""What can be set about building an index and about searching one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Literal

from core.addresses import hold_secrets
from core.errors import ConfigError, nearest
from retrieval.corpora import AUTO, DOCUMENTS, check_format
from retrieval.documents.passages import Cutting
from retrieval.index_manifest import IndexKind, IndexPart

# A further kind needs: its options below; its settings in ``_settings`` of build.py, and in ``_build_dense``
# what can be refused before encoding; how it is made, in ``build_faiss`` of dense/build.py; and what is set
# for searching, in ``FaissIndex`` of dense/search.py.
FaissKind = Literal["flat", "hnsw", "ivfpq"]


@dataclass(frozen=True)
class IndexConfig:
    """How to turn a corpus into an index folder.

    Attributes:
        corpus: Folders and documents (.txt, .md, .html, .pdf, .docx), or files that hold passages as they
            stand, read in this order (.gz is unpacked on the way).
        out: Folder that becomes the index. One of documents that have changed since is brought up to date.
        format: "auto" goes by the endings: "documents" for folders and documents, which are cut into passages
            (.jsonl files among them are passages as they stand), else "jsonl". By name: "jsonl", "beir",
            "hippo" (JSONL or a JSON list with id, title, text, or Pyserini's contents), "dpr" (a table, also
            wiki18), "kilt" (its knowledge source, or corag/kilt-corpus as JSONL; ids
            begin with the page's wikipedia_id); "hotpotqa", "2wikimultihopqa", "musique" and "popqa" pool the
            paragraphs of that dataset's question files.
        kind: "bm25" (Lucene), "dense" (FAISS), or Lucene's own vectors: "lucene_flat" (exact), "lucene_hnsw".
        encoder: "default" (all-MiniLM-L6-v2), a Hugging Face name or a local sentence-transformers folder.
        query_prefix: Put before every query, such as "query: " for E5 (kept in the index's manifest).
        passage_prefix: Put before every passage, such as "passage: " for E5.
        passage_words: Words of a passage at most that is cut out of a document.
        passage_overlap: Words at most that such a passage repeats of the one before it, in whole sentences.
        max_passage_tokens: Encode this many tokens of a passage at most; 0 = the encoder's own limit.
        faiss: "flat" (exact), "hnsw" (graph), "ivfpq" (compressed, for tens of millions of passages).
        hnsw_m: Neighbours per node of an HNSW graph (FAISS and Lucene).
        hnsw_ef_construction: Candidates looked at while an HNSW graph is built.
        ivf_lists: Number of lists of "ivfpq"; 0 = four times the square root of the number of passages, but
            at most one for 39 passages.
        pq_bytes: Bytes per passage of "ivfpq"; must divide the encoder's dimension.
        batch_size: Passages that the encoder takes at once.
        shard_size: Passages per shard of encoding: what an interruption loses at most. It counts as a setting
            of the index.
        threads: Threads of Lucene and FAISS while building; 0 = all cores.
        overwrite: Replace an index that is already in ``out``.
        part: Build one part of the index, such as "2/4": the second quarter of the passages. Each is served
            by itself, and who asks all of them finds what the whole index finds. Dense only.
        train_only: Train an "ivfpq" index for the whole corpus, and stop: its parts share that training.
        trained: Folder that ``train_only`` made, for an "ivfpq" index or its parts.

    Raises:
        ConfigError: For an unknown format, or a number that cannot work.
    """

    corpus: list[str]
    out: str
    format: str = AUTO
    kind: IndexKind = "bm25"
    encoder: str = "default"
    query_prefix: str = ""
    passage_prefix: str = ""
    passage_words: int = Cutting.words
    passage_overlap: int = Cutting.overlap
    max_passage_tokens: int = 0
    faiss: FaissKind = "flat"
    # A denser graph than Lucene's own default (16, 100): it finds more and takes longer to build.
    hnsw_m: int = 32
    hnsw_ef_construction: int = 200
    ivf_lists: int = 0
    pq_bytes: int = 64  # six dimensions of the default encoder to a byte
    batch_size: int = 64
    shard_size: int = 4096  # a minute of encoding on a laptop's CPU
    threads: int = 0
    overwrite: bool = False
    part: str = ""
    train_only: bool = False
    trained: str = ""

    def __post_init__(self) -> None:
        check_format(self.format)
        self._check_parts()
        self.cutting  # noqa: B018 - refuses what it cannot be
        _refuse_below(self, 1, ("hnsw_m", "hnsw_ef_construction", "pq_bytes", "batch_size", "shard_size"))
        _refuse_below(self, 0, ("max_passage_tokens", "ivf_lists", "threads"))

    def _check_parts(self) -> None:
        if self.part:
            IndexPart.parse(self.part)
            if self.kind != "dense":
                raise ConfigError(
                    "only dense indexes have parts: scores of Lucene's depend on how often words are in all "
                    "passages, so its index stays whole (it needs little memory)."
                )
            if self.format == DOCUMENTS:
                raise ConfigError("parts are made of passages in files, not of documents: leave out --part.")
            if self.faiss == "ivfpq" and not self.trained:
                raise ConfigError(
                    "parts of an ivfpq index share one training: make it with --train_only true --out "
                    "TRAINED, then give each part --trained TRAINED."
                )
        if (self.train_only or self.trained) and (self.kind, self.faiss) != ("dense", "ivfpq"):
            raise ConfigError("only --kind dense --faiss ivfpq is trained: the others need no training.")
        if self.train_only and (self.part or self.trained):
            raise ConfigError("training is for all parts: leave out --part and --trained with --train_only.")

    @property
    def cutting(self) -> Cutting:
        """How documents are cut."""
        return Cutting(self.passage_words, self.passage_overlap)


@dataclass(frozen=True)
class Bm25:
    """BM25's parameters and the index fields that are searched; the scores of several fields add.

    Its ``repr`` is part of a retriever's fingerprint: a renamed field makes every run's index another one.
    """

    k1: float
    b: float
    fields: tuple[str, ...]

    @classmethod
    def from_config(cls, config: RetrieverConfig) -> Bm25:
        """Resolve a preset and what replaces its values. Raises :class:`ConfigError` for impossible ones."""
        preset = BM25_PRESETS[config.bm25]
        k1 = preset.k1 if config.k1 is None else config.k1
        b = preset.b if config.b is None else config.b
        if k1 < 0 or not 0 <= b <= 1:
            raise ConfigError(f"BM25 needs k1 >= 0 and 0 <= b <= 1, but got k1={k1}, b={b}.")
        return cls(k1, b, preset.fields)


# What the option ``bm25`` may say. This one is Anserini's default; a method whose paper searched otherwise
# has its own added from a floor above.
BM25_PRESETS = {"pyserini": Bm25(0.9, 0.4, ("contents",))}


def register_bm25(name: str, preset: Bm25) -> None:
    """Make a preset known under a name, in this process; ``fields`` are of contents, title and text."""
    BM25_PRESETS[name] = preset


@dataclass(frozen=True)
class RetrieverConfig:
    """What to search, and how. Give ``index`` or ``url``.

    Attributes:
        index: Index folders, plain Lucene indexes or names of Pyserini's prebuilt ones; several are fused by
            reciprocal rank.
        url: Addresses of search servers over one and the same index, without user name, password or query;
            searches are spread over them. Of an index in parts, those of all parts, in any order: each search
            asks all. May stand in ``index``.
        bm25: Preset: "pyserini" (k1 0.9, b 0.4, title and text as one field), or one that a method registers,
            such as "ircot" (k1 1.2, b 0.75, two fields whose scores add).
        k1: Replaces the preset's k1.
        b: Replaces the preset's b.
        encoder: For dense indexes; "" = the one that the manifest names. A Pyserini FAISS folder needs it
            named.
        query_prefix: For a FAISS folder without a manifest; ours remember theirs.
        passages_from: For a FAISS folder without texts: the Lucene index (folder or prebuilt name) that has
            them.
        ef_search: Candidates looked at per search in an HNSW graph.
        nprobe: Clusters looked at per search in "ivfpq".
        threads: Threads per batch of searches; 0 = all cores.
        fusion_depth: Hits taken from each index before fusing.
        rrf_k: The constant of reciprocal rank fusion: a hit at rank r counts 1 / (rrf_k + r).
        reranker: Cross-encoder (Hugging Face name or local folder) that re-orders the hits; "" = none.
        rerank_depth: Hits that the cross-encoder sees per query.
        timeout_s: Seconds to wait for a search server's reply.
        retries: Further attempts after a search server failed to reply, with growing pauses.
        cache_size: Searches remembered (query and k); 0 = none.

    Raises:
        ConfigError: For an unknown preset, an address that holds a secret, or a number that cannot work.
    """

    # How fast a search is, and how long a server is waited for. None of them is in a retriever's fingerprint
    # either.
    ENVIRONMENT: ClassVar[tuple[str, ...]] = ("threads", "timeout_s", "retries", "cache_size")
    OFTEN: ClassVar[tuple[str, ...]] = ("index", "url", "bm25")

    index: list[str] = field(default_factory=list)
    url: list[str] = field(default_factory=list)
    bm25: str = "pyserini"
    k1: float | None = None
    b: float | None = None
    encoder: str = ""
    query_prefix: str = ""
    passages_from: str = ""
    ef_search: int = 128
    nprobe: int = 32
    threads: int = 0
    fusion_depth: int = 100
    rrf_k: int = 60  # Cormack, Clarke and Buettcher 2009
    reranker: str = ""
    rerank_depth: int = 50
    timeout_s: float = 30.0
    retries: int = 3
    cache_size: int = 100_000  # at 5 passages of 100 words some hundred MB at most

    def __post_init__(self) -> None:
        served = [name for name in self.index if name.startswith(("http://", "https://"))]
        if served and served == list(self.index) and not self.url:
            object.__setattr__(self, "url", served)
            object.__setattr__(self, "index", [])
        elif served:
            raise ConfigError("an index is searched here or through servers: give folders or addresses.")
        if self.bm25 not in BM25_PRESETS:
            raise ConfigError(f"unknown BM25 preset '{self.bm25}': {nearest(self.bm25, BM25_PRESETS)}")
        if hold_secrets(self.url):
            raise ConfigError(
                "an address in --retriever.url holds a user name, a password or a query: give the address "
                "alone. A search server that wants a key is reached through a proxy of yours that adds it."
            )
        _refuse_below(self, 1, ("ef_search", "nprobe", "fusion_depth", "rerank_depth"))
        _refuse_below(self, 0, ("rrf_k", "threads", "retries", "cache_size"))
        if self.timeout_s <= 0:
            raise ConfigError(f"timeout_s must be above 0 seconds, but is {self.timeout_s}.")


def _refuse_below(config: IndexConfig | RetrieverConfig, least: int, names: Sequence[str]) -> None:
    for name in names:
        value = getattr(config, name)
        if value < least:
            raise ConfigError(f"{name} must be at least {least}, but is {value}.")
