"""Preferences: of two sub-queries that sampling tried at the same place, the one that helped more.

A chain of retrieval is learned from one step at a time, so a pair is two next sub-queries after the same
hops of the same question. Which one is chosen is said by the gold answer's log-likelihood, which sampling
measures after every hop: of the hop that the sub-query made, or of where the chains through it ended.

Prompts and tokens are those of decoding, as in ``data.py``. Nothing is searched or asked again.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar, Literal

from corag.chains.chain import Chain, Hop
from corag.chains.config import CoRAGConfig
from corag.chains.prompting import continuation, sub_query_prompt
from corag.core.errors import ConfigError, DataError, RequestRefusedError
from corag.core.installation import require
from corag.core.json_types import to_json_types
from corag.core.option_names import LocalPath, NameOrPath
from corag.core.options import Options
from corag.core.prompting.prompt import Shortening
from corag.core.protocols import ScoreRequest
from corag.core.text import normalize_answer
from corag.generation.models import model_folder
from corag.generation.rendering import Renderer
from corag.generation.thinking import ThinkingOptions
from training import tables
from training.chains import ChainRow, load_corag_options, read_chains, thought_folders
from training.data import is_validation

REPORT = "pairs.json"
# Upper ends of the bins of margins, in log-likelihood per token.
_EDGES = (0.1, 0.25, 0.5, 1.0, 2.0, 4.0, math.inf)


@dataclass(frozen=True)
class PairsConfig(Options):
    """Which pairs are made.

    Attributes:
        by: a sub-query is worth the gold answer's mean log-likelihood per token after its own "hop", or at
            the end of the chains through it ("chain", their mean: a good first step may pay later).
        margin: least difference of the two worths.
        per_question: pairs of a question at most, those of the widest margins; 0 for all.
        max_length: tokens of prompt and sub-query at most, and no more than the model was made to read; a
            longer prompt is shortened as in decoding.
        validation: share of the questions whose pairs are set aside for evaluation.
        seed: decides which questions are set aside.
    """

    by: Literal["hop", "chain"] = "hop"
    margin: float = 0.2
    per_question: int = 8
    max_length: int = 3072
    validation: float = 0.05
    seed: int = 0

    def __post_init__(self) -> None:
        if not self.margin > 0 or self.per_question < 0:
            raise ConfigError(
                "pairs need a margin above 0, else nothing tells the chosen from the rejected, and a "
                f"per_question of 0 (all) or more, but got {self.margin} and {self.per_question}."
            )
        if not 0 <= self.validation < 1 or self.max_length < 2:
            raise ConfigError(
                "pairs need a validation share in [0, 1) and a max_length of 2 tokens or more, but got "
                f"{self.validation} and {self.max_length}."
            )


@dataclass(frozen=True)
class MakePairsConfig(Options):
    """Options of 'corag pairs'.

    Attributes:
        chains: one or more folders that 'corag sample' wrote.
        out: folder of the pairs.
        model: the model that will be trained, whose tokenizer the pairs are written for: "default", a folder
            or a Hugging Face name.
        chat: whether prompts go through the model's chat template, as in decoding; auto does if it has one.
        template_args: further arguments of the chat template, as ``--model.template_args`` gives them in
            decoding.
        pairs: which pairs are made.
    """

    chains: list[LocalPath] = field(default_factory=list)
    out: LocalPath = ""
    model: NameOrPath = "default"
    chat: Literal["auto", "yes", "no"] = "auto"
    pairs: PairsConfig = field(default_factory=PairsConfig)
    template_args: dict[str, Any] = field(default_factory=dict)

    ALIASES: ClassVar[dict[str, str]] = {"llm": "model"}

    def __post_init__(self) -> None:
        if not self.chains or not self.out:
            raise ConfigError("name the chains and where the pairs go: corag pairs CHAINS --out PAIRS.")


@dataclass(frozen=True, slots=True)
class Sibling:
    """A next sub-query that sampling tried after some hops. ``worth``: mean log-likelihood per token."""

    sub_query: str
    worth: float
    is_cut: bool = False


@dataclass(frozen=True, slots=True)
class Preference:
    """Two siblings and the hops before them."""

    before: tuple[Hop, ...]
    better: Sibling
    worse: Sibling

    @property
    def margin(self) -> float:
        """How much more the better one is worth, above 0."""
        return self.better.worth - self.worse.worth


@dataclass(frozen=True, slots=True)
class PairRow:
    """A row of the dataset. ``hop``: of the sub-queries, counted from 1."""

    question_id: str
    hop: int
    margin: float
    prompt: str
    chosen: str
    rejected: str
    prompt_ids: list[int]
    chosen_ids: list[int]
    rejected_ids: list[int]

    @property
    def length(self) -> int:
        """Tokens of the prompt with the longer sub-query."""
        return len(self.prompt_ids) + max(len(self.chosen_ids), len(self.rejected_ids))


@dataclass
class PairLengths:
    """How many pairs of one split there are, and how long they are in tokens."""

    pairs: int = 0
    prompt_tokens: int = 0
    chosen_tokens: int = 0
    rejected_tokens: int = 0
    longest: int = 0

    def add(self, row: PairRow) -> None:
        """Count a pair."""
        self.pairs += 1
        self.prompt_tokens += len(row.prompt_ids)
        self.chosen_tokens += len(row.chosen_ids)
        self.rejected_tokens += len(row.rejected_ids)
        self.longest = max(self.longest, row.length)


@dataclass
class PairsReport:
    """What was written.

    Attributes:
        settings: all that the pairs depend on, the tokenizer's fingerprint among it.
        questions: those with a pair.
        left_out: questions without one, by reason.
        lengths: by split.
        margins: pairs by margin, in log-likelihood per token.
        mean_margin: of all pairs.
        hops: pairs by the hop that they are about.
        not_kept: pairs with the margin that are more than ``per_question``.
        shortened: how many of what a prompt lost to fit, by pair.
        cut: sub-queries that stand in no pair, since they were cut off at their limit of tokens.
        tokens: of all pairs: the prompt twice and both sub-queries.
        files: the question files that the chains were sampled for, by name.
    """

    settings: dict[str, Any]
    questions: int = 0
    left_out: dict[str, int] = field(default_factory=dict)
    lengths: dict[str, PairLengths] = field(default_factory=dict)
    margins: dict[str, int] = field(default_factory=dict)
    mean_margin: float = 0.0
    hops: dict[str, int] = field(default_factory=dict)
    not_kept: int = 0
    shortened: dict[str, dict[str, int]] = field(default_factory=dict)
    cut: int = 0
    tokens: int = 0
    files: list[str] = field(default_factory=list)

    def add(self, split: str, row: PairRow, shortening: Shortening) -> None:
        """Count a pair."""
        before = sum(lengths.pairs for lengths in self.lengths.values())
        self.lengths.setdefault(split, PairLengths()).add(row)
        self.mean_margin += (row.margin - self.mean_margin) / (before + 1)
        bin_ = next(edge for edge in _EDGES if row.margin <= edge)
        for counts, name in ((self.margins, f"to {bin_:g}"), (self.hops, str(row.hop))):
            counts[name] = counts.get(name, 0) + 1
        self.tokens += 2 * len(row.prompt_ids) + len(row.chosen_ids) + len(row.rejected_ids)
        if shortening:
            cut_counts = {"token": shortening.cut_tokens} if shortening.cut_tokens else {}
            name = f"hop {row.hop} of question '{row.question_id}'"
            self.shortened[name] = dict(shortening.dropped) | cut_counts

    def lines(self) -> Iterator[str]:
        """Write it for a reader."""
        yield (
            f"questions {self.questions}, left out {self.left_out or 0}; pairs beyond the limit of a "
            f"question: {self.not_kept}; sub-queries cut off: {self.cut}; prompts shortened: "
            f"{len(self.shortened)}"
        )
        margins = {name: self.margins[name] for edge in _EDGES if (name := f"to {edge:g}") in self.margins}
        yield f"margin {self.mean_margin:.3f} on average, {margins}; by hop {dict(sorted(self.hops.items()))}"
        heads = f"{'pairs':>7} {'prompt':>9} {'chosen':>9} {'rejected':>9} {'longest':>8}"
        yield f"{'split':<12} {heads}   (mean tokens)"
        for split, lengths in sorted(self.lengths.items()):
            sums = (lengths.prompt_tokens, lengths.chosen_tokens, lengths.rejected_tokens)
            means = " ".join(f"{tokens / lengths.pairs:>9.1f}" for tokens in sums)
            yield f"{split:<12} {lengths.pairs:>7} {means} {lengths.longest:>8}"


def make_pairs(config: MakePairsConfig) -> PairsReport:
    """Load the tokenizer and write the pairs. No index is opened: a sub-query's prompt has no passages."""
    require("making pairs", "transformers", "datasets")
    folder = model_folder(config.model, weights=False)
    length = tables.within_window(config.pairs.max_length, config.model, folder, "pairs")
    options = replace(config.pairs, max_length=length)
    renderer = Renderer.load(folder, config.chat, ThinkingOptions("auto", config.template_args))
    return write_pairs([Path(chains) for chains in config.chains], Path(config.out), renderer, options)


