"""CoRAG's options and presets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, TypeAlias

from annotated_types import Ge, Gt, Lt

from corag.chains.conventions import OURS, Conventions
from corag.chains.prompting import PromptName
from corag.chains.released_code import RELEASED_CODE
from corag.chains.search_text import SearchText
from corag.chains.signals import SIGNALS
from corag.chains.stopping import STOP_RULES
from corag.core.errors import ConfigError, nearest
from corag.core.language.text import normalize_answer
from corag.core.method import MethodConfig
from corag.core.options.names import NameOrPath
from corag.core.prompting.template import Template, load_prompt
from corag.core.protocols import Ability

PROMPTS = Path(__file__).parent / "prompts"

# The choices are the tables', so that a new signal or rule needs no line here. A type checker cannot read it.
if TYPE_CHECKING:
    Measurable: TypeAlias = str
    StopName: TypeAlias = str
else:
    Measurable = Literal[tuple(name for name, signal in SIGNALS.items() if signal.measure)]
    StopName = Literal[tuple(STOP_RULES)]


@dataclass(frozen=True)
class CoRAGConfig(MethodConfig, section="corag"):
    """Options of CoRAG. Where the paper and its released code differ, the paper is the default."""

    preset: Literal["paper", "released_code", "small_model", "lean"] = "paper"
    """values for the other options: "paper"; "released_code" (the authors' inference code with its quirks,
    except those listed in docs/methods/corag.md; requires the checkpoint's own prompts as files, and
    questions with ``context_ids``); "small_model" (few passages and short replies, for models of a few
    hundred million parameters on CPUs; used by the shipped adapter); or "lean" (fewest tokens: "small_model"
    with pruned passages, evidence-only context and the learned stop)."""

    strategy: Literal["greedy", "best_of_n", "tree", "adaptive"] = "greedy"
    """"greedy" (one chain at temperature 0), "best_of_n", "tree" (breadth-first search with rollouts), or
    "adaptive" (samples chains until the majority vote is decided: requires ``rank_by`` "vote")."""

    max_hops: Annotated[int, Ge(0)] = 6
    """maximum hops of a chain (the paper's L); 0 answers from the question's passages alone."""

    chains: Annotated[int, Ge(1)] = 4
    """chains sampled by best_of_n (the paper's N); the maximum for adaptive."""

    temperature: Annotated[float, Ge(0)] = 0.7
    """sampling temperature of sub-queries; sub-answers and final answers are greedy."""

    first_chain_greedy: bool = False
    """the first of the N chains is decoded greedily (released code; the paper samples all; also
    ``greedy_chain``)."""

    expand: Annotated[int, Ge(1)] = 4
    """sub-queries sampled per state of the tree."""

    rollouts: Annotated[int, Ge(1)] = 2
    """continuations sampled to estimate the value of a tree state."""

    rollout_hops: Annotated[int, Ge(0)] = 2
    """maximum hops of a rollout; 0 scores the state itself."""

    beam: Annotated[int, Ge(1)] = 1
    """tree states kept per depth."""

    aggregate: Literal["mean", "min"] = "mean"
    """value of a state: "mean" of its rollouts' scores, or "min" (the best rollout)."""

    reuse: bool = True
    """rollouts of a kept state become its children, identical chains are scored once and a single chain is
    not scored; false recomputes all of it."""

    rank_by: str = "refusal"
    """ranking of candidate chains: "refusal" (mean log-likelihood of the refusal sentence given the chain,
    lower is better), "refusals" (fewest unanswered hops), "vote" (most frequent answer), or "probability"
    (sequence log-probability of the chain, not normalised for length; costs no tokens; in a tree it prefers
    states that stopped early). Join several by a plus, such as "vote+probability": the product of their
    probabilities. refusals and vote need no log-probabilities."""

    judged: Literal["final", "draft"] = "final"
    """the answer that is voted on: the "final" one, or the "draft" from the chain alone, without passages, at
    a quarter of the tokens."""

    vote_sure: Annotated[float, Gt(0.5), Lt(1)] = 0.95
    """adaptive sampling ends when the leading answer wins against the runner-up with this probability (0.95
    in adaptive consistency, Aggarwal et al. 2023)."""

    measure: tuple[Measurable, ...] = ()
    """signals to compute for every finished candidate even if the ranking does not need them, such as
    "refusal,probability"; each candidate is also answered from, for 'corag table --ceiling'. "refusals" alone
    computes only the answers. Answers do not change. These tokens are excluded from budgets and tables; the
    ledger lists them as "measure". A question's seconds include them."""

    stop: StopName = "length"
    """when a chain ends: "length" always runs to max_hops; "check" asks the model after every hop; "settled"
    ends when the answer drafted from the chain is the same after two hops; "learned" compares the likelihoods
    of Yes and No."""

    yes_bias: float = 0.0
    """added to the log-likelihood of Yes by "learned": above 0 stops earlier."""

    tries: Annotated[int, Ge(1)] = 4
    """retry limit: a chain ends after ``tries`` x hops sub-queries that only repeat earlier ones; a tree
    state after ``tries`` requests for children that only repeat."""

    passages_per_hop: Annotated[int, Ge(1)] = 5
    """passages that a sub-answer is read from (also ``top_k``)."""

    prune: Annotated[int, Ge(0)] = 0
    """the best passage is kept whole, the others are cut to this many sentences: the first one and those that
    share most words with the sub-query (for the final answer: with question and chain); 0 for whole
    passages."""

    search_depth: Annotated[int, Ge(1)] = 20
    """hits kept per search, for recall and rank fusion; at least passages_per_hop are retrieved."""

    search_text: SearchText = "sub_query"
    """the search query of a hop: its "sub_query", sub-query plus last sub-"answer" (higher recall on MuSiQue
    with BM25), or sub-query plus "question" (lower recall, unless an encoder was trained on it)."""

    merge: Literal["reciprocal_rank", "turns"] = "reciprocal_rank"
    """how the result lists of a chain's searches are merged for recall, prompts and training: by
    "reciprocal_rank" fusion (paper, table 4), or in "turns" (round-robin): the first hit of the question's
    search and of each hop's, then the second of each. Turns do not favour passages that several searches
    retrieved."""

    context: Literal["question", "chain", "fused", "evidence"] = "question"
    """passages of the final prompt: those of the "question" (paper), of the "chain", both "fused" as set by
    ``merge``, or only the "evidence": one passage per hop that contains its sub-answer; if no passage
    contains one, those of both."""

    given_context: Literal["use", "ignore"] = "ignore"
    """whether passages that a question brings (``context_ids``) stand for its own search: "ignore" searches
    (the paper's text; needed for an index other than theirs), "use" reads them (released code)."""

    context_passages: Annotated[int, Ge(1)] = 20
    """number of passages in the final prompt."""

    context_order: Literal["best_last", "best_first"] = "best_last"
    """"best_last" puts the best passage next to the question, "best_first" at the top."""

    max_passage_tokens: Annotated[int, Ge(0)] = 0
    """passages of the final prompt are truncated to this many tokens, at a word (released code: 183, with the
    title, within a word); 0 for whole passages."""

    max_prompt_tokens: Annotated[int, Ge(0)] = 0
    """whole passages are dropped from the final prompt, worst first, until it has this many tokens (released
    code: 3072, cut in the middle); 0 for the context window."""

    compare: Literal["model", "rules"] = "model"
    """who answers comparison questions (which of two; same country) when the sub-answers give a date or the
    country of both: the "model", or "rules", computed without tokens (English questions only).
    If only one value is known, the other is asked for in the same words. Unclear cases go to the model. The
    trace records the rule and both values; 'corag table' counts them."""

    max_sub_query_tokens: Annotated[int, Ge(1)] = 64
    """token limit of a sub-query."""

    max_sub_answer_tokens: Annotated[int, Ge(1)] = 128
    """token limit of a sub-answer."""

    max_answer_tokens: Annotated[int, Ge(1)] = 128
    """token limit of the final answer."""

    refusal: str = "No relevant information found"
    """the sub-answer when the passages do not contain the answer."""

    task: str = "answer multi-hop questions"
    """the task description in the prompts; KILT datasets have their own (--print_config shows it)."""

    sub_query_prompt: NameOrPath = "sub_query"
    """a shipped name, a file, or a text with {query}, {task} and {hops}."""

    sub_answer_prompt: NameOrPath = "sub_answer"
    """the same with {sub_query}, {passages} and {refusal}."""

    final_answer_prompt: NameOrPath = "final_answer"
    """the same with {query}, {task}, {hops} and {passages}."""

    stop_check_prompt: NameOrPath = "stop_check"
    """the same with {query}, {task} and {hops}."""

    ALIASES: ClassVar[dict[str, str]] = {
        "top_k": "passages_per_hop", "n": "chains", "L": "max_hops", "N": "chains", "max_depth": "max_hops",
        "greedy_chain": "first_chain_greedy",
        # As in the released code.
        "decode_strategy": "strategy", "max_path_length": "max_hops", "best_n": "chains",
        "sample_temperature": "temperature", "expand_size": "expand", "num_rollouts": "rollouts",
        "beam_size": "beam", "num_contexts": "context_passages", "context_placement": "context_order",
    }  # fmt: skip
    FOR_DOCUMENTS: ClassVar[dict[str, Any]] = {
        "final_answer_prompt": "final_documents", "context_order": "best_first", "max_answer_tokens": 400,
    }  # fmt: skip
    PRESETS: ClassVar[dict[str, dict[str, Any]]] = {
        "paper": {},
        "small_model": {
            "passages_per_hop": 3, "merge": "turns", "context": "fused", "context_passages": 5,
            "max_sub_query_tokens": 32, "max_sub_answer_tokens": 24, "max_answer_tokens": 16,
        },
        "lean": {
            "passages_per_hop": 3, "prune": 2, "merge": "turns", "context": "evidence", "context_passages": 5,
            "max_hops": 4, "stop": "learned", "rank_by": "probability",
            "max_sub_query_tokens": 32, "max_sub_answer_tokens": 24, "max_answer_tokens": 16,
        },
        # The rest of what that code does otherwise is no option: see released_code.py.
        "released_code": {
            "first_chain_greedy": True, "reuse": False, "given_context": "use", "max_passage_tokens": 183,
            "max_prompt_tokens": 3072,
        },
    }  # fmt: skip

    def __post_init__(self) -> None:
        if not normalize_answer(self.refusal):
            raise ConfigError(
                "corag needs a refusal sentence: what a sub-answer says when the passages do not tell."
            )
        one_spelling = "+".join(self.signals)  # "vote + refusals" is no other
        object.__setattr__(self, "rank_by", one_spelling)
        self._check_ranking()
        self._check_vote()

    def _check_ranking(self) -> None:
        """Refuse a ranking that cannot be made."""
        for name in self.signals:
            if name not in SIGNALS:
                hint = nearest(name, SIGNALS)
                raise ConfigError(
                    f"corag's rank_by is '{self.rank_by}', but '{name}' ranks nothing: "
                    f"{hint}{'' if hint.endswith('?') else '.'} Several are joined by a plus."
                )
        if "vote" in self.signals and self.strategy == "tree":
            raise ConfigError(
                f"rank_by '{self.rank_by}' compares final answers, which strategy 'tree' does not have on "
                "the way: use 'refusal', 'refusals' or 'probability', or strategy 'best_of_n'."
            )

    def _check_vote(self) -> None:
        """Refuse options of an adaptive vote that would do nothing, or that it cannot count."""
        if self.strategy != "adaptive" and self.vote_sure != type(self).vote_sure:
            raise ConfigError(
                f"corag's vote_sure is for strategy 'adaptive', but the strategy is '{self.strategy}'."
            )
        if self.strategy == "adaptive" and self.rank_by != "vote":
            raise ConfigError(
                f"strategy 'adaptive' counts votes to know when to stop, but rank_by is '{self.rank_by}': "
                "add corag.rank_by=vote, or use strategy 'best_of_n'."
            )

    @property
    def samples(self) -> bool:
        """Whether the temperature has an effect: of a greedy chain only repeated sub-queries are sampled."""
        return self.strategy != "greedy"

    @property
    def chains_at_once(self) -> int:
        """The chains, or of a tree the rollouts of a depth."""
        tree = self.beam * self.expand * self.rollouts
        return {"greedy": 1, "tree": tree}.get(self.strategy, self.chains)

    @property
    def signals(self) -> tuple[str, ...]:
        """What chains are ranked by, as ``rank_by`` names it."""
        return tuple(name.strip() for name in self.rank_by.split("+"))

    @property
    def chain_signals(self) -> tuple[str, ...]:
        """What ranking measures of each chain by itself."""
        return tuple(name for name in dict.fromkeys(self.signals) if SIGNALS[name].measure)

    @property
    def conventions(self) -> Conventions:
        """How replies are read and text is cut: the authors' way with preset "released_code", else ours."""
        return RELEASED_CODE if self.preset == "released_code" else OURS

    @property
    def used_signals(self) -> tuple[str, ...]:
        """All that is measured of a chain: to rank it, unless there is but one, and to show it."""
        ranking = self.chain_signals if self.strategy != "greedy" else ()
        # What is ranked by is measured of every candidate, too.
        return tuple(dict.fromkeys((*ranking, *self.measure, *(self.chain_signals if self.measure else ()))))

    @property
    def needs_probabilities(self) -> bool:
        """Whether sub-queries and sub-answers are asked for with their log-probabilities."""
        return any(Ability.LOGPROBS in SIGNALS[name].needs for name in self.used_signals)

    @property
    def judges_answers(self) -> bool:
        """Whether ranking a chain needs its answer first."""
        return any(SIGNALS[name].of_answer for name in self.signals)

    def prompt(self, name: PromptName) -> Template:
        """Load one of the prompts; what it does not say about writing lists is as in the shipped one."""
        return load_prompt(getattr(self, f"{name}_prompt"), name, PROMPTS)

    def templates(self) -> tuple[Template, ...]:
        """Every prompt that these options use."""
        if not self.max_hops:
            return (self.prompt("final_answer"),)
        templates: tuple[Template, ...] = (
            self.prompt("sub_query"), self.prompt("sub_answer"), self.prompt("final_answer"),
        )  # fmt: skip
        return (*templates, *map(self.prompt, STOP_RULES[self.stop].prompts))

    def needs(self) -> Mapping[Ability, str]:
        """Return what ranking, the stop rule and samples ask of the model, and the ways out."""
        abilities: dict[Ability, str] = {}
        if self.samples and self.temperature > 0:
            abilities[Ability.TEMPERATURE] = "choose corag.strategy=greedy"
        if self.needs_probabilities:
            abilities[Ability.LOGPROBS] = "choose corag.rank_by=refusals, and no signal 'probability'"
        ways = []
        if (self.strategy != "greedy" or self.measure) and self._need_scores(self.chain_signals):
            others = "refusals" if self.strategy == "tree" else "refusals or corag.rank_by=vote"
            ways.append(f"corag.rank_by={others}")
        if Ability.SCORES in STOP_RULES[self.stop].needs:
            ways.append("corag.stop=check")
        if self._need_scores(self.measure):
            ways.append("corag.measure=refusals")
        return abilities | ({Ability.SCORES: f"choose {' and '.join(ways)}"} if ways else {})

    @staticmethod
    def _need_scores(names: tuple[str, ...]) -> bool:
        return any(Ability.SCORES in SIGNALS[name].needs for name in names)
