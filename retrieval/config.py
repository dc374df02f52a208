"""What can be set about building an index and about searching one."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, ClassVar, Literal

from annotated_types import Ge, Gt, Le

from corag.core.errors import ConfigError, nearest
from corag.core.options.classes import Options
from corag.core.options.names import LocalPath, Mark, NameOrPath
from corag.core.web.servers import check_addresses, is_address
from corag.data.fields import parse_columns
from retrieval.corpora.formats import AUTO, check_columns, check_format
from retrieval.corpora.passages import PASSAGE_FIELDS, Reading
from retrieval.dense.placement import Placement, Precision
from retrieval.dense.prompts import AUTO as OWN_PROMPT
from retrieval.documents.passages import Cutting
from retrieval.index.manifest import IndexKind, IndexPart
from retrieval.lucene.languages import ENGLISH, check_language

# A further kind needs: its options below; its settings in ``_settings`` of index/build.py, and in
# ``EncodedVectors`` of index/vectors.py what can be refused before encoding; how it is made, in
# ``build_faiss`` of dense/faiss_build.py; what is set for searching, in ``FaissIndex`` of dense/search.py.
FaissKind = Literal["flat", "hnsw", "hnsw_sq8", "sq8", "ivfpq"]
GRAPHS = ("hnsw", "hnsw_sq8")
Refine = Literal["fp16", "sq8", "none"]

MAIN = "main"


@dataclass(frozen=True)
class IndexConfig(Options):
    """How to turn a corpus into an index folder.

    Raises:
        ConfigError: For an unknown format, or a number that cannot work.
    """

    corpus: list[NameOrPath]
    """Folders and documents (.txt, .md, .html, .pdf, .docx, .pptx, .xlsx, ...), or files that hold passages
    as they stand, read in this order (.gz and .zst are unpacked on the way); folders of Parquet
    files; data sets of the hub, hub:OWNER/NAME (@REVISION, /FILES behind it), fetched if need be."""

    out: LocalPath
    """Output folder of the index. An existing index of documents that have changed is updated."""

    format: Annotated[str, Mark.PUBLIC] = AUTO
    """"auto" goes by the endings: "documents" for folders and documents, which are cut into passages (.jsonl
    files among them are passages as they stand), "table" for .csv, .tsv, .parquet and .arrow, else "jsonl".
    By name: "jsonl", "beir" (JSON lines or a JSON list, with an id, a title and a text), "table", "dpr" (a
    table of id, text, title where no header says otherwise; also wiki18), "kilt" (its knowledge source, or
    corag/kilt-corpus; ids begin with the page's wikipedia_id); "hotpotqa", "2wikimultihopqa", "musique" and
    "popqa" pool the paragraphs of that dataset's question files."""

    columns: Annotated[list[str], Mark.PUBLIC] = field(default_factory=list)
    """Field names of text, title, id, source or page in your file if they are unusual, such as
    text=body,title=name. Nested fields are written with a dot (text=page.body)."""

    encoding: Annotated[str, Mark.PUBLIC] = ""
    """Encoding of files of passages that are not UTF-8, such as cp1252; "" takes the likeliest and says
    which."""

    delimiter: Annotated[str, Mark.PUBLIC] = ""
    """Between the cells of a table of passages, such as ;; "" is a comma for .csv and a tab for .tsv."""

    strict: bool = False
    """Refuse a corpus at its first invalid record; otherwise such records are skipped and counted."""

    kind: IndexKind = "bm25"
    """"bm25" (Lucene) or "dense" (vectors, in FAISS)."""

    encoder: NameOrPath = "default"
    """"default" (all-MiniLM-L6-v2), a Hugging Face name, a local sentence-transformers folder, or a server of
    embeddings (vLLM, TEI, Ollama, OpenAI): http://host:8000/v1, with #MODEL behind it where it serves
    several; a key stands in CORAG_ENCODER_API_KEY."""

    query_prefix: str = OWN_PROMPT
    """Put before every query, such as "query: " for E5 (kept in the index's manifest); "auto" = what the
    encoder brings (its ``prompts``), or else its authors' card asks for; "" = nothing."""

    passage_prefix: str = OWN_PROMPT
    """Put before every passage, such as "passage: " for E5; "auto" as above."""

    passage_words: Annotated[int, Ge(1)] | Literal["auto"] = Cutting.words
    """Maximum words of a passage cut from a document; "auto" = as many as the encoder reads, at most 180. The
    encoder's limit always holds."""

    passage_overlap: Annotated[int, Ge(0)] = Cutting.overlap
    """Maximum words that a passage repeats from the previous one, in whole sentences."""

    html: Literal["whole", "main"] = "whole"
    """What is read of web pages: "whole" (all but navigation, footers and the like, by their markup) or
    "main" (the article alone, found by trafilatura: far less boilerplate, slightly less text)."""

    max_passage_tokens: Annotated[int, Ge(0)] = 0
    """Tokens of a passage that are encoded, from its start; 0 = the encoder's own limit."""

    faiss: FaissKind | None = None
    """With --kind dense: "flat" (exact, default), "hnsw" (graph), "hnsw_sq8" (graph, 8 bits per dimension),
    "sq8" (no graph, 8 bits per dimension), "ivfpq" (highest compression)."""

    language: str = ENGLISH
    """BM25's analyser (tokenisation and stemming): "en", "de", "zh", "ja", "ar", ...; "standard" tokenises
    any language without stemming. Searches use the same."""

    # A denser graph than Lucene's own default (16, 100): it finds more and takes longer to build.
    hnsw_m: Annotated[int, Ge(1)] = 32
    """Neighbours per node of an HNSW graph."""

    hnsw_ef_construction: Annotated[int, Ge(1)] = 200
    """Candidates considered when an HNSW graph is built (efConstruction)."""

    ivf_lists: Annotated[int, Ge(0)] = 0
    """Number of lists of "ivfpq"; 0 = four times the square root of the number of passages, but at most one
    for 39 passages."""

    pq_bytes: Annotated[int, Ge(1)] = 64  # six dimensions of the default encoder to a byte
    """Bytes per passage of "ivfpq"; must divide the encoder's dimension."""

    refine: Refine | None = None
    """The vectors by which "ivfpq" scores its ten best candidates per hit again, on disk beside it: "fp16"
    (its default; 2 bytes per number), "sq8" (1), "none"."""

    device: str = "auto"
    """Where the encoder runs, such as "cpu" or "cuda:1"; "auto" = a GPU if there is one."""

    encoder_dtype: Precision = "auto"
    """Precision of the encoder: "bfloat16" is several times as fast on a GPU and moves a cosine by less than
    0.01; "auto" = bfloat16 on a GPU that computes in it, else that of its weights' files, mostly float32. The
    index records it."""

    batch_size: Annotated[int, Ge(0)] = 0
    """Passages that the encoder takes at once; 0 = 64 on a CPU and 512 on a GPU."""

    shard_size: Annotated[int, Ge(1)] = 4096
    """Passages per shard of encoding. It counts as a setting of the index. An interruption loses a shard's
    vectors at most."""

    threads: Annotated[int, Ge(0)] = 0
    """Threads of Lucene and FAISS while building; 0 = all cores."""

    overwrite: bool = False
    """Replace any index in ``out`` (also ``replace``), even one with other settings or of files that are
    mostly gone. The old index is searched until the new one is complete."""

    part: str = ""
    """Build one part of an index, such as "2/4": the second quarter of the passages. It is flat, whatever
    ``faiss`` says. Parts are served separately, and searching all equals searching the whole flat index; or
    they are put together (``merge``). Dense only."""

    vectors: list[LocalPath] = field(default_factory=list)
    """Files of vectors that ``encoder`` made elsewhere, one per record in the corpus's order (.npy, .pt,
    .memmap of float32, or a FAISS index that keeps its vectors; 'shards/*.pt'): nothing is encoded but a few
    passages, to check them."""

    merge: list[LocalPath] = field(default_factory=list)
    """Folders of all parts of this index (``part``): their vectors are put into one index of any ``faiss``,
    and nothing is encoded."""

    long_units: LocalPath = ""
    """Also write the index's passages grouped into long units, which ``longrag`` reads, to this file."""

    long_unit_links: Literal["auto", "field", "mentions", "title"] = "auto"
    """What relates documents in ``long_units``: "field" (records have ``links``, a list of titles or ids),
    "mentions" (a text names another document's title, as hyperlinks mostly do), "title" (nothing: a unit is
    what shares a title, or a file), or "auto": "field" if any record has links, else "title"."""

    long_unit_words: Annotated[int, Ge(1)] = 3000
    """Words of a unit at most; 3,000 are about the paper's 4,000 tokens."""

    ALIASES: ClassVar[dict[str, str]] = {"replace": "overwrite"}

    def __post_init__(self) -> None:
        check_format(self.format)
        check_language(self.language)
        check_columns(self.format, self.reading)
        if (self.vectors or self.merge) and self.kind == "bm25":
            object.__setattr__(self, "kind", "dense")
        if self.part:
            IndexPart.parse(self.part)
            if self.kind != "dense":
                raise ConfigError(
                    "only dense indexes have parts: scores of Lucene's depend on how often words are in all "
                    "passages, so its index stays whole (it needs little memory)."
                )
        if self.merge and (self.part or self.vectors):
            raise ConfigError("merge has all vectors of an index: leave out 'part' and 'vectors' with it.")
        if self.kind == "dense" and (self.part or self.faiss is None):
            object.__setattr__(self, "faiss", "flat")
        if self.kind == "dense" and self.faiss == "ivfpq" and self.refine is None:
            object.__setattr__(self, "refine", "fp16")
        self.cutting  # noqa: B018 - refuses what it cannot be

    @property
    def reading(self) -> Reading:
        """How the corpus's files are read."""
        return Reading(parse_columns(self.columns, PASSAGE_FIELDS), self.encoding, self.delimiter)

    @property
    def placement(self) -> Placement:
        """How the encoder runs."""
        return Placement(self.device, self.encoder_dtype, self.batch_size, encodes_corpus=True)

    @property
    def cutting(self) -> Cutting:
        """How documents are cut, as far as that is known without the encoder."""
        words = Cutting.words if self.passage_words == "auto" else self.passage_words
        return Cutting(words, self.passage_overlap)


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
        """Resolve a preset and what replaces its values."""
        preset = BM25_PRESETS[config.bm25]
        k1 = preset.k1 if config.k1 is None else config.k1
        b = preset.b if config.b is None else config.b
        return cls(k1, b, preset.fields)


# What the option ``bm25`` may say. This one is Anserini's default; a method whose paper searched otherwise
# has its own added from a package above.
BM25_PRESETS = {"pyserini": Bm25(0.9, 0.4, ("contents",))}


def register_bm25(name: str, preset: Bm25) -> None:
    """Make a preset known under a name, in this process; ``fields`` are of contents, title and text."""
    BM25_PRESETS[name] = preset


@dataclass(frozen=True)
class RetrieverConfig(Options, section="retriever"):
    """What to search, and how. Give ``index`` or ``url``.

    Raises:
        ConfigError: For an unknown preset, an address that holds a secret, or a number that cannot work.
    """

    # The environment is how fast a search is, and how long a server is waited for: none of it is in a
    # retriever's fingerprint either.
    index: Annotated[list[NameOrPath], Mark.OFTEN] = field(default_factory=list)
    """Index folders, plain Lucene indexes, names of Pyserini's prebuilt ones, or FILE.py:NAME of your own
    retriever; several are fused by reciprocal rank."""

    url: Annotated[list[str], Mark.OFTEN, Mark.PRIVATE] = field(default_factory=list)
    """Addresses of search servers for one index, without user name, password or query; searches are
    load-balanced. For an index in parts, the addresses of all parts, in any order: every search queries all
    of them. May be given as ``index``."""

    bm25: Annotated[str, Mark.OFTEN] = "pyserini"
    """Preset: "pyserini" (k1 0.9, b 0.4, title and text as one field), or one that a method registers, such
    as "ircot" (k1 1.2, b 0.75, two fields whose scores add)."""

    k1: Annotated[float, Ge(0)] | None = None
    """Overrides the preset's k1."""

    b: Annotated[float, Ge(0), Le(1)] | None = None
    """Overrides the preset's b."""

    language: str = ""
    """Of the analyser of a Lucene index without a manifest, such as Pyserini's for MIRACL; "" = the
    manifest's, else English."""

    encoder: NameOrPath = ""
    """For dense indexes; "" = the one that the manifest names. A Pyserini FAISS folder needs it named. A
    server's address will do: http://host:8000/v1, or with #MODEL."""

    hop_encoder: NameOrPath = ""
    """Folder or name of the query encoder for later hops (sub-queries, thoughts), with the same passage
    vectors; the question is encoded by ``encoder``. "" = ``encoder`` for both. An index that is served has it
    from `corag serve`."""

    query_prefix: Annotated[str, Mark.PUBLIC] = OWN_PROMPT
    """For a FAISS folder without a manifest (ours remember theirs); "auto" = what the encoder brings, "" =
    nothing."""

    passages_from: NameOrPath = ""
    """For a FAISS folder without texts: the Lucene index (folder or prebuilt name) that has them."""

    passage_encoder: NameOrPath = ""
    """For such a folder, where passages were encoded by another model than queries (DPR): a few are encoded
    again with it, to check the vectors."""

    ef_search: Annotated[int, Ge(1)] = 128
    """Candidates considered per search in an HNSW graph (efSearch)."""

    nprobe: Annotated[int, Ge(1)] = 128
    """Clusters searched in "ivfpq"."""

    threads: Annotated[int, Ge(0), Mark.ENVIRONMENT] = 0
    """Threads per batch of searches; 0 = all cores."""

    search_device: Annotated[str, Mark.ENVIRONMENT] = AUTO
    """Device for exact vector search: "auto" = all GPUs if the vectors are 1 GiB or more and take no more
    than a quarter of each, else FAISS; "" = FAISS on the CPU; "cuda" = all GPUs, "cuda:0,cuda:1" = these,
    "cpu" = torch in bfloat16. Results are the same."""

    fusion_depth: Annotated[int, Ge(1)] = 100
    """Hits taken from each index for fusion."""

    links: Annotated[Literal["none", "titles"], Mark.OFTEN] = "none"
    """"titles" follows title links: passages whose titles the query names rank first, and those whose titles
    the best hits mention move up. For other sources than `corag index` folders (a server, your own retriever,
    a plain Lucene index) only the first 100 hits are linked."""

    link_seeds: Annotated[int, Ge(1)] = 5
    """Hits whose texts are scanned for titles."""

    link_weight: Annotated[float, Ge(0)] = 0.7
    """Share of a hit's score that a passage mentioned there receives."""

    link_named: Annotated[int, Ge(0)] = 4
    """Maximum number of passages ranked first because the query names their titles; 0 = none."""

    reranker: NameOrPath = ""
    """Cross-encoder that re-orders the hits: a Hugging Face name, a local folder, or a server with /rerank
    (vLLM, Jina, Cohere, llama.cpp): http://host:8000, or with #MODEL, its key in CORAG_RERANKER_API_KEY; "" =
    none."""

    rerank_depth: Annotated[int, Ge(1)] = 50
    """Hits re-ranked per query."""

    device: Annotated[str, Mark.ENVIRONMENT] = "auto"
    """Where the encoder and the re-ranker run, such as "cpu" or "cuda:1"; "auto" = a GPU if there is one,
    beside the language model."""

    encoder_dtype: Precision = "auto"
    """Precision of encoder and re-ranker, such as "bfloat16"; "auto" = that of their weights' files."""

    encoder_batch: Annotated[int, Ge(0), Mark.ENVIRONMENT] = 0
    """Batch size of encoder and re-ranker; 0 = 64 on a CPU and 512 on a GPU."""

    timeout_s: Annotated[float, Gt(0), Mark.ENVIRONMENT] = 30.0
    """Timeout in seconds of a request to a search server, encoder or re-ranker."""

    retries: Annotated[int, Ge(0), Mark.ENVIRONMENT] = 3
    """Retries of such a request, with growing delays."""

    cache_size: Annotated[int, Ge(0), Mark.ENVIRONMENT] = (
        100_000  # at 5 passages of 100 words some hundred MB at most
    )
    """Cached searches (by query and k); 0 = none."""

    def __post_init__(self) -> None:
        addresses = [name for name in self.index if is_address(name)]
        if addresses and addresses == list(self.index) and not self.url:
            object.__setattr__(self, "url", addresses)
            object.__setattr__(self, "index", [])
        elif addresses:
            raise ConfigError("an index is searched here or through servers: give folders or addresses.")
        if self.bm25 not in BM25_PRESETS:
            raise ConfigError(f"unknown BM25 preset '{self.bm25}': {nearest(self.bm25, BM25_PRESETS)}")
        if self.language:
            check_language(self.language)
        check_addresses(self.url, "retriever.url", "reach a server that wants a key by a proxy that adds it")

    @property
    def placement(self) -> Placement:
        """How the encoder and the re-ranker run."""
        return Placement(self.device, self.encoder_dtype, self.encoder_batch, self.timeout_s, self.retries)