def write_pairs(folders: Sequence[Path], out: Path, renderer: Renderer, config: PairsConfig) -> PairsReport:
    """Make the pairs of some folders of chains and write them to ``out``, splits train and validation.

    Pairs of the same chains and settings that are there already are left as they are. Raises
    :class:`ConfigError` if ``out`` holds others, or a prompt has changed since; :class:`DataError` if there
    is nothing to prefer.
    """
    corag = load_corag_options(folders)
    settings = to_json_types(
        {
            "chains": tables.identify(folders),
            "pairs": asdict(config),
            "tokenizer": renderer.fingerprint,
            **({"template_args": renderer.template_args} if renderer.template_args else {}),
        }
    )
    if (report_before := read_pairs_report(out)) is not None:
        tables.refuse_others(out, report_before.settings, settings)
        return report_before
    tables.make_room(out)
    report = PairsReport(settings, files=tables.question_files(folders))
    splits: dict[str, list[PairRow]] = {"train": [], "validation": []}
    # In an order that does not depend on which question was finished first.
    for row in sorted(read_chains(folders), key=lambda row: row.question.id):
        split = "validation" if is_validation(row.question.id, config) else "train"
        splits[split] += _make_question_pairs(row, renderer, config, corag, report, split)
    if not splits["train"]:
        if thought_folders(folders):
            raise DataError(
                f"{', '.join(map(str, folders))} holds IRCoT's thoughts, which are no pairs: sample chains "
                "with --sample.source model."
            )
        raise DataError(
            f"the chains in {', '.join(map(str, folders))} give no pairs to train on: {report.left_out}. "
            "Sample more chains per question, warmer ones, or choose a smaller --pairs.margin."
        )
    tables.save(
        out, {split: [_table(pairs)] if pairs else [] for split, pairs in splits.items()}, REPORT, report
    )
    return report


