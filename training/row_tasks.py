"""What the model is taught to do: one :class:`RowTask` for each request of decoding that rows can be made of.

The paper has three (section 3.2): the next sub-query, the sub-answer, the final answer. Prompts come from the
functions that decoding uses, so rows and requests are the same to the byte. A further task is a function and
an entry of ``ROW_TASKS``: options, help, settings and reports read the table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import TYPE_CHECKING, Literal

from corag.baselines.closed_book import ClosedBookConfig
from corag.chains.chain import Chain, top_passages
from corag.chains.config import CoRAGConfig
from corag.chains.final_answer import Context, final_prompt
from corag.chains.prompting import (
    PromptName,
    continuation,
    final_answer_prompt,
    stop_check_prompt,
    sub_answer_prompt,
    sub_query_prompt,
)
from corag.core.errors import DataError
from corag.core.language.text import mentions, stated_answer
from corag.core.prompting.prompt import Prompt
from corag.core.prompting.template import Template
from corag.core.reader import ReaderConfig, reader_prompt
from corag.core.types import Hit, Passage
from ircot.method import IRCoTConfig, thought_prompt
from training.chains import ChainRow


@dataclass(frozen=True, slots=True)
class TrainingExample:
    """A request of decoding and what should be replied.

    Attributes:
        hop: counted from 1; 0 for tasks asked once per question.
        prompt: as decoding writes it.
        reply: what the model should say.
        is_cut: the reply is not taught, since decoding does not give it whole. A sampled one was cut off at
            its limit of tokens, as its engine said; an annotated one is longer than that limit. Gold answers
            and stops are taught whatever their length.
        rests_on: what the prompt has to show, "" for nothing in particular: if passages that were left out
            for want of room had it alone, a model would learn to make it up.
        ends: the reply is taught to end the turn. A thought does not: decoding keeps its first sentence, and
            asks for the next one right behind it, so what follows a sentence must be the next, not the end.
        privileged: returns the same request to a teacher that knows more, for distillation; None where it
            knows no more.
    """

    question_id: str
    task: str
    hop: int
    prompt: Prompt
    reply: str
    is_cut: bool = False
    rests_on: str = ""
    ends: bool = True
    privileged: Callable[[], Prompt | None] = field(default=lambda: None, compare=False)

    @property
    def name(self) -> str:
        """What to call the row in a message."""
        return f"{self.task} of question '{self.question_id}'" + (f", hop {self.hop}" if self.hop else "")


@dataclass(frozen=True)
class RowSource:
    """One question with its sampled chains, and what its rows are made with.

    Attributes:
        row: the question with its candidates.
        passages: by id; all that the tasks show.
        count: counts the tokens of a text.
        corag: prompts, passages and limits, as in decoding.
        ircot: the same for thoughts; None without them.
        is_taught: whether the kept chain is taught.
    """

    row: ChainRow
    passages: Mapping[str, Passage]
    count: Callable[[str], int]
    corag: CoRAGConfig
    ircot: IRCoTConfig | None = None
    is_taught: bool = True

    @cached_property
    def chain(self) -> Chain | None:
        """The kept chain with its passages, if it is taught. Raises :class:`DataError` if one is missing."""
        kept = self.row.chain
        if kept is None or not self.is_taught:
            return None
        return Chain(kept.hops, hits=tuple(self.hits(hop.passage_ids) for hop in kept.hops))

    @cached_property
    def context(self) -> Context:
        """What a search for the question itself found."""
        return Context(self.hits(self.row.context_ids))

    def hits(self, ids: Sequence[str]) -> tuple[Hit, ...]:
        """Return passages as a search returns them. Raises :class:`DataError` if one is missing."""
        missing = [name for name in ids if name not in self.passages]
        if missing:
            raise DataError(
                f"the chains of question '{self.row.question.id}' read passage '{missing[0]}', which the "
                "index does not have: give the index that they were sampled with."
            )
        return tuple(Hit(self.passages[name], 1 / rank) for rank, name in enumerate(ids, 1))

    def is_cut(self, prompt: Prompt, reply: str, limit: int, *, when_sampled: bool) -> bool:
        """Whether decoding would not give a reply whole. ``when_sampled``: whether its engine cut it off."""
        # Annotated replies had no engine, so their tokens are counted.
        return self.count(continuation(prompt, reply)) > limit if self.row.is_annotated else when_sampled


@dataclass(frozen=True)
class RowTask:
    """A request of decoding that can be taught.

    Attributes:
        name: as ``--rows.tasks`` names it, and the column ``task`` of the rows.
        template: returns its prompt, of the options of CoRAG and IRCoT.
        hop_numbers: returns where in a question it is asked: hops counted from 1, or (0,) for once.
        examples: yields what is asked at such a place, with the reply.
        prompt: the prompt of CoRAG that sampling does not use, so that the chains' manifest does not say
            which it was; None if it does.
        of_thoughts: it is made of folders of IRCoT's thoughts, which hold no chains.
        method: the method that asks it, and so is trained for.
    """

    name: str
    template: Callable[[CoRAGConfig, IRCoTConfig], Template]
    hop_numbers: Callable[[RowSource], Sequence[int]]
    examples: Callable[[RowSource, int], Iterator[TrainingExample]]
    prompt: PromptName | None = None
    of_thoughts: bool = False
    method: str = "corag"


# ---- where a task is asked


def _each_hop(source: RowSource) -> Sequence[int]:
    return range(1, len(source.chain.hops) + 1) if source.chain is not None else ()


def _once(source: RowSource) -> Sequence[int]:
    return (0,) if source.chain is not None else ()


def _each_thought(source: RowSource) -> Sequence[int]:
    return range(1, len(source.row.thoughts) + 1) if source.ircot is not None else ()


def _once_with_thoughts(source: RowSource) -> Sequence[int]:
    return (0,) if source.ircot is not None and source.row.thoughts else ()


# ---- what is asked, and what should be replied


def _sub_query(source: RowSource, number: int) -> Iterator[TrainingExample]:
    """Yield the request for a hop's sub-query, whose prompt shows the hops before it."""
    assert source.chain is not None
    hops, corag, question = source.chain.hops, source.corag, source.row.question
    hop, before = hops[number - 1], Chain(hops[: number - 1])
    prompt = corag.conventions.fit_hop(sub_query_prompt(question.text, before, corag), source.count)
    is_cut = source.is_cut(prompt, hop.sub_query, corag.max_sub_query_tokens, when_sampled=hop.query_cut)

    def privileged() -> Prompt:
        privileged = replace(corag, task=f"{corag.task} The question to ask next: {hop.sub_query}".strip())
        return sub_query_prompt(question.text, before, privileged)

    yield TrainingExample(
        question.id, "sub_query", number, prompt, hop.sub_query, is_cut, privileged=privileged
    )


