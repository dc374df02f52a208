"""Pairs that a retriever learns from: a query of a hop, the passages that answer it, and some that do not.

Queries are the gold sub-questions of a dataset, the sub-queries of kept chains, the questions themselves and,
of questions without sub-questions, the question with the title of the passage that comes first. Wrong
passages come from the search of ``--retriever``: what ranks high, or is linked, and is not gold. No model is
asked.

Karpukhin et al. 2020 (DPR), section 3.2, for BM25's hits as negatives; Xiong et al. 2021 (MDR), section 3,
for the next passage's query.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated, Any, ClassVar

from annotated_types import Ge, Lt

from corag.chains.search_text import SearchText, search_text
from corag.core.errors import ConfigError, DataError
from corag.core.json_types import to_json_types
from corag.core.language.text import mentions, normalize_answer
from corag.core.options.classes import Options
from corag.core.options.names import LocalPath
from corag.core.protocols import Retriever
from corag.core.runs.provenance import settings_of
from corag.core.system.installation import require
from corag.core.types import GoldHop, Passage, Question
from eval.datasets.gold_names import bare_name, passage_names
from eval.datasets.reasoning import as_question, resolve
from eval.experiment.backends import open_index_or_client, require_index
from eval.experiment.questions import QuestionFile
from retrieval.config import RetrieverConfig
from retrieval.index.aliases import Aliases
from retrieval.search.titles import without_brackets
from training import tables
from training.chains import ChainRow, read_chains
from training.data import is_validation

REPORT = "retriever_pairs.json"
_QUESTIONS_AT_ONCE = 200  # searched at the same time, and held with their passages


@dataclass(frozen=True)
class RetrieverPairsConfig(Options):
    """Which pairs are made."""

    text: SearchText = "sub_query"
    """what a sub-query is searched with, as --corag.search_text says it in decoding."""

    negatives: Annotated[int, Ge(1)] = 8
    """wrong passages of a query at most, the best ranked ones."""

    depth: Annotated[int, Ge(1)] = 30
    """hits of the search that they are taken from."""

    whole: bool = True
    """whether the question itself is a query too, with all gold passages."""

    validation: Annotated[float, Ge(0), Lt(1)] = 0.05
    """share of the questions whose pairs are set aside for evaluation."""

    seed: int = 0
    """decides which questions are set aside."""


@dataclass(frozen=True)
class MakeRetrieverPairsConfig(QuestionFile):
    """Options of 'corag pairs'."""

    chains: list[LocalPath] = field(default_factory=list)
    """folders that 'corag sample' wrote, whose kept chains' sub-queries are queries."""

    out: LocalPath = ""
    """folder of the pairs."""

    pairs: RetrieverPairsConfig = field(default_factory=RetrieverPairsConfig)
    """which pairs are made."""

    retriever: RetrieverConfig = field(default_factory=RetrieverConfig)
    """the index of the questions' passages, whose search the wrong passages come from; with ``links titles``
    linked ones too."""

    ALIASES: ClassVar[dict[str, str]] = {"index": "retriever.index"}

    def __post_init__(self) -> None:
        if not self.out or not (self.questions or self.chains):
            raise ConfigError(
                "name questions with gold passages, or chains, and where the pairs go: corag pairs "
                "--questions FILE --dataset NAME --retriever.index INDEX --out PAIRS."
            )
        if self.questions:
            super().__post_init__()
        require_index(self.retriever)


@dataclass(frozen=True, slots=True)
class HopQuery:
    """A query, before it is searched.

    Attributes:
        kind: "question", "sub_query" (of a decomposition), "chain" (of a kept chain) or "next" (the question
            with the title of the passage before).
        hop: counted from 1; 0 for the whole question.
        text: what is searched for.
        positives: ids of the passages that answer it.
        answers: a hit that holds one of these is no wrong passage, whether gold or not.
    """

    kind: str
    hop: int
    text: str
    positives: tuple[str, ...]
    answers: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class RetrieverPair:
    """A row of the dataset: a query with right and wrong passages, as encoders and re-rankers read them."""

    question_id: str
    kind: str
    hop: int
    query: str
    positives: list[str]
    negatives: list[str]


@dataclass
class PairCounts:
    """How many queries of one kind and split there are, with how many passages."""

    queries: int = 0
    positives: int = 0
    negatives: int = 0


