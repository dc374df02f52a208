"""Sampled chains read back from disk, and what there is to say about them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from corag.chains.chain import Hop
from corag.chains.config import CoRAGConfig
from corag.core.errors import ConfigError, DataError, nearest
from corag.core.language.text import exact_match, mentions, stated_answer
from corag.core.runs.failures import Failures
from corag.core.runs.folder import read_attempts
from corag.core.runs.manifest import CHAINS, Manifest
from corag.core.runs.provenance import Provenance
from corag.core.runs.rows import SavedRow, log_likelihood
from corag.core.types import Question
from ircot.method import IRCoTConfig
from training.sampling import SampledChain
from training.thoughts import GoldThought


@dataclass(frozen=True, slots=True)
class ChainRow:
    """One question with its candidates.

    ``best``: the index of the chain that is kept; None if the question was left out or failed.
    ``is_annotated``: the chain is the dataset's, not sampled. ``thoughts``: IRCoT's, in place of chains.
    """

    question: Question
    context_ids: tuple[str, ...]
    chains: tuple[SampledChain, ...]
    best: int | None
    rejected: str
    error: str = ""
    is_annotated: bool = False
    thoughts: tuple[GoldThought, ...] = ()

    @property
    def chain(self) -> SampledChain | None:
        """The chain that is kept."""
        return None if self.best is None else self.chains[self.best]


def read_chains(folders: Sequence[Path]) -> list[ChainRow]:
    """Read the questions of one or more folders, in order.

    Raises :class:`DataError` if a folder is no folder of chains, or two of them sampled for the same
    question.
    """
    rows: dict[str, ChainRow] = {}
    for folder in folders:
        is_annotated = read_chain_manifest(folder).options["sample"]["source"] == "decomposition"
        folder_rows: dict[str, ChainRow] = {}
        for saved_row in read_attempts(folder):  # line by line: with their steps rows would not fit twice
            folder_rows[saved_row.question.id] = replace(_chain_row(saved_row), is_annotated=is_annotated)
        if twice := folder_rows.keys() & rows.keys():
            raise DataError(
                f"question '{min(twice)}' has chains in two of the folders: give folders of different "
                "questions."
            )
        rows |= folder_rows
    return list(rows.values())


def read_chain_manifest(folder: Path) -> Manifest:
    """Return what chains were sampled with.

    Raises :class:`DataError` if the folder is no folder of chains.
    """
    manifest = Manifest.read(folder)
    if manifest.method != CHAINS:
        raise DataError(
            f"'{folder}' holds answers of {manifest.method}, not chains: make some with 'corag sample'."
        )
    return manifest


def thought_folders(folders: Sequence[Path]) -> list[Path]:
    """Return those of some folders that hold thoughts in place of chains."""
    return [each for each in folders if read_chain_manifest(each).options["sample"]["source"] == "thoughts"]


def load_ircot_options(folders: Sequence[Path]) -> IRCoTConfig | None:
    """Return the options that the thoughts in some folders were collected with; None if there are none.

    Raises as :func:`load_corag_options` does.
    """
    folders = thought_folders(folders)
    if not folders:
        return None
    config = IRCoTConfig(**_shared_options(folders, "ircot"))
    _check_prompts(folders, [config.reasoning_template().identity])
    return config


def load_corag_options(folders: Sequence[Path]) -> CoRAGConfig:
    """Return the options that the chains were sampled with; the default ones if all are thoughts.

    Raises :class:`ConfigError` with the difference if folders differ, or a prompt has changed since: rows
    would then ask for other things than decoding does; :class:`DataError` if a folder is no folder of chains.
    """
    thoughts = thought_folders(folders)
    folders = [each for each in folders if each not in thoughts]
    if not folders:
        return CoRAGConfig()
    config = CoRAGConfig(**_shared_options(folders, "corag"))
    _check_prompts(folders, [each.identity for each in config.templates()])
    return config


def _shared_options(folders: Sequence[Path], method: str) -> dict[str, Any]:
    """Return a method's options, which all folders must share."""
    options: dict[str, Any] = read_chain_manifest(folders[0]).options[method]
    for other in folders[1:]:
        Provenance({method: read_chain_manifest(other).options[method]}).refuse_other(
            f"'{folders[0]}'",
            Provenance({method: options}),
            than=f"'{other}'",
            advice="Rows of one training set have one prompt: make their rows apart, or sample again.",
        )
    return options