def _sub_answer(source: RowSource, number: int) -> Iterator[TrainingExample]:
    assert source.chain is not None
    hop, hits, corag = source.chain.hops[number - 1], source.chain.hits[number - 1], source.corag
    if not hits:
        # A hop that found nothing was refused without asking the model, so there is no request to learn.
        return
    prompt = sub_answer_prompt(hop.sub_query, top_passages(hits, corag.passages_per_hop), corag)
    prompt = corag.conventions.fit_hop(prompt, source.count)
    is_cut = source.is_cut(prompt, hop.sub_answer, corag.max_sub_answer_tokens, when_sampled=hop.answer_cut)
    # The model's own sub-answer may be wrong, or a refusal; what is annotated must be there to read.
    fact = hop.sub_answer if source.row.is_annotated else ""
    question = source.row.question

    def privileged() -> Prompt | None:
        gold = [hit.passage for hit in hits if hit.id in question.supporting]
        holding = [each for each in gold if mentions([each.contents], [hop.sub_answer])]
        return sub_answer_prompt(hop.sub_query, holding[:1], corag) if holding else None

    yield TrainingExample(
        question.id, "sub_answer", number, prompt, hop.sub_answer, is_cut, fact, privileged=privileged
    )


def _refusal(source: RowSource, number: int) -> Iterator[TrainingExample]:
    """Yield a hop whose passages do not hold the annotated answer: what the search found without those.

    Gold passages are left out too, which may write the answer otherwise.
    """
    assert source.chain is not None
    hop, hits, corag = source.chain.hops[number - 1], source.chain.hits[number - 1], source.corag
    question = source.row.question
    answers = [hop.sub_answer, *(question.answers if number == len(source.chain.hops) else ())]
    silent = [
        hit
        for hit in hits
        if hit.id not in question.supporting and not mentions([hit.passage.contents], answers)
    ]
    # What a model answered itself may be wrong, so its absence says nothing.
    if not source.row.is_annotated or not silent:
        return
    prompt = sub_answer_prompt(hop.sub_query, top_passages(silent, corag.passages_per_hop), corag)
    prompt = corag.conventions.fit_hop(prompt, source.count)
    yield TrainingExample(source.row.question.id, "refusal", number, prompt, corag.refusal)