@dataclass
class RetrieverPairsReport:
    """What was written.

    Attributes:
        settings: all that the pairs depend on.
        questions: those with a pair.
        left_out: queries without a row, by reason.
        lengths: counts by "split/kind".
        hops: queries by the hop that they are of.
    """

    settings: dict[str, Any]
    questions: int = 0
    left_out: dict[str, int] = field(default_factory=dict)
    lengths: dict[str, PairCounts] = field(default_factory=dict)
    hops: dict[str, int] = field(default_factory=dict)

    def add(self, split: str, pair: RetrieverPair) -> None:
        """Count a row."""
        counts = self.lengths.setdefault(f"{split}/{pair.kind}", PairCounts())
        counts.queries += 1
        counts.positives += len(pair.positives)
        counts.negatives += len(pair.negatives)
        self.hops[str(pair.hop)] = self.hops.get(str(pair.hop), 0) + 1

    def leave_out(self, reason: str) -> None:
        """Count a query without a row."""
        self.left_out[reason] = self.left_out.get(reason, 0) + 1

    def lines(self) -> Iterator[str]:
        """Write it for a reader."""
        yield f"questions {self.questions}; queries by hop {dict(sorted(self.hops.items()))}"
        yield f"queries left out: {self.left_out or 0}"
        yield f"{'split/kind':<22} {'queries':>8} {'right':>7} {'wrong':>7}   (mean passages)"
        for name, each in sorted(self.lengths.items()):
            right, wrong = each.positives / each.queries, each.negatives / each.queries
            yield f"{name:<22} {each.queries:>8} {right:>7.2f} {wrong:>7.2f}"


async def make_retriever_pairs(config: MakeRetrieverPairsConfig) -> RetrieverPairsReport:
    """Load questions and chains, open the index, and write the pairs."""
    require("making pairs", "datasets")
    folders = [Path(each) for each in config.chains]
    chains = {row.question.id: row for row in read_chains(folders)}
    questions = {each.id: each for each in (config.load() if config.questions else ())}
    questions |= {name: row.question for name, row in chains.items() if name not in questions}
    async with open_index_or_client(config.retriever) as retriever:
        settings: dict[str, Any] = to_json_types(
            {
                "chains": tables.identify(folders),
                "questions": config.source if config.questions else {},
                "ids": sorted(questions),
                "pairs": settings_of(config.pairs),
                "retriever": retriever.fingerprint,
            }
        )
        report = RetrieverPairsReport(settings)
        return await write_retriever_pairs(
            list(questions.values()), chains, Path(config.out), retriever, config.pairs, report
        )


async def write_retriever_pairs(
    questions: Sequence[Question],
    chains: Mapping[str, ChainRow],
    out: Path,
    retriever: Retriever,
    config: RetrieverPairsConfig,
    report: RetrieverPairsReport,
) -> RetrieverPairsReport:
    """Write the pairs of some questions and of their kept ``chains``, by question, to ``out``.

    ``report``: with the settings; it is filled. Pairs of the same settings that are there already are left as
    they are. Raises :class:`ConfigError` if ``out`` holds others, :class:`DataError` if there are none.
    """
    if (earlier := read_retriever_pairs_report(out)) is not None:
        tables.refuse_others(out, earlier.settings, report.settings)
        return earlier
    tables.make_room(out)
    splits: dict[str, list[RetrieverPair]] = {"train": [], "validation": []}
    sorted_questions = sorted(questions, key=lambda each: each.id)
    for start in range(0, len(sorted_questions), _QUESTIONS_AT_ONCE):
        chunk = sorted_questions[start : start + _QUESTIONS_AT_ONCE]
        pair_lists = await asyncio.gather(
            *(_question_pairs(each, chains.get(each.id), retriever, config, report) for each in chunk)
        )
        for question, pairs in zip(chunk, pair_lists, strict=True):
            split = "validation" if is_validation(question.id, config.seed, config.validation) else "train"
            splits[split] += pairs
            report.questions += bool(pairs)
            for pair in pairs:
                report.add(split, pair)
    if not splits["train"]:
        raise DataError(
            f"the questions give no pairs to train on; queries left out, by reason: {report.left_out or 0}. "
            "Pairs want questions with gold passages (supporting) that the index has, or kept chains."
        )
    tables.save(
        out, {split: [_table(pairs)] if pairs else [] for split, pairs in splits.items()}, REPORT, report
    )
    return report


def read_retriever_pairs_report(folder: Path) -> RetrieverPairsReport | None:
    """Read what was written to a folder of pairs; None if there are none."""
    return tables.read_report(folder / REPORT, RetrieverPairsReport, PairCounts)


async def _question_pairs(
    question: Question,
    row: ChainRow | None,
    retriever: Retriever,
    config: RetrieverPairsConfig,
    report: RetrieverPairsReport,
) -> list[RetrieverPair]:
    """Return a question's pairs, and count in the report what gave none."""
    hop_ids = [name for hop in row.chain.hops for name in hop.passage_ids] if row and row.chain else []
    names = [*question.supporting, *(hop.passage_id for hop in question.decomposition), *hop_ids]
    ids = dict.fromkeys(filter(None, names))
    passages = {each.id: each for each in await retriever.passages(list(ids))}
    for _ in set(question.supporting) - passages.keys():
        report.leave_out("gold passage whose id is not in the index")
    if not question.supporting and not hop_ids:
        report.leave_out("question without gold passages")
    queries = [*gold_queries(question, passages, config)]
    queries += chain_queries(row, passages, config) if row else ()
    distinct: dict[str, HopQuery] = {}
    for query in queries:
        if not query.positives:
            report.leave_out(f"{query.kind} without a passage that answers it")
        elif query.text in distinct:
            report.leave_out("twice for one question")
        else:
            distinct[query.text] = query
    pairs = await asyncio.gather(
        *(_search_negatives(question, each, passages, retriever, config) for each in distinct.values())
    )
    for pair in pairs:
        if not pair.negatives:
            report.leave_out("every hit is right")
    return [pair for pair in pairs if pair.negatives]