def _check_prompts(folders: Sequence[Path], prompts: Sequence[str]) -> None:
    advice = "Sample again, or give the old prompts back: chains are what a model said to these very words."
    now = Provenance({f"prompt {number}": each for number, each in enumerate(prompts, 1)})
    for folder in folders:
        earlier = enumerate(read_chain_manifest(folder).prompts, 1)
        then = Provenance({f"prompt {number}": each for number, each in earlier})
        now.refuse_other(f"'{folder}'", then, advice=advice)


@dataclass(frozen=True, slots=True)
class Description:
    """Statistics of sampled chains.

    Attributes:
        questions: with a line in the folder, of which some ``failed`` and some are ``kept``.
        rejected: questions left out, by reason.
        chains: all candidates.
        answer_found: share of kept chains one of whose sub-answers holds the gold answer.
        answer_matched: share of those one of whose sub-answers is the gold answer.
        refused_hops: share of the kept chains' hops whose passages did not answer.
        mean_score: mean log-likelihood per token of the gold answer after the kept chains.
        lengths: kept chains by hops.
        stopped: kept chains by what ended them.
        reasons: why questions failed, and how many.
        thoughts: sentences of gold reasoning, where these were collected in place of chains.
        reasoned: questions with some.
    """

    questions: int
    failed: int
    kept: int
    rejected: dict[str, int]
    chains: int
    answer_found: float
    answer_matched: float
    refused_hops: float
    mean_score: float
    lengths: dict[str, int]
    stopped: dict[str, int]
    reasons: dict[str, int] = field(default_factory=dict)
    thoughts: int = 0
    reasoned: int = 0

    @property
    def failures(self) -> Failures:
        """The failed questions by reason."""
        return Failures(self.questions, self.reasons)

    def lines(self) -> Iterator[str]:
        """Write it for a reader."""
        left_out, holding, match_share = self.rejected or 0, self.answer_found, self.answer_matched
        if self.thoughts:
            yield (
                f"questions {self.questions}, failed {self.failed}, with thoughts {self.reasoned}, of which "
                f"{self.stopped.get('answer', 0)} reach the answer and the others end before it; thoughts "
                f"{self.thoughts}; left out {left_out}"
            )
            return
        yield f"questions {self.questions}, failed {self.failed}, kept {self.kept}, left out {left_out}"
        yield f"chains {self.chains}; of the kept: mean score {self.mean_score:.3f}, hops {self.lengths}"
        yield f"  a sub-answer holds the answer: {holding:.1%}; is the answer: {match_share:.1%}"
        yield f"  refused hops: {self.refused_hops:.1%}; ended by: {self.stopped}"


def describe(rows: Sequence[ChainRow]) -> Description:
    """Count what was sampled."""
    kept_chains = [(row, row.chain) for row in rows if row.chain is not None]
    hops = [hop for _, chain in kept_chains for hop in chain.hops]
    scores = [chain.means[-1] for _, chain in kept_chains]
    ends = [chain.stopped for _, chain in kept_chains]
    # Gold reasoning ends in the answer, or where the paragraphs do not hold its next step.
    last = [row.thoughts[-1].sentence for row in rows if row.thoughts]
    ends += ["unsupported" if stated_answer(each) is None else "answer" for each in last]
    return Description(
        questions=len(rows),
        failed=sum(bool(row.error) for row in rows),
        kept=len(kept_chains),
        rejected=dict(Counter(row.rejected for row in rows if row.rejected)),
        chains=sum(len(row.chains) for row in rows),
        answer_found=_share(
            mentions((hop.sub_answer for hop in chain.hops if not hop.refused), row.question.answers)
            for row, chain in kept_chains
        ),
        answer_matched=_share(
            any(exact_match(hop.sub_answer, row.question.answers) for hop in chain.hops)
            for row, chain in kept_chains
        ),
        refused_hops=_share(hop.refused for hop in hops),
        mean_score=sum(scores) / len(scores) if scores else 0.0,
        lengths={
            str(length): count
            for length, count in sorted(Counter(len(chain.hops) for _, chain in kept_chains).items())
        },
        stopped=dict(sorted(Counter(ends).items())),
        reasons=dict(Failures.count(row.error for row in rows).reasons),
        thoughts=sum(len(row.thoughts) for row in rows),
        reasoned=sum(bool(row.thoughts) for row in rows),
    )


