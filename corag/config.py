"""CoRAG's options and presets."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal, cast

from corag.candidates import candidates_of
from corag.shared_budget import SharedBudget
from corag.signals import SIGNALS, Signal, check_signals
from core.errors import ConfigError
from core.method import MethodConfig
from core.prompting.template import Template, load_prompt
from core.protocols import Ability
from core.runs.rows import SavedRow
from core.text import normalize_answer
from core.types import CandidateAnswer

PROMPTS = Path(__file__).parent / "prompts"


@dataclass(frozen=True)
class CoRAGConfig(MethodConfig):
    """Options of CoRAG. Where the paper and its released code differ, the paper is the default.

    Attributes:
        preset: values for the other options: "paper"; "released_code" (the authors' inference code with its
            accidents, but for those that docs/methods.md lists; it wants the checkpoint's own prompts
            from files of yours, and questions that bring their ``context_ids``); or "small_model" (few
            passages and short replies, for models of some hundred million weights on CPUs; the shipped
            adapter's).
        strategy: "greedy" (one chain at temperature 0), "best_of_n", "tree" (breadth-first with rollouts), or
            "adaptive" (greedy, then samples, then tree search, each only while the chain's own score says
            that it is unsure; or, by vote, samples until the vote is as good as decided).
        max_hops: hops of a chain at most (the paper's L); 0 answers from the question's passages alone.
        chains: chains sampled by best_of_n (the paper's N), and by adaptive at most.
        temperature: of sampled sub-queries; sub-answers and final answers are greedy.
        first_chain_greedy: the first of the N chains is the greedy one (released code; the paper samples
            all; also ``greedy_chain``).
        expand: sub-queries tried per state of the tree.
        rollouts: continuations sampled to value a state of the tree.
        rollout_hops: hops of a rollout at most; 0 values states by themselves.
        beam: states of the tree that are kept per depth.
        aggregate: a state is worth the "mean" of its rollouts' scores, or their "min" (the best).
        reuse: rollouts of a kept state become its children, equal chains are scored once and a single chain
            not at all; false repeats that work.
        repeated_children: children of a tree's state may repeat the sub-queries before them (released code).
        round_samples: for every child wanted one and a half sub-queries are sampled, the sum rounded "up" or
            "down" (released code).
        value_all: false values no states by rollouts where the beam has room for all of them, which then keep
            their order (released code).
        rank_by: which chain is best: "refusal" (mean log-likelihood of the refusal sentence given the chain,
            lower is better), "refusals" (fewest refused hops), "vote" (most frequent answer), "verifier"
            (the model's own judgement of the answer, which the row task verify teaches: log P(Yes) - log
            P(No)), "likelihood" (of the answer, given the chain alone, mean per token) or "probability" (of
            all that the model wrote in the chain, sub-queries and sub-answers, so that a longer chain has
            less; it costs no token, and in a tree it prefers states that have stopped early). Several
            with a plus, such as "vote+verifier": the product of their probabilities. refusals and vote need
            no log-probabilities.
        judged: the answer that is voted on, verified and scored: the "final" one, or the "draft" from the
            chain alone, without passages, which costs a quarter.
        vote_sure: an adaptive vote ends when the leading answer is the more frequent one of the first two, in
            the long run, with this probability (0.95 in adaptive consistency, Aggarwal et al. 2023).
        vote_weight: what a chain's vote counts: "one", or its probability by another signal
            (self-consistency, weighted).
        noted_signals: further signals that the trace notes of every chain that is scored, but not within a
            tree; they choose nothing.
        verify_passages: passages shown to the verifier at most, of those that the chain's sub-answers were
            read from, each hop's best first; 0 for none.
        measure_candidates: every candidate is answered from and measured by refusal, likelihood and the
            signals that these options name, also where the choice does not need it: for 'corag ceiling'. No
            answer changes, and no budget or table counts these tokens: they stand in the ledger as
            "measure". The seconds of a question count it.
        stop: "length" runs to max_hops; "check" asks the model after every hop whether to stop; "settled"
            stops when the answer drafted from the chain alone is the same after two hops; "learned" compares
            the likelihoods of Yes and No; "verifier" does, too, of whether the drafted answer is right.
        yes_bias: added to the log-likelihood of Yes by the last two: above 0 saves tokens.
        repeats: a sub-query is a repeat if it equals an earlier one after "normalised" spelling, or only if
            "exact".
        replies: "cleaned" takes of a sub-query the first line, without label and quotes, sub-answers in one
            line, refusals as the whole sentence, and of the final reply what it states; "as_written"
            (released code) takes off quotes and that code's label of sub-queries, nothing else, and blank
            ones are as good as others.
        ask_without_passages: a sub-answer is asked for where the search found nothing, too (released code);
            else that is a refusal.
        tries: sub-queries asked for per hop, on average over a chain, before one that only repeats itself
            ends; requests for children before a state of the tree that only repeats itself ends.
        passages_per_hop: passages that a sub-answer is read from (also ``top_k``).
        passage_order: how these are ordered: "best_first", which the prefix cache likes, since similar
            sub-queries share their best passages; or "best_last" (released code).
        search_depth: hits kept per search, for recall and for fusing; at least passages_per_hop are searched.
        merge: how the lists of a chain's searches become one, where they are counted, shown and trained on:
            by "reciprocal_rank" (paper, table 4), or in "turns": the first hit of the question's own search
            and of each hop's, then the second of each. Turns lift no passage for being found by many.
        context: passages shown to the final answer: those of the "question" (paper), of the "chain", of both
            "fused" as ``merge`` says, or as "evidence" only those that a sub-answer stands in, one a hop;
            where none does, those of both.
        context_passages: so many of them.
        context_order: "best_last" puts the best passage next to the question, "best_first" at the top.
        cuts: how what is too long is cut: "whole" ends a passage's text at a word, and a prompt loses whole
            passages, worst first; "tokens" (released code) ends passage and title within a word, and a
            prompt's text, counted without the chat template, loses its middle.
        max_passage_tokens: final passages are cut to so many tokens (released code: 183, with the title); 0
            for whole passages.
        max_prompt_tokens: the final prompt is cut to so many tokens (released code: 3072); 0 for the window.
        max_hop_prompt_tokens: the prompts of sub-queries, sub-answers and scores are cut to so many tokens
            (released code: 4096); 0 for the window.
        max_sub_query_tokens: most tokens of a sub-query.
        max_sub_answer_tokens: most tokens of a sub-answer.
        max_answer_tokens: most tokens of the final answer.
        refusal: what a sub-answer says when the passages do not tell.
        task: what the questions are like, as the prompts say it; KILT's datasets bring their own ('corag
            datasets' lists them).
        mean_budget: tokens per question that an adaptive run spends on average at most; 0 for no limit.
        unsure_above: an adaptive chain is unsure while its score is above this; without a value, above the
            median of the greedy chains that the run has scored so far, since what is a good score depends on
            the model.
        sub_query_prompt: a shipped name, a file, or a text with {query}, {task} and {hops}.
        sub_answer_prompt: the same with {sub_query}, {passages} and {refusal}.
        final_answer_prompt: the same with {query}, {task}, {hops} and {passages}.
        stop_check_prompt: the same with {query}, {task} and {hops}.
        verify_prompt: the same with {query}, {hops}, {passages} and {answer}.
    """

    preset: Literal["paper", "released_code", "small_model"] = "paper"
    strategy: Literal["greedy", "best_of_n", "tree", "adaptive"] = "greedy"
    max_hops: int = 6
    chains: int = 4
    temperature: float = 0.7
    first_chain_greedy: bool = False
    expand: int = 4
    rollouts: int = 2
    rollout_hops: int = 2
    beam: int = 1
    aggregate: Literal["mean", "min"] = "mean"
    reuse: bool = True
    repeated_children: bool = False
    round_samples: Literal["up", "down"] = "up"
    value_all: bool = True
    rank_by: str = "refusal"
    judged: Literal["final", "draft"] = "final"
    vote_sure: float = 0.95
    vote_weight: Literal["one", "refusal", "refusals", "verifier", "likelihood", "probability"] = "one"
    noted_signals: tuple[Signal, ...] = ()
    verify_passages: int = 5
    measure_candidates: bool = False
    stop: Literal["length", "check", "settled", "learned", "verifier"] = "length"
    yes_bias: float = 0.0
    repeats: Literal["normalised", "exact"] = "normalised"
    replies: Literal["cleaned", "as_written"] = "cleaned"
    ask_without_passages: bool = False
    tries: int = 4
    passages_per_hop: int = 5
    passage_order: Literal["best_first", "best_last"] = "best_first"
    search_depth: int = 20
    merge: Literal["reciprocal_rank", "turns"] = "reciprocal_rank"
    context: Literal["question", "chain", "fused", "evidence"] = "question"
    context_passages: int = 20
    context_order: Literal["best_last", "best_first"] = "best_last"
    cuts: Literal["whole", "tokens"] = "whole"
    max_passage_tokens: int = 0
    max_prompt_tokens: int = 0
    max_hop_prompt_tokens: int = 0
    max_sub_query_tokens: int = 64
    max_sub_answer_tokens: int = 128
    max_answer_tokens: int = 128
    refusal: str = "No relevant information found"
    task: str = "answer multi-hop questions"
    mean_budget: int = 0
    unsure_above: float | None = None
    sub_query_prompt: str = "sub_query"
    sub_answer_prompt: str = "sub_answer"
    final_answer_prompt: str = "final_answer"
    stop_check_prompt: str = "stop_check"
    verify_prompt: str = "verify"

    GROUPED_BY: ClassVar[tuple[str, ...]] = ("strategy",)
    LOG_ODDS: ClassVar[tuple[str, ...]] = tuple(name for name, kind in SIGNALS.items() if kind.log_odds)
    KEEPS_CANDIDATES: ClassVar[str] = (
        "answer with --corag.strategy best_of_n (or adaptive) and --corag.measure_candidates true, or "
        "--corag.rank_by vote."
    )
    LATER: ClassVar[tuple[str, ...]] = (
        "repeated_children", "round_samples", "value_all", "replies", "ask_without_passages", "cuts",
        "max_hop_prompt_tokens", "merge", "measure_candidates", "judged", "vote_weight", "noted_signals",
        "verify_passages", "verify_prompt", "vote_sure",
    )  # fmt: skip
    ALIASES: ClassVar[dict[str, str]] = {
        "top_k": "passages_per_hop", "n": "chains", "L": "max_hops", "N": "chains", "max_depth": "max_hops",
        "greedy_chain": "first_chain_greedy",
        # As in the released code.
        "decode_strategy": "strategy", "max_path_length": "max_hops", "best_n": "chains",
        "sample_temperature": "temperature", "expand_size": "expand", "num_rollouts": "rollouts",
        "beam_size": "beam", "num_contexts": "context_passages", "context_placement": "context_order",
        "max_message_length": "max_hop_prompt_tokens",
    }  # fmt: skip
    VALUE_ALIASES: ClassVar[dict[str, dict[str, str]]] = {
        "strategy": {"tree_search": "tree"},
        "context_order": {"backward": "best_last", "forward": "best_first"},
    }
    POINTERS: ClassVar[dict[str, str]] = {
        "max_len": "it limits the final prompt and, by the number of passages, each of them: write "
        "--corag.max_prompt_tokens and --corag.max_passage_tokens, and --corag.cuts tokens to cut as there.",
        "num_threads": "no threads are counted here: write --batch_size, the questions in flight.",
        "rollout_depth": "write --corag.rollout_hops, the hops of a rollout.",
    }
    PRESETS: ClassVar[dict[str, dict[str, Any]]] = {
        "paper": {},
        "small_model": {
            "passages_per_hop": 3, "merge": "turns", "context": "fused", "context_passages": 5,
            "max_sub_query_tokens": 32, "max_sub_answer_tokens": 24, "max_answer_tokens": 16,
        },
        "released_code": {
            "first_chain_greedy": True, "reuse": False, "repeated_children": True, "round_samples": "down",
            "value_all": False, "repeats": "exact", "replies": "as_written", "ask_without_passages": True,
            "passage_order": "best_last", "cuts": "tokens", "max_passage_tokens": 183,
            "max_prompt_tokens": 3072, "max_hop_prompt_tokens": 4096,
        },
    }  # fmt: skip

    def __post_init__(self) -> None:
        _at_least(self, 0, "max_hops", "rollout_hops", "max_passage_tokens", "max_prompt_tokens")
        _at_least(self, 0, "max_hop_prompt_tokens", "temperature", "mean_budget", "verify_passages")
        _at_least(self, 1, "chains", "expand", "rollouts", "beam", "tries", "passages_per_hop")
        _at_least(self, 1, "search_depth", "context_passages")
        _at_least(self, 1, "max_sub_query_tokens", "max_sub_answer_tokens", "max_answer_tokens")
        if self.strategy != "adaptive" and (self.mean_budget or self.unsure_above is not None):
            raise ConfigError(
                "corag's mean_budget and unsure_above are for strategy 'adaptive', but the strategy is "
                f"'{self.strategy}'."
            )
        if not normalize_answer(self.refusal):
            raise ConfigError(
                "corag needs a refusal sentence: what a sub-answer says when the passages do not tell."
            )
        one_spelling = "+".join(self.signals)  # "vote + verifier" is no other
        object.__setattr__(self, "rank_by", one_spelling)
        check_signals(self)

    @property
    def signals(self) -> tuple[Signal, ...]:
        """What chains are ranked by, as ``rank_by`` names it."""
        return cast("tuple[Signal, ...]", tuple(name.strip() for name in self.rank_by.split("+")))

    @property
    def chain_signals(self) -> tuple[Signal, ...]:
        """What is measured of each chain by itself: to rank, to weigh its vote, to be noted."""
        weight = () if self.vote_weight == "one" else (self.vote_weight,)
        names = (*self.signals, *weight, *self.noted_signals)
        return tuple(name for name in dict.fromkeys(names) if name != "vote")

    @property
    def wants_probabilities(self) -> bool:
        """Whether sub-queries and sub-answers are asked for with their log-probabilities."""
        return "probability" in self.chain_signals

    @property
    def judges_answers(self) -> bool:
        """Whether ranking a chain wants its answer first."""
        return any(SIGNALS[name].of_answer for name in (*self.signals, *self.chain_signals))

    @property
    def uses_verifier(self) -> bool:
        """Whether the model is asked if answers are right."""
        ranks = (self.strategy != "greedy" or self.measure_candidates) and "verifier" in self.chain_signals
        return ranks or self.stop == "verifier"

    def prompt(
        self, name: Literal["sub_query", "sub_answer", "final_answer", "stop_check", "verify"]
    ) -> Template:
        """Load one of the prompts; what it does not say about writing lists is as in the shipped one."""
        return load_prompt(getattr(self, f"{name}_prompt"), name, PROMPTS)

    def templates(self) -> tuple[Template, ...]:
        """Every prompt that these options use."""
        templates: tuple[Template, ...] = (
            self.prompt("sub_query"), self.prompt("sub_answer"), self.prompt("final_answer"),
        )  # fmt: skip
        if self.stop in ("check", "learned"):
            templates += (self.prompt("stop_check"),)
        return (*templates, self.prompt("verify")) if self.uses_verifier else templates

    def needs(self) -> Mapping[Ability, str]:
        """Scores, to rank chains by likelihood and to let it decide when to stop."""
        needed: dict[Ability, str] = {}
        ranks = self.strategy != "greedy" or self.measure_candidates
        if ranks and self.wants_probabilities:
            needed[Ability.LOGPROBS] = "choose --corag.rank_by refusals, and no signal 'probability'"
        found = []
        if self.strategy != "greedy" and any(SIGNALS[name].scored for name in self.chain_signals):
            others = "refusals" if self.strategy == "tree" else "refusals or vote"
            found.append(f"--corag.rank_by {others}")
        if self.stop in ("learned", "verifier"):
            found.append("--corag.stop check")
        if self.measure_candidates:
            found.append("--corag.measure_candidates false")
        return needed | ({Ability.SCORES: f"choose {' and '.join(found)}"} if found else {})

    def shared_state(self, rows: Iterable[SavedRow]) -> SharedBudget | None:
        """Return the budget that the questions of an adaptive run share; other strategies share nothing.

        Nor do votes without a mean budget: only scores are compared with those of other questions.
        """
        shares = self.strategy == "adaptive" and ("vote" not in self.signals or self.mean_budget)
        return SharedBudget.of_rows(rows, self.mean_budget) if shares else None

    @classmethod
    def exchangeable_candidates(cls, options: Mapping[str, Any]) -> bool:
        """Adaptive compute samples on while its chains are unsure or disagree; a tree grows by scores."""
        return options.get("strategy") not in ("adaptive", "tree")

    @classmethod
    def about_candidates(cls, options: Mapping[str, Any]) -> str:
        """A greedy chain may be better or worse than a sampled one, and is among any k as often as these."""
        mixed = options.get("strategy") == "best_of_n" and options.get("first_chain_greedy")
        return "one of the candidates is greedy, so @k mixes it with samples" if mixed else ""

    @classmethod
    def candidates(cls, row: SavedRow, options: Mapping[str, Any]) -> tuple[CandidateAnswer, ...]:
        """Return the chains that were answered from, with what their rankers say: higher is better."""
        return candidates_of(row, options)


def _at_least(config: CoRAGConfig, least: int, *names: str) -> None:
    for name in names:
        value = getattr(config, name)
        if value < least:
            raise ConfigError(f"corag's {name} must be at least {least}, but it is {value}.")