def gold_queries(
    question: Question, passages: Mapping[str, Passage], config: RetrieverPairsConfig
) -> Iterator[HopQuery]:
    """Yield the queries that a dataset's own annotation gives. ``passages``: by id, with the gold ones."""
    golds = [passages[name] for name in question.supporting if name in passages]
    if config.whole and golds:
        yield HopQuery("question", 0, question.text, tuple(each.id for each in golds), question.answers)
    answers: list[str] = []
    for number, hop in enumerate(question.decomposition, 1):
        sub_question = as_question(resolve(hop.question, answers))
        text = search_text(config.text, sub_question, question.text, answers[-1] if answers else "")
        right = tuple(each.id for each in gold_of_hop(hop, sub_question, golds))
        if hop.passage_id in passages:
            right = (hop.passage_id,)
        yield HopQuery("sub_query", number, text, right, (hop.answer,))
        answers.append(hop.answer)
    if not question.decomposition and len(golds) == 2:
        for first, second in _orders(question.text, *golds):
            text = f"{question.text} {first.title}"
            yield HopQuery("next", 2, text, (second.id,), question.answers)


def telling(answers: Iterable[str]) -> list[str]:
    """Return the answers that tell what a passage is about: "yes" and "no" stand in passages by chance."""
    return [each for each in answers if normalize_answer(each) not in ("", "yes", "no")]


def gold_of_hop(hop: GoldHop, sub_question: str, golds: Sequence[Passage]) -> list[Passage]:
    """Return which of a question's gold passages answer a sub-question, by title and answer; [] if unclear.

    ``sub_question``: the sub-question with the earlier answers in it.
    """
    with_title = [each for each in golds if mentions([sub_question], [without_brackets(each.title)])]
    holding = [each for each in golds if mentions([each.contents], telling([hop.answer]))]
    both = [each for each in with_title if each in holding]
    return next((each for each in (both, holding, with_title) if len(each) == 1), [])


def chain_queries(
    row: ChainRow, passages: Mapping[str, Passage], config: RetrieverPairsConfig
) -> Iterator[HopQuery]:
    """Yield the sub-queries of a question's kept chain that were answered.

    Right are the gold passages that the hop read and that hold its sub-answer; all that hold it, where the
    question has no gold passages.
    """
    last = ""
    for number, hop in enumerate(row.chain.hops if row.chain is not None else (), 1):
        if not hop.refused:
            hop_passages = [passages[name] for name in hop.passage_ids if name in passages]
            holding = [each for each in hop_passages if mentions([each.contents], telling([hop.sub_answer]))]
            gold = row.question.supporting
            right = tuple(each.id for each in holding if not gold or is_gold(each, gold, passages))
            text = search_text(config.text, hop.sub_query, row.question.text, last)
            yield HopQuery("chain", number, text, right, (hop.sub_answer,))
        last = "" if hop.refused else hop.sub_answer


def is_gold(passage: Passage, gold: Collection[str], passages: Mapping[str, Passage]) -> bool:
    """Whether a passage is what gold passages mean: one of their texts, a part of one, or of a file or title.

    ``passages``: by id, with the gold ones that the index has by theirs.
    """
    known_as = {*Aliases(numbered=True).names([passage.id]), *passage_names(passage)}
    known_as.update(map(bare_name, passage_names(passage)))
    # Of passages with the same text an index has one, which a search finds under the id of the first.
    is_same = passage.contents in [passages[name].contents for name in gold if name in passages]
    return is_same or not known_as.isdisjoint(gold)


def _orders(question: str, one: Passage, other: Passage) -> list[tuple[Passage, Passage]]:
    """Return in which order two gold passages are come upon: that which the question names first, or both."""
    names = [mentions([question], [without_brackets(each.title)]) for each in (one, other)]
    if names[0] != names[1]:
        return [(one, other) if names[0] else (other, one)]
    return [(one, other), (other, one)]


async def _search_negatives(
    question: Question,
    query: HopQuery,
    passages: Mapping[str, Passage],
    retriever: Retriever,
    config: RetrieverPairsConfig,
) -> RetrieverPair:
    """Return a query's row. Hits that hold its answer are left out: the dataset may not mark all that do."""
    answers = telling(query.answers)
    gold = (*query.positives, *question.supporting)
    # As decoding searches: what is asked on the way may have an encoder of its own.
    found = await retriever.search(query.text, config.depth, hop=query.kind != "question")
    hits = [hit.passage for hit in found]
    unlike = (each for each in hits if not is_gold(each, gold, passages))
    wrong = [each for each in unlike if not mentions([each.contents], answers)][: config.negatives]
    right = [passages[name] for name in query.positives]
    return RetrieverPair(
        question.id,
        query.kind,
        query.hop,
        query.text,
        [each.contents for each in right],
        [each.contents for each in wrong],
    )


def _table(pairs: Sequence[RetrieverPair]) -> Any:
    import datasets

    return datasets.Dataset.from_list([asdict(pair) for pair in pairs])