def read_pairs_report(folder: Path) -> PairsReport | None:
    """Read what was written to a folder of pairs; None if there are none."""
    return tables.read_report(folder / REPORT, PairsReport, PairLengths)


def preferences(row: ChainRow, by: Literal["hop", "chain"], margin: float) -> list[Preference]:
    """Return every pair of a question's siblings whose worths differ by ``margin`` or more, widest first."""
    pairs = [
        Preference(before, better, worse)
        for before, siblings in list_siblings(row, by).items()
        for better, worse in itertools.permutations([each for each in siblings if not each.is_cut], 2)
        if better.worth - worse.worth >= margin
    ]
    return sorted(pairs, key=lambda pair: -pair.margin)


def list_siblings(row: ChainRow, by: Literal["hop", "chain"]) -> dict[tuple[Hop, ...], list[Sibling]]:
    """Return the next sub-queries that a question's chains tried, by the hops before them.

    What the prompt shows of a hop, sub-query and sub-answer, makes it the same hop. Sub-queries that differ
    in spelling alone, as repeats are told, are one sibling, worth the mean. Hops without a score, as those
    of annotated chains, are left out.
    """
    siblings: dict[tuple[tuple[str, str], ...], dict[str, list[Sibling]]] = {}
    records: dict[tuple[tuple[str, str], ...], tuple[Hop, ...]] = {}
    for chain in row.chains:
        if row.is_annotated or len(chain.means) != len(chain.hops):
            continue
        for number, (hop, after) in enumerate(zip(chain.hops, chain.means, strict=True)):
            worth = after if by == "hop" else chain.means[-1]
            if not math.isfinite(worth):
                continue
            before = tuple((each.sub_query, each.sub_answer) for each in chain.hops[:number])
            records.setdefault(before, chain.hops[:number])
            group = siblings.setdefault(before, {}).setdefault(normalize_answer(hop.sub_query), [])
            group.append(Sibling(hop.sub_query, worth, hop.query_cut))
    return {
        records[before]: [
            replace(same[0], worth=sum(each.worth for each in same) / len(same)) for same in group.values()
        ]
        for before, group in siblings.items()
    }