def _stop(source: RowSource, number: int) -> Iterator[TrainingExample]:
    assert source.chain is not None
    question = source.row.question
    prompt = stop_check_prompt(question.text, Chain(source.chain.hops[:number]), source.corag)
    reply = "Yes" if number >= best_stop_hop(source.row) else "No"
    yield TrainingExample(question.id, "stop", number, prompt, reply)


def _final_answer(source: RowSource, number: int) -> Iterator[TrainingExample]:
    assert source.chain is not None
    question = source.row.question
    prompt, *_ = final_prompt(question.text, source.chain, source.context, source.count, source.corag)
    chain = source.chain

    def privileged() -> Prompt:
        task = f"{source.corag.task} The right answer: {question.answers[0]}".strip()
        corag = replace(source.corag, task=task)
        return final_prompt(question.text, chain, source.context, source.count, corag)[0]

    # The first gold answer is the one taught: further ones are other ways to write it.
    yield TrainingExample(
        question.id, "final_answer", number, prompt, question.answers[0], privileged=privileged
    )


def _draft(source: RowSource, number: int) -> Iterator[TrainingExample]:
    assert source.chain is not None
    question = source.row.question
    prompt = final_answer_prompt(question.text, source.chain, (), source.corag)
    yield TrainingExample(question.id, "draft", number, prompt, question.answers[0])


def _no_chain(source: RowSource, number: int) -> Iterator[TrainingExample]:
    question = source.row.question
    prompt, *_ = final_prompt(question.text, Chain(), source.context, source.count, source.corag)
    yield TrainingExample(question.id, "no_chain", number, prompt, question.answers[0])


def _read_first(source: RowSource, number: int) -> Iterator[TrainingExample]:
    """Yield what one_step would ask: the reader, with what the first search found."""
    assert source.ircot is not None
    yield _reader_example("one_step", source, source.row.thoughts[0].passage_ids, source.ircot)


def _read_all(source: RowSource, number: int) -> Iterator[TrainingExample]:
    """Yield what IRCoT would ask at its end: the reader, with all that gold thoughts collected.

    Nothing of those that ended early, where the paragraphs do not hold the next step.
    """
    assert source.ircot is not None
    if stated_answer(source.row.thoughts[-1].sentence) is not None:
        yield _reader_example("reader", source, source.row.thoughts[-1].passage_ids, source.ircot)


def _read_nothing(source: RowSource, number: int) -> Iterator[TrainingExample]:
    """Yield what closed_book would ask."""
    assert source.ircot is not None
    yield _reader_example("closed_book", source, (), without_passages(source.ircot))


def _reader_example(
    task: str, source: RowSource, ids: Sequence[str], config: ReaderConfig
) -> TrainingExample:
    question = source.row.question
    prompt = reader_prompt(question, [hit.passage for hit in source.hits(ids)], config)
    return TrainingExample(question.id, task, 0, prompt, question.answers[0])


def without_passages(config: ReaderConfig) -> ClosedBookConfig:
    """Return a reader's options as closed_book has them."""
    return ClosedBookConfig(**{each.name: getattr(config, each.name) for each in fields(ReaderConfig)})


