"""What a row holds: from a kept chain, what the model will be asked when decoding and what it should say.

Three tasks (paper, section 3.2): the next sub-query, the sub-answer, the final answer; on request the learned
stop (section 5.4), the answer drafted from the chain alone and the verifier's judgement; and as the paper's
baseline the final answer without a chain. Prompts come from the functions that decoding uses, tokens from the
renderer that the engines use, so rows and requests are the same to the byte.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar, Literal, Protocol, get_args

from corag.chain import Chain, Hop, top_passages
from corag.config import CoRAGConfig
from corag.final_answer import Context, final_prompt
from corag.prompting import (
    continuation,
    final_answer_prompt,
    fit_hop_prompt,
    stop_check_prompt,
    sub_answer_prompt,
    sub_query_prompt,
)
from corag.verifier import verify_request
from core.errors import ConfigError, DataError, RequestRefusedError
from core.prompting.prompt import Prompt, Shortening
from core.protocols import ScoreRequest
from core.seeds import derive_seed
from core.text import exact_match, normalize_answer
from core.types import Hit, Passage
from generation.rendering import Renderer
from ircot.method import IRCoTConfig, thought_prompt
from training.chains import ChainRow
from training.sampling import SampledChain

Task = Literal["sub_query", "sub_answer", "final_answer", "draft", "stop", "no_chain", "verify", "thought"]


@dataclass(frozen=True)
class RowsConfig:
    """Which rows are made. The defaults are the paper's.

    Attributes:
        tasks: of sub_query, sub_answer, final_answer, stop, draft (question and chain to answer, without
            passages: what gold scores ask, in a quarter of the tokens), no_chain (question and passages to
            answer: the baseline) and verify (whether an answer is right: of every question as many of its
            candidates' right answers as wrong ones, so 'corag sample' must have noted them). From folders of
            --sample.source thoughts alone, thought: IRCoT's next sentence.
        ratio: share of the tasks asked at every hop (sub_query, sub_answer, stop, thought) that is kept;
            answers to the question always are.
        ratios: shares of single tasks, where they are to be others: rows of sub-queries are short, so a small
            model can have more.
        ratio_per: what a share is of, which the paper does not say: of each "hop" by itself, or of each
            "question" with all hops.
        max_length: tokens of prompt and completion at most, and no more than the model was made to read; a
            longer prompt loses passages as in decoding, a completion never.
        validation: share of the questions whose rows are set aside for the evaluation loss.
        seed: decides which rows are kept and which questions are set aside.
        verify_pairs: right and wrong answers of a question that verify takes at most, so many of each.
        verify_passages: passages that verify shows, as --corag.verify_passages does in decoding; without a
            value, what the chains were sampled with.
        verify_uncontested: verify also takes one candidate of each question whose candidates are all right or
            all wrong. That teaches how sure to be, which stopping and adaptive compute need, more than which
            of two answers is better.
        per_length: questions taken at most whose kept chain has so many hops as another's, drawn by the seed;
            0 for all. Short chains are mostly the more frequent.
        recovery_copies: how often a sub-query is taught that was answered where the one before it was
            refused: recoveries are rare.
    """

    tasks: tuple[Task, ...] = ("sub_query", "sub_answer", "final_answer")
    ratio: float = 0.2
    ratios: dict[Task, float] = field(default_factory=dict)
    ratio_per: Literal["hop", "question"] = "hop"
    max_length: int = 3072
    validation: float = 0.05
    seed: int = 0
    verify_pairs: int = 2
    verify_passages: int | None = None
    verify_uncontested: bool = False
    per_length: int = 0
    recovery_copies: int = 1

    LATER: ClassVar[tuple[str, ...]] = (
        "verify_pairs", "verify_passages", "verify_uncontested", "per_length", "recovery_copies",
    )  # fmt: skip

    def __post_init__(self) -> None:
        if not self.tasks:
            raise ConfigError(f"no tasks were given: name some of {', '.join(get_args(Task))}.")
        if unknown := [task for task in self.ratios if task not in self.tasks]:
            raise ConfigError(
                f"rows.ratios names {unknown[0]}, which is not among the tasks {', '.join(self.tasks)}."
            )
        least_0 = (self.per_length, self.verify_passages or 0)
        if min(self.verify_pairs, self.recovery_copies) < 1 or min(least_0) < 0:
            raise ConfigError(
                "rows need verify_pairs and recovery_copies of at least 1, per_length and verify_passages "
                f"not below 0, but got {self.verify_pairs}, {self.recovery_copies}, {self.per_length} and "
                f"{self.verify_passages}."
            )
        shares = (self.ratio, *self.ratios.values())
        if not all(0 < share <= 1 for share in shares) or not 0 <= self.validation < 1 or self.max_length < 2:
            raise ConfigError(
                "rows need ratios in (0, 1], a validation share in [0, 1) and a max_length of 2 tokens or "
                f"more, but got {', '.join(map(str, shares))}, {self.validation} and {self.max_length}."
            )


@dataclass(frozen=True, slots=True)
class TrainingExample:
    """A request of decoding and what should be replied.

    Attributes:
        hop: counted from 1; 0 for tasks asked once per question. Of verify the candidate's number.
        prompt: as decoding writes it.
        reply: what the model should say.
        cut: the reply is not taught, since decoding does not give it whole. A sampled one was cut off at its
            limit of tokens, as its engine said; an annotated one is longer than that limit. Gold answers and
            stops are taught whatever their length.
        rests_on: what the prompt has to show, "" for nothing in particular: if passages that were left out
            for want of room had it alone, a model would learn to make it up.
        ends: the reply is taught to end the turn. A thought does not: decoding keeps its first sentence, and
            asks for the next one right behind it, so what follows a sentence must be the next, not the end.
    """

    question_id: str
    task: Task
    hop: int
    prompt: Prompt
    reply: str
    cut: bool = False
    rests_on: str = ""
    ends: bool = True

    @property
    def name(self) -> str:
        """What to call the row in a message."""
        part = "candidate" if self.task == "verify" else "hop"
        return f"{self.task} of question '{self.question_id}'" + (f", {part} {self.hop}" if self.hop else "")


@dataclass(frozen=True, slots=True)
class TrainingRow:
    """A row of the dataset: ``completion_mask`` is 1 on the tokens that the loss is of."""

    question_id: str
    task: Task
    hop: int
    prompt: str
    completion: str
    input_ids: list[int]
    completion_mask: list[int]


def examples_of(
    row: ChainRow,
    passages: Mapping[str, Passage],
    count: Callable[[str], int],
    config: RowsConfig,
    corag: CoRAGConfig,
) -> Iterator[TrainingExample]:
    """Yield what decoding would have asked on the way of the kept chain, with what to reply, task by task.

    ``passages`` by id, ``count``: of a text's tokens. Raises :class:`DataError` if a passage is missing or
    the question has no answer.
    """
    question = row.question
    if not question.answers or not question.answers[0].strip():
        raise DataError(
            f"question '{question.id}' has no gold answer to train on: give training questions one each."
        )
    assert row.chain is not None
    chain = chain_of(row.chain, passages, question.id)
    for number in range(1, len(chain) + 1):
        yield from _of_hop(row, chain, number, count, config, corag)
    context = Context(_hits(row.context_ids, passages, question.id))

    def final(chain: Chain) -> Prompt:
        return final_prompt(question.text, chain, context, count, corag)[0]

    # The first gold answer is the one taught: further ones are other ways to write it.
    asked: dict[Task, Callable[[], Prompt]] = {
        "final_answer": lambda: final(chain),
        "draft": lambda: final_answer_prompt(question.text, chain, (), corag),
        "no_chain": lambda: final(Chain()),
    }
    for task, prompt in asked.items():
        if _drawn(task, question.id, 0, config):
            yield TrainingExample(question.id, task, 0, prompt(), question.answers[0])


def _of_hop(
    row: ChainRow,
    chain: Chain,
    number: int,
    count: Callable[[str], int],
    config: RowsConfig,
    corag: CoRAGConfig,
) -> Iterator[TrainingExample]:
    """Yield what is asked at hop ``number`` of a chain, of which its prompts show what was there by then."""
    question, hop = row.question, chain.hops[number - 1]
    before, after = Chain(chain.hops[: number - 1]), Chain(chain.hops[:number])

    def cut(prompt: Prompt, reply: str, most: int, when_sampled: bool) -> bool:
        return count(continuation(prompt, reply)) > most if row.annotated else when_sampled

    if _drawn("sub_query", question.id, number, config):
        prompt = fit_hop_prompt(sub_query_prompt(question.text, before, corag), count, corag)
        lost = cut(prompt, hop.sub_query, corag.max_sub_query_tokens, hop.query_cut)
        recovers = number > 1 and chain.hops[number - 2].refused and not hop.refused
        for _ in range(config.recovery_copies if recovers else 1):
            yield TrainingExample(question.id, "sub_query", number, prompt, hop.sub_query, lost)
    # A hop that found nothing was refused without asking the model, so there is no request to learn.
    if _drawn("sub_answer", question.id, number, config) and hop.hits:
        prompt = sub_answer_prompt(hop.sub_query, top_passages(hop.hits, corag.passages_per_hop), corag)
        prompt = fit_hop_prompt(prompt, count, corag)
        lost = cut(prompt, hop.sub_answer, corag.max_sub_answer_tokens, hop.answer_cut)
        # What the model said itself may be wrong, or a refusal; what is annotated must be there to read.
        fact = hop.sub_answer if row.annotated else ""
        yield TrainingExample(question.id, "sub_answer", number, prompt, hop.sub_answer, lost, fact)
    if _drawn("stop", question.id, number, config):
        prompt = stop_check_prompt(question.text, after, corag)
        said = "Yes" if number >= enough(row) else "No"
        yield TrainingExample(question.id, "stop", number, prompt, said)


def verify_examples(
    row: ChainRow,
    passages: Mapping[str, Passage],
    count: Callable[[str], int],
    config: RowsConfig,
    corag: CoRAGConfig,
) -> Iterator[TrainingExample]:
    """Yield what the verifier would be asked of a question's candidates, as many right ones as wrong ones.

    A question whose candidates are all right or all wrong yields nothing, or one of them if the uncontested
    are wanted: what is learned of it is how hard the question is, not how good an answer.
    """
    if not _drawn("verify", row.question.id, 0, config):
        return
    if config.verify_passages is not None:
        corag = replace(corag, verify_passages=config.verify_passages)
    for number, candidate, right in contested(row, config):
        assert candidate.answer is not None
        chain = chain_of(candidate, passages, row.question.id)
        prompt = verify_request(row.question.text, chain, candidate.answer, count, corag)
        yield TrainingExample(row.question.id, "verify", number, prompt, "Yes" if right else "No")


def thought_examples(
    row: ChainRow,
    passages: Mapping[str, Passage],
    count: Callable[[str], int],
    config: RowsConfig,
    ircot: IRCoTConfig,
) -> Iterator[TrainingExample]:
    """Yield what IRCoT would have asked at each step of a question's gold reasoning, with what to think."""
    question, said = row.question, list[str]()
    facts = [hop.answer for hop in question.decomposition]
    for number, thought in enumerate(row.thoughts, 1):
        if _drawn("thought", question.id, number, config):
            shown = [hit.passage for hit in _hits(thought.passage_ids, passages, question.id)]
            prompt = thought_prompt(question.text, shown, said, count, ircot)
            cut = count(continuation(prompt, thought.sentence)) > ircot.max_thought_tokens
            fact = "".join(facts[number - 1 : number])  # the last sentence states no further one
            yield TrainingExample(
                question.id, "thought", number, prompt, thought.sentence, cut, fact, ends=number > len(facts)
            )
        said.append(thought.sentence)


def contested(row: ChainRow, config: RowsConfig) -> list[tuple[int, SampledChain, bool]]:
    """Return the candidates that verify takes, in order: their numbers from 1 on, and whether each is right.

    Right is what the datasets' scorers count as an exact match. Different answers come before further chains
    to the same answer, else by the seed; candidates that say the same word by word are taken once.
    """
    told = {
        (chain.hops, chain.answer): number
        for number, chain in reversed(list(enumerate(row.chains, 1)))
        if chain.hops and chain.answer and normalize_answer(chain.answer)
    }
    drawn = sorted(
        told.values(), key=lambda number: derive_seed(config.seed, "verify", row.question.id, str(number))
    )
    right, wrong = list[int](), list[int]()
    for number in drawn:
        side = right if exact_match(row.chains[number - 1].answer or "", row.question.answers) else wrong
        side.append(number)
    pairs = min(len(right), len(wrong), config.verify_pairs)
    if not pairs and config.verify_uncontested:
        pairs = 1  # of the one kind that there is
    kept = dict.fromkeys(_varied(right, row.chains)[:pairs], True)
    kept |= dict.fromkeys(_varied(wrong, row.chains)[:pairs], False)
    return [(number, row.chains[number - 1], kept[number]) for number in sorted(kept)]


def _varied(numbers: Sequence[int], chains: Sequence[SampledChain]) -> list[int]:
    """Put the first candidate of every answer before the second of any."""
    met: dict[str, int] = {}
    ranks = []
    for number in numbers:
        answer = normalize_answer(chains[number - 1].answer or "")
        ranks.append(met.get(answer, 0))
        met[answer] = ranks[-1] + 1
    return [number for _, number in sorted(zip(ranks, numbers, strict=True), key=lambda each: each[0])]


def of_each_length(rows: Sequence[ChainRow], config: RowsConfig) -> frozenset[str]:
    """Return the ids of the questions whose kept chains are taught: ``per_length`` of each length, if set."""
    lengths: dict[int, list[str]] = {}
    for row in rows:
        if row.chain is not None:
            lengths.setdefault(len(row.chain.hops), []).append(row.question.id)
    most = config.per_length or len(rows)
    return frozenset(
        name
        for names in lengths.values()
        for name in sorted(names, key=lambda name: derive_seed(config.seed, "length", name))[:most]
    )


def enough(row: ChainRow) -> int:
    """Return after how many hops the kept chain should stop: where its gold answer is likeliest (5.4).

    Chains from decompositions are scored at their end only, so they should go on to their end.
    """
    assert row.chain is not None
    means = row.chain.means
    return len(row.chain.hops) if len(means) < len(row.chain.hops) else 1 + means.index(max(means))


def tokenise(
    asked: TrainingExample, renderer: Renderer, config: RowsConfig
) -> tuple[TrainingRow, Shortening]:
    """Turn a request and its reply into tokens, as an engine would read the one and write the other.

    A reply that ends the turn says so: a model that is not taught to stop runs into its limit of tokens.

    Raises :class:`DataError` naming the row if the reply is blank or leaves no room for the prompt.
    """
    if not asked.reply.strip():
        raise DataError(
            f"{asked.name} has nothing to learn: the reply is blank. Leave the question out or mend it."
        )
    completion = continuation(asked.prompt, asked.reply)
    target = renderer.target_ids(ScoreRequest(asked.prompt, completion, end_of_turn=asked.ends))
    if len(target) >= config.max_length:
        raise DataError(
            f"{asked.name} has a reply of {len(target)} tokens, but rows have at most {config.max_length}: "
            "choose a larger max_length, or leave the question out."
        )
    try:
        ids, shortening = renderer.encode_within(asked.prompt, config.max_length - len(target))
    except RequestRefusedError as error:
        raise DataError(
            f"{asked.name} does not fit into rows of {config.max_length} tokens, even without passages "
            f"({error}): choose a larger max_length."
        ) from None
    row = TrainingRow(
        asked.question_id,
        asked.task,
        asked.hop,
        asked.prompt.text,
        completion,
        [*ids, *target],
        [0] * len(ids) + [1] * len(target),
    )
    return row, shortening


def chain_of(sampled: SampledChain, passages: Mapping[str, Passage], question_id: str) -> Chain:
    """Rebuild a chain with its passages."""
    return Chain(
        tuple(
            Hop(
                hop.sub_query,
                hop.sub_answer,
                hop.refused,
                _hits(hop.passage_ids, passages, question_id),
                hop.query_cut,
                hop.answer_cut,
            )
            for hop in sampled.hops
        )
    )


class Split(Protocol):
    """The options that say which questions are set aside."""

    @property
    def validation(self) -> float: ...  # noqa: D102
    @property
    def seed(self) -> int: ...  # noqa: D102


def set_aside(question_id: str, config: Split) -> bool:
    """Whether what is made of a question is for validation."""
    return derive_seed(config.seed, "validation", question_id) < config.validation * 2**31


def _drawn(task: Task, question_id: str, hop: int, config: RowsConfig) -> bool:
    if task not in config.tasks:
        return False
    place = f"hop {hop}" if config.ratio_per == "hop" else "question"
    share = config.ratios.get(task, config.ratio if hop else 1.0)
    return derive_seed(config.seed, "ratio", task, question_id, place) < share * 2**31


def _hits(ids: tuple[str, ...], passages: Mapping[str, Passage], question_id: str) -> tuple[Hit, ...]:
    missing = [name for name in ids if name not in passages]
    if missing:
        raise DataError(
            f"the chains of question '{question_id}' read passage '{missing[0]}', which the index does not "
            "have: give the index that they were sampled with."
        )
    return tuple(Hit(passages[name], 1 / rank) for rank, name in enumerate(ids, 1))