def _make_question_pairs(
    row: ChainRow,
    renderer: Renderer,
    config: PairsConfig,
    corag: CoRAGConfig,
    report: PairsReport,
    split: str,
) -> list[PairRow]:
    """Return a question's pairs, and note in the report what came of it."""
    siblings = list_siblings(row, config.by)
    report.cut += sum(each.is_cut for group in siblings.values() for each in group)
    pairs = preferences(row, config.by, config.margin)
    best_pairs = pairs[: config.per_question or None]
    report.not_kept += len(pairs) - len(best_pairs)
    if not best_pairs:
        without_siblings = all(len(group) < 2 for group in siblings.values())
        why = "failed" if row.error else "no siblings" if without_siblings else "no margin"
        report.left_out[why] = report.left_out.get(why, 0) + 1
        return []
    report.questions += 1
    rows = []
    for pair in best_pairs:
        pair_row, shortening = tokenise_pair(row, pair, renderer, config, corag)
        report.add(split, pair_row, shortening)
        rows.append(pair_row)
    return rows


def tokenise_pair(
    row: ChainRow, pair: Preference, renderer: Renderer, config: PairsConfig, corag: CoRAGConfig
) -> tuple[PairRow, Shortening]:
    """Turn a pair into tokens: the prompt as decoding asks it, and each sub-query with the end of its turn.

    Raises :class:`DataError` naming the question if the prompt does not fit.
    """
    chain, hop = Chain(pair.before), len(pair.before) + 1
    prompt = corag.conventions.fit_hop(sub_query_prompt(row.question.text, chain, corag), renderer.count)
    better, worse = (continuation(prompt, each.sub_query) for each in (pair.better, pair.worse))
    targets = [renderer.target_ids(ScoreRequest(prompt, text, end_of_turn=True)) for text in (better, worse)]
    try:
        room = config.max_length - max(map(len, targets))
        ids, shortening = renderer.encode_within(prompt, room)
    except RequestRefusedError as error:
        raise DataError(
            f"hop {hop} of question '{row.question.id}' does not fit into pairs of {config.max_length} "
            f"tokens ({error}): choose a larger --pairs.max_length."
        ) from None
    names = (row.question.id, hop, pair.margin, prompt.text, better, worse)
    pair_row = PairRow(*names, ids, *targets)
    return pair_row, shortening


def _table(pairs: Sequence[PairRow]) -> Any:
    import datasets

    tokens = datasets.List(datasets.Value("int32"))
    kinds = {"hop": datasets.Value("int32"), "margin": datasets.Value("float32")}
    features = datasets.Features(
        {name: datasets.Value("string") for name in ("question_id", "prompt", "chosen", "rejected")}
        | kinds
        | dict.fromkeys(("prompt_ids", "chosen_ids", "rejected_ids"), tokens)
    )
    return datasets.Dataset.from_list([asdict(pair) for pair in pairs], features=features)