def _thought_examples(source: RowSource, number: int) -> Iterator[TrainingExample]:
    """Yield what IRCoT would have asked at a step of a question's gold reasoning, with what to think."""
    assert source.ircot is not None
    question, thoughts = source.row.question, source.row.thoughts
    thought, facts = thoughts[number - 1], [hop.answer for hop in question.decomposition]
    passages = [hit.passage for hit in source.hits(thought.passage_ids)]
    earlier = [each.sentence for each in thoughts[: number - 1]]
    prompt = thought_prompt(question.text, passages, earlier, source.count, source.ircot)
    is_cut = source.count(continuation(prompt, thought.sentence)) > source.ircot.max_thought_tokens
    fact = "".join(facts[number - 1 : number])  # the last sentence states no further one
    yield TrainingExample(
        question.id, "thought", number, prompt, thought.sentence, is_cut, fact, ends=number > len(facts)
    )


def _of_corag(name: PromptName) -> Callable[[CoRAGConfig, IRCoTConfig], Template]:
    return lambda corag, ircot: corag.prompt(name)


def _of_reader(corag: CoRAGConfig, ircot: IRCoTConfig) -> Template:
    return ircot.qa_template()


def _of_ircot(corag: CoRAGConfig, ircot: IRCoTConfig) -> Template:
    return ircot.reasoning_template()


def _of_closed_book(corag: CoRAGConfig, ircot: IRCoTConfig) -> Template:
    return without_passages(ircot).qa_template()


ROW_TASKS: Mapping[str, RowTask] = {
    task.name: task
    for task in (
        RowTask("sub_query", _of_corag("sub_query"), _each_hop, _sub_query),
        RowTask("sub_answer", _of_corag("sub_answer"), _each_hop, _sub_answer),
        RowTask("refusal", _of_corag("sub_answer"), _each_hop, _refusal),
        RowTask("final_answer", _of_corag("final_answer"), _once, _final_answer),
        RowTask("draft", _of_corag("final_answer"), _once, _draft),
        RowTask("stop", _of_corag("stop_check"), _each_hop, _stop, prompt="stop_check"),
        RowTask("no_chain", _of_corag("final_answer"), _once, _no_chain),
        RowTask("thought", _of_ircot, _each_thought, _thought_examples, of_thoughts=True, method="ircot"),
        RowTask("reader", _of_reader, _once_with_thoughts, _read_all, of_thoughts=True, method="ircot"),
        RowTask(
            "one_step", _of_reader, _once_with_thoughts, _read_first, of_thoughts=True, method="one_step"
        ),
        RowTask(
            "closed_book",
            _of_closed_book,
            _once_with_thoughts,
            _read_nothing,
            of_thoughts=True,
            method="closed_book",
        ),
    )
}
"""All tasks by name. Rows of one hop, or of one question, come in this order."""

# The choices are the table's, so that a new task needs no line here. A type checker cannot read that.
if TYPE_CHECKING:
    Task = str
else:
    Task = Literal[tuple(ROW_TASKS)]


def extra_prompts(tasks: Sequence[str]) -> dict[str, PromptName]:
    """Return, by task, the prompts of CoRAG that some tasks use and sampling does not."""
    return {name: task.prompt for name, task in ROW_TASKS.items() if name in tasks and task.prompt}


def trained_prompts(
    tasks: Sequence[str], corag: CoRAGConfig, ircot: IRCoTConfig | None
) -> dict[str, list[str]]:
    """Return the prompts that some tasks teach, by the method that asks them: name, version and hash."""
    prompts: dict[str, list[str]] = {}
    for name, task in ROW_TASKS.items():
        if name in tasks and (ircot is not None or not task.of_thoughts):
            identity = task.template(corag, ircot or IRCoTConfig()).identity
            of_method = prompts.setdefault(task.method, [])
            of_method += [] if identity in of_method else [identity]
    return prompts


def best_stop_hop(row: ChainRow) -> int:
    """Return after how many hops the kept chain should stop: where its gold answer is likeliest (5.4)."""
    assert row.chain is not None
    means = row.chain.means
    # Chains from decompositions are scored at their end only, so they should go on to their end.
    return len(row.chain.hops) if len(means) < len(row.chain.hops) else 1 + means.index(max(means))