def _share(flags: Iterator[bool]) -> float:
    values = list(flags)
    return sum(values) / len(values) if values else 0.0


def _chain_row(row: SavedRow) -> ChainRow:
    if row.answer is None:
        return ChainRow(row.question, (), (), None, "", row.error)
    record = row.further
    chains = tuple(
        SampledChain(
            **chain
            | {
                "hops": tuple(map(Hop.from_json, chain["hops"])),
                "means": tuple(map(log_likelihood, chain["means"])),
                "sums": tuple(map(log_likelihood, chain["sums"])),
            }
        )
        for chain in record["chains"]
    )
    thoughts = tuple(
        GoldThought(each["sentence"], tuple(each["passage_ids"])) for each in record.get("thoughts", ())
    )
    return ChainRow(
        row.question, tuple(record["context_ids"]), chains, record["chosen"], record["rejected"],
        thoughts=thoughts,
    )  # fmt: skip


def chain_lines(folder: Path, question: str) -> Iterator[str]:
    """Yield all chains of a question with their scores and why they ended; of "" a line for each question.

    Raises :class:`ConfigError` if the folder has no such question.
    """
    rows = {row.question.id: row for row in read_chains([folder])}
    if not question:
        yield from (f"{name}  {_outcome(row)}  {row.question.text}" for name, row in rows.items())
        return
    if question not in rows:
        raise ConfigError(f"'{folder}' has no question '{question}': {nearest(question, rows)}")
    row = rows[question]
    yield row.question.text
    yield f"gold answer: {' | '.join(row.question.answers)}; {_outcome(row)}"
    yield from (f"  thought: {each.sentence}  ({len(each.passage_ids)} passages)" for each in row.thoughts)
    if row.chains:
        yield "Scores: log-likelihood of the gold answer after each hop, mean per token; 0 is certain."
    for number, chain in enumerate(row.chains):
        kept = "  <- kept" if number == row.best else ""
        sums = f" (sum {chain.sums[-1]:.3f})" if chain.sums else ""
        yield (
            f"chain {number + 1}  score {_score(chain)}{sums}  length drawn {chain.drawn}  "
            f"stopped: {chain.stopped}{kept}"
        )
        # A chain that was taken over is scored once, at its end.
        scores = [f"  {mean:.3f}" for mean in chain.means]
        scores = [""] * (len(chain.hops) - len(scores)) + scores
        for hop, score in zip(chain.hops, scores, strict=False):
            yield f"  {hop.sub_query} -> {hop.sub_answer}  ({len(hop.passage_ids)} passages){score}"


def _outcome(row: ChainRow) -> str:
    """Say what became of a question: which chain was kept and its score, or why none was."""
    if row.best is None or row.chain is None:
        reason = row.error.splitlines()[0] if row.error else row.rejected
        return f"{len(row.thoughts)} thoughts" if row.thoughts else f"left out: {reason}"
    return (
        f"kept chain {row.best + 1} of {len(row.chains)}: score {_score(row.chain)}, "
        f"{len(row.chain.hops)} hops, stopped: {row.chain.stopped}"
    )


def _score(chain: SampledChain) -> str:
    return f"{chain.means[-1]:.3f}" if chain.means else "-"
