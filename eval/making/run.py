"""The run of ``corag questions``: pairs into a folder like that of any run, and what is kept into a file."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import Annotated, Any, ClassVar

import orjson
from annotated_types import Ge

from corag.core.errors import ConfigError, DataError
from corag.core.files import write_atomically
from corag.core.folder_lock import refuse_if_locked
from corag.core.option_names import LocalPath
from corag.core.options import Options
from corag.core.protocols import Generator
from corag.core.runs.environment import environment
from corag.core.runs.failures import Failures
from corag.core.runs.folder import ANOTHER_OUT, RunFolder, read_rows
from corag.core.runs.manifest import MADE_QUESTIONS
from corag.core.runs.rows import SavedRow
from corag.core.seeds import derive_seed, stable_hash
from corag.core.shared_values import names_on_hub, origin_name
from corag.core.text import normalize_as_squad
from corag.core.types import GoldHop, Passage, Question
from corag.generation.config import ModelConfig
from eval.datasets.corpora import index_manifest
from eval.datasets.sets.jsonl import question_record
from eval.experiment.executor import AnswerTask, LocalExecutor
from eval.experiment.in_flight import questions_in_flight
from eval.experiment.loop import answer_into
from eval.experiment.opening import open_model_quietly, prepare_output
from eval.making.procedure import (
    FILTERS,
    KEPT_STATUS,
    OTHER_PASSAGES,
    Compose,
    make_question,
    making_templates,
)
from retrieval.linked_pairs import LinkedPair, LinkedPassages

REPEATED_STATUS, SPARE_STATUS = "repeated", "spare"
PAIRS_PER_QUESTION = 40
"""So many are tried at most: a small model fails at most of them."""
_FEWEST_AT_ONCE = 16  # pairs between two looks at how many have been kept


@dataclass(frozen=True)
class MakingConfig(Options):
    """Options of 'corag questions'.

    Attributes:
        index: folder of an index over your documents that 'corag index' made.
        out: question file to write, .jsonl; all pairs that were tried are kept beside it, in NAME.pairs.
        limit: number of questions to make.
        compose: who writes the question of two hops. "model": the language model; if its question breaks
            the rules, the template does. "template": always the template, for small models; it quotes the
            first passage's sentence that mentions the second, with a blank in place of the title.
        model: the language model that writes and tries the questions, and its engine.
        seed: determines the order in which pairs of passages, and answers, are tried.
        batch_size: pairs in flight at the same time; 0 = as many as suit the engine.
    """

    index: LocalPath = ""
    out: LocalPath = ""
    limit: Annotated[int, Ge(1)] = 50
    compose: Compose = "model"
    model: ModelConfig = field(default_factory=ModelConfig)
    seed: int = 0
    batch_size: int = 0

    ALIASES: ClassVar[dict[str, str]] = {"llm": "model.name", "model": "model.name"}

    def __post_init__(self) -> None:
        if not self.index or not self.out:
            raise ConfigError(
                "name an index of your documents and the file to write: corag questions INDEX --out "
                "mine.jsonl."
            )
        if Path(self.out).suffix != ".jsonl":
            raise ConfigError(f"questions are written as JSON lines: give a file .jsonl, not '{self.out}'.")
        object.__setattr__(self, "batch_size", questions_in_flight(self.batch_size, self.model))

    @property
    def folder(self) -> Path:
        """Where every pair that was tried is kept, with why it gave no question."""
        return Path(self.out).with_suffix(".pairs")

    @property
    def origin(self) -> str:
        """What every record says of its origin."""
        on_hub = names_on_hub(self.model)
        model, adapter = (origin_name(each, on_hub) for each in (self.model.name, self.model.adapter))
        return f"made by corag questions with {model}{f' with adapter {adapter}' if adapter else ''}"


@dataclass(frozen=True, slots=True)
class MadeQuestions:
    """What came of the pairs that were tried.

    Attributes:
        questions: the questions, at most as many as were asked for.
        pair_count: the number of pairs.
        left_out: by filter, in the order in which they are applied, how many pairs it left out.
        failures: pairs at which the engine failed.
    """

    questions: Sequence[Question]
    pair_count: int
    left_out: Mapping[str, int]
    failures: Failures

    def lines(self) -> Iterator[str]:
        """Yield the figures as text."""
        kinds = Counter(each.kind for each in self.questions)
        kind_counts = f" ({', '.join(f'{count} {kind}' for kind, count in kinds.items())})" if kinds else ""
        pairs = f"{self.pair_count:,} pairs of linked passages"
        yield f"{len(self.questions):,} questions kept{kind_counts} of {pairs} tried."
        for name, why in FILTERS.items():
            if self.left_out[name]:
                yield f"  {self.left_out[name]:,} left out: {why}"
        if repeats := self.left_out[REPEATED_STATUS]:
            yield f"  {repeats:,} left out: the same question, or the same fact, as another"
        if spares := self.left_out[SPARE_STATUS]:
            yield f"  {spares:,} passed, too, and are not needed: more than was asked for"


async def make_questions(config: MakingConfig) -> MadeQuestions:
    """Make questions until there are enough or no pairs are left; write them; return what came of the pairs.

    The folder of pairs is a run folder: the same call goes on where it was. Raises :class:`ConfigError` for
    an index that is not ours or that has no linked passages, before an engine opens.
    """
    passages = LinkedPassages(config.index)
    try:
        pairs = passages.pairs(config.seed)
        first = next(pairs, None)
        if first is None:
            raise ConfigError(
                f"no passage of the index '{config.index}' mentions another one's title, so there is nothing "
                "to make questions of two hops from: give documents with headings or a corpus with titles."
            )
        refuse_if_locked(config.folder, advice=ANOTHER_OUT)
        prepare_output(config.folder)
        generator = await open_model_quietly(config.model)
        try:
            result = await _make(config, passages, chain([first], pairs), generator)
        finally:
            await generator.close()
    finally:
        passages.close()
    records = (orjson.dumps(question_record(each)).decode() + "\n" for each in result.questions)
    write_atomically(config.out, "".join(records))
    return result


async def _make(
    config: MakingConfig, passages: LinkedPassages, pairs: Iterator[LinkedPair], generator: Generator
) -> MadeQuestions:
    """Try batch after batch: which pairs are tried depends on nothing but the settings and the limit."""
    pair_questions: list[Question] = []
    texts: dict[str, tuple[LinkedPair, Sequence[Passage]]] = {}
    step, most = max(config.limit, _FEWEST_AT_ONCE), config.limit * PAIRS_PER_QUESTION
    result = _collect([], config)
    with RunFolder(config.folder, _settings(config, generator), environment() | _notes(config)) as run:
        task = AnswerTask(partial(make_question, compose=config.compose, pairs=texts), config.seed)
        executor = LocalExecutor(generator, None)
        while batch := list(islice(pairs, min(step, most - len(pair_questions)))):
            for pair in batch:
                name = stable_hash(f"{pair.first.id}\n{pair.second.id}")
                texts[name] = pair, passages.others(pair, OTHER_PASSAGES, derive_seed("others", name))
                ids = (pair.first.id, pair.second.id)
                pair_questions.append(
                    Question(name, f"{pair.first.title} -> {pair.second.title}", supporting=ids)
                )
            await answer_into(
                run, pair_questions, task, executor, title="pairs", batch_size=config.batch_size
            )
            rows = read_rows(config.folder)
            result = _collect([rows[each.id] for each in pair_questions], config)
            if len(result.questions) >= config.limit:
                break
    return result


def _collect(rows: Sequence[SavedRow], config: MakingConfig) -> MadeQuestions:
    """Count what came of pairs, in their order; the first of equal questions counts."""
    left_out: Counter[str] = Counter()
    questions: list[Question] = []
    seen_keys: set[str] = set()
    for row in rows:
        outcome = row.answer.stopped if row.answer else ""
        if outcome == KEPT_STATUS and len(questions) >= config.limit:
            left_out[SPARE_STATUS] += 1
        elif outcome == KEPT_STATUS:
            question = _question(row, config.origin)
            second = question.supporting[-1], normalize_as_squad(question.answers[0])
            keys = {normalize_as_squad(question.text), "\n".join(second)}
            if keys & seen_keys:
                left_out[REPEATED_STATUS] += 1
            else:
                questions.append(question)
                seen_keys |= keys
        elif outcome in FILTERS:
            left_out[outcome] += 1
    return MadeQuestions(questions, len(rows), left_out, Failures.count(row.error for row in rows))


def _question(row: SavedRow, origin: str) -> Question:
    further = row.further
    return Question(
        row.question.id,
        row.text,
        (further["gold"],),
        row.question.supporting,
        further["kind"],
        hops=2,
        decomposition=tuple(GoldHop(**hop) for hop in further["hops"]),
        synthetic=origin,
    )


def _settings(config: MakingConfig, generator: Generator) -> dict[str, Any]:
    """Return what the pairs' questions depend on; ``limit`` is not among it: a file may grow."""
    manifest = index_manifest(config.index)
    if manifest is None:
        raise DataError(f"the index '{config.index}' has no manifest: build it again with 'corag index'.")
    return {
        "method": MADE_QUESTIONS,
        "options": {"compose": config.compose},
        "prompts": [template.identity for template in making_templates()],
        "questions": {"source": manifest.fingerprint, "dataset": "", "split": "", "subset": ""},
        "model": generator.fingerprint,
        "retriever": "",
        "seed": config.seed,
    }


def _notes(config: MakingConfig) -> dict[str, Any]:
    return {"model": asdict(config.model), "batch_size": config.batch_size, "index": config.index}
