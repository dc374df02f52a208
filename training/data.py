"""From the chains of a question to its training rows: which rows are made, and their tokens.

What can be taught stands in ``row_tasks.py``, files in ``rows.py``. Tokens come from the renderer that the
engines use, so rows and requests are the same to the byte.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Literal

from annotated_types import Ge, Gt, Le, Lt

from corag.chains.config import CoRAGConfig
from corag.chains.prompting import continuation
from corag.core.errors import ConfigError, DataError, RequestRefusedError
from corag.core.language.text import mentions, normalize_answer
from corag.core.options.classes import Options
from corag.core.prompting.prompt import Prompt, Shortening
from corag.core.prompting.shorten import cut_best_passage, text_left, texts_left
from corag.core.protocols import ScoreRequest
from corag.core.seeds import derive_seed
from corag.core.types import Passage
from corag.generation.rendering import Renderer
from ircot.method import IRCoTConfig
from training.chains import ChainRow
from training.row_tasks import ROW_TASKS, RowSource, Task, TrainingExample


@dataclass(frozen=True)
class RowsConfig(Options):
    """Which rows are made. The defaults are the paper's."""

    tasks: tuple[Task, ...] = ("sub_query", "sub_answer", "final_answer")
    """what is taught, separated by commas: refusal is an annotated sub-query with its search results, without
    the passages that contain the answer; draft the answer from question and chain, without passages, in a
    quarter of the tokens; no_chain that from question and passages, the baseline. From folders of
    --sample.source thoughts alone: thought, IRCoT's next sentence, and the answers of IRCoT's reader,
    one_step and closed_book."""

    ratio: Annotated[float, Gt(0), Le(1)] = 0.2
    """share of the rows of per-hop tasks (sub_query, sub_answer, refusal, stop, thought) that is kept; rows
    that answer the question are always kept."""

    ratios: dict[Task, Annotated[float, Gt(0), Le(1)]] = field(default_factory=dict)
    """shares of single tasks that differ from ratio: rows of sub-queries are short, so a small model can have
    more."""

    ratio_per: Literal["hop", "question"] = "hop"
    """unit of the share, which the paper does not specify: each "hop" separately, or each "question" with all
    hops."""

    max_length: Annotated[int, Ge(2)] = 3072
    """maximum tokens of prompt and completion, at most the model's context; longer prompts lose passages as
    in decoding, the worst first, and the best one its last sentences. Rows that lose what their completion
    rests on are left out. Completions are never cut."""

    validation: Annotated[float, Ge(0), Lt(1)] = 0.05
    """share of the questions held out for the evaluation loss."""

    seed: int = 0
    """decides which rows are kept and which questions are held out."""

    per_length: Annotated[int, Ge(0)] = 0
    """maximum number of questions per length (hops) of the kept chain, drawn by the seed; 0 for all. Short
    chains are usually the most frequent."""

    purpose: Literal["fine_tuning", "distillation"] = "fine_tuning"
    """rows for "distillation" also hold the prompt of a teacher with privileged context: for a sub-query the
    step that the kept chain asks, for a sub-answer the gold passage alone, for a final answer the gold one.
    Rows of other tasks, or without a gold passage, are left out."""

    def __post_init__(self) -> None:
        if not self.tasks:
            raise ConfigError(f"no tasks were given: name some of {', '.join(ROW_TASKS)}.")
        if unknown := [task for task in self.ratios if task not in self.tasks]:
            raise ConfigError(
                f"rows.ratios names {unknown[0]}, which is not among the tasks {', '.join(self.tasks)}."
            )


def list_examples(source: RowSource, config: RowsConfig) -> Iterator[TrainingExample]:
    """Yield all that is taught of a question: hop by hop, then what is asked once.

    Raises :class:`DataError` if a passage is missing.
    """
    question = source.row.question
    tasks = [task for name, task in ROW_TASKS.items() if name in config.tasks]
    pairs = [(number, task) for task in tasks for number in task.hop_numbers(source)]
    for number, task in sorted(pairs, key=lambda pair: (pair[0] == 0, pair[0])):
        if _is_drawn(task.name, question.id, number, config):
            yield from task.examples(source, number)


def _is_drawn(task: str, question_id: str, hop: int, config: RowsConfig) -> bool:
    """Whether a task's row is among the share that is taken. ``hop``: 0 for what is asked once."""
    label = f"hop {hop}" if config.ratio_per == "hop" else "question"
    share = config.ratios.get(task, config.ratio if hop else 1.0)
    return derive_seed(config.seed, "ratio", task, question_id, label) < share * 2**31


@dataclass(frozen=True, slots=True)
class TrainingRow:
    """A row of the dataset: ``completion_mask`` is 1 on the tokens that the loss is of.

    ``prompt``: as it was left when it was shortened, without the chat template. ``privileged_context``: the
    tokens of a teacher's whole prompt, for distillation.
    """

    question_id: str
    task: str
    hop: int
    prompt: str
    completion: str
    input_ids: list[int]
    completion_mask: list[int]
    privileged_context: list[int] | None = None


@dataclass(frozen=True, slots=True)
class MadeRow:
    """What became of an example.

    Attributes:
        name: of the example, for messages.
        row: None if it is not taught.
        shortening: what its prompt lost to fit.
        is_passage_cut: its best passage alone was longer than the room, and lost its last sentences.
        left_out: why it is not taught: "cut" (decoding would not give the reply whole), "lost" (the passages
            that it rests on found no room), "unfit" (no row can be made, as ``name`` says), "plain" (a
            teacher would know no more), or "".
    """

    name: str
    row: TrainingRow | None = None
    shortening: Shortening = field(default_factory=Shortening)
    is_passage_cut: bool = False
    left_out: Literal["", "cut", "lost", "unfit", "plain"] = ""


@dataclass(frozen=True)
class RowMaker:
    """Makes the rows of one question after another. ``ircot``: for thoughts; None without them."""

    renderer: Renderer
    config: RowsConfig
    corag: CoRAGConfig
    ircot: IRCoTConfig | None = None

    def make(self, row: ChainRow, passages: Mapping[str, Passage], *, is_taught: bool) -> Iterator[MadeRow]:
        """Yield what becomes of each example of a question.

        ``passages``: by id, all that the question's rows show. ``is_taught``: its kept chain is taught.
        Raises :class:`DataError` for a missing passage.
        """
        source = RowSource(row, passages, self.renderer.count, self.corag, self.ircot, is_taught)
        for example in list_examples(source, self.config):
            yield self.make_row(example)

    def make_row(self, example: TrainingExample) -> MadeRow:
        """Return what becomes of an example."""
        if example.is_cut:
            return MadeRow(example.name, left_out="cut")
        # A template of the user's own may have no place for it.
        if self.config.purpose == "distillation" and example.privileged() in (None, example.prompt):
            return MadeRow(example.name, left_out="plain")
        try:
            row, shortening = tokenise(example, self.renderer, self.config)
        except DataError as error:
            return MadeRow(str(error), left_out="unfit")
        fitting, left_out = example, shortening
        if 0 < shortening.count("passage") == len(texts_left(example.prompt, "passage", Shortening())):
            room = self.config.max_length - sum(row.completion_mask)
            if (prompt := cut_best_passage(example.prompt, room, self.renderer.size)) is None:
                return MadeRow(example.name, left_out="lost")
            fitting, left_out = replace(example, prompt=prompt), Shortening()
            row, _ = tokenise(fitting, self.renderer, self.config)
        if not _shows_its_reply(example, fitting.prompt, left_out):
            return MadeRow(example.name, left_out="lost")
        return MadeRow(example.name, row, shortening, is_passage_cut=fitting is not example)


def _shows_its_reply(example: TrainingExample, prompt: Prompt, left_out: Shortening) -> bool:
    """Whether ``prompt``, the example's as it was shortened, still shows what the reply was read from."""
    if normalize_answer(example.reply) in ("yes", "no", "noanswer"):
        return True  # that these words stand somewhere tells nothing
    passages = texts_left(prompt, "passage", left_out)
    if example.rests_on:
        return mentions(passages, [example.rests_on])
    # What the whole prompt did not show either, such as a refusal, was not lost here.
    whole = texts_left(example.prompt, "passage", Shortening())
    left = [*passages, *texts_left(prompt, "hop", left_out)]
    return mentions(left, [example.reply]) or not mentions(whole, [example.reply])


def tokenise(
    example: TrainingExample, renderer: Renderer, config: RowsConfig
) -> tuple[TrainingRow, Shortening]:
    """Turn a request and its reply into tokens, as an engine would read the one and write the other.

    Raises :class:`DataError` naming the row if the reply is blank or leaves no room for the prompt.
    """
    if not example.reply.strip():
        raise DataError(
            f"{example.name} has nothing to learn: the reply is blank. Leave the question out or mend it."
        )
    completion = continuation(example.prompt, example.reply)
    # A model that is not taught to end its turn runs into its limit of tokens.
    target = renderer.target_ids(ScoreRequest(example.prompt, completion, end_of_turn=example.ends))
    if len(target) >= config.max_length:
        raise DataError(
            f"{example.name} has a reply of {len(target)} tokens, but rows have at most {config.max_length}: "
            "choose a larger max_length, or leave the question out."
        )
    known = example.privileged() if config.purpose == "distillation" else None
    room, privileged = config.max_length - len(target), None
    try:
        ids, shortening = renderer.encode_within(example.prompt, room)
        if known is not None:
            privileged = list(renderer.encode_within(known, room)[0])
    except RequestRefusedError as error:
        raise DataError(
            f"{example.name} does not fit into rows of {config.max_length} tokens, even without passages "
            f"({error}): choose a larger max_length."
        ) from None
    row = TrainingRow(
        example.question_id,
        example.task,
        example.hop,
        text_left(example.prompt, shortening, renderer.count),
        completion,
        [*ids, *target],
        [0] * len(ids) + [1] * len(target),
        privileged,
    )
    return row, shortening


def balance_by_length(rows: Sequence[ChainRow], config: RowsConfig) -> frozenset[str]:
    """Return the ids of the questions whose kept chains are taught: ``per_length`` of each length, if set."""
    by_length: dict[int, list[str]] = {}
    for row in rows:
        if row.chain is not None:
            by_length.setdefault(len(row.chain.hops), []).append(row.question.id)
    limit = config.per_length or len(rows)
    return frozenset(
        name
        for names in by_length.values()
        for name in sorted(names, key=lambda name: derive_seed(config.seed, "length", name))[:limit]
    )


def is_validation(question_id: str, seed: int, share: float) -> bool:
    """Whether what is made of a question is for validation, as a ``share`` of all is."""
    # Drawn by the id, so a question's rows are on one side, in every set of rows of this seed.
    return derive_seed(seed, "validation", question_id) < share * 2**31
