"""What the papers' experiments cost, estimated: the table of docs/guides/reproduce_costs.md.

    python -m benchmarks.paper_costs corag
    python -m benchmarks.paper_costs ircot

Tokens are questions times what a method does (``StrategySteps`` of corag.chains) times tokens of each;
hours are the operations on these tokens over a share of a GPU's peak. Nothing of it was run: on the machine
itself a pilot ('corag run --pilot') replaces it.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from corag.chains.config import CoRAGConfig
from corag.chains.costs import StrategySteps

# Tokens of a hop (sub-query and sub-answer with 5 passages), of a chain's score, of the final answer with 20
# passages. With them six greedy hops take 9,900; the authors measured 9,855 on MuSiQue (their README).
HOP, SCORE, ANSWER = 1_100, 400, 3_300
LONGEST_ROW = 3_072
PASSAGE = 150  # tokens of one of KILT's passages
PASSAGES, DIMENSION = 35.7e6, 1_024
TRAINING = {"2wikimultihopqa": 15_000, "hotpotqa": 90_447, "musique": 19_938}
TESTS = {"2wikimultihopqa": 12_576, "hotpotqa": 7_405, "musique": 2_417, "bamboogle": 125}
# Weights, each two operations a token: Llama-3.1-8B, E5-large-v2, Flan-T5-XXL.
LLAMA, E5, FLAN = 8.0e9, 0.335e9, 11.3e9
# Share of the peak that is reached: by an engine (most tokens are prompts), by training, by transformers.
ENGINE, TRAINER, TRANSFORMERS = 0.30, 0.35, 0.20
CHAINS, MEAN_HOPS = 16, 3  # of the paper's sampling: at most 1 to 5 hops, drawn evenly
CELLS = [
    *(CoRAGConfig(max_hops=hops) for hops in (1, 6)),
    CoRAGConfig(strategy="best_of_n", chains=4, max_hops=6),
    CoRAGConfig(strategy="tree", max_hops=6),
    CoRAGConfig(strategy="best_of_n", chains=8, max_hops=10),
]
"""CoRAG's rows of its table 1."""
IRCOT_SETS = 3  # of datasets: HotpotQA, 2WikiMultihopQA, MuSiQue
PROMPT, STEPS = 6_000, 5  # the released code's limit of tokens for Flan-T5; thoughts and the reader's call


@dataclass(frozen=True)
class Gpu:
    """A card. ``flops``: dense operations a second in bfloat16, by its maker."""

    name: str
    flops: float


H100, A100, RTX_4090 = Gpu("H100", 989e12), Gpu("A100", 312e12), Gpu("RTX 4090", 165e12)


@dataclass(frozen=True)
class PricedStage:
    """A stage of an experiment.

    ``tokens`` that a model of ``weights`` reads and writes, each ``passes`` times two operations a weight;
    ``share``: of the peak that is reached. ``disk``: GB that stay.
    """

    name: str
    tokens: float
    weights: float
    disk: float
    share: float = ENGINE
    passes: float = 1.0

    def hours(self, gpu: Gpu) -> float:
        """Return hours of one such card."""
        return 2 * self.passes * self.weights * self.tokens / (self.share * gpu.flops) / 3600


def tokens_of(work: StrategySteps) -> int:
    """Return the tokens of a question, prompts and replies, as the paper counts them."""
    return work.hops * HOP + work.scores * SCORE + work.answers * ANSWER


def sweep_work() -> StrategySteps:
    """Return what a question of paper_corag.yaml's sweep takes: longer and more chains hold the others."""
    chains, tree = StrategySteps.most(CELLS[-1]), StrategySteps.most(CELLS[-2])
    lengths, counts = 7, 4  # best of 2, 4, 8 and greedy at each length, no hop at all, and the tree
    hops = chains.hops + CELLS[-1].max_hops + tree.hops
    return StrategySteps(hops, chains.scores * lengths + tree.scores, lengths * counts + 2)


def corag_stages() -> Iterator[PricedStage]:
    """Yield CoRAG's stages, as scripts/recipes/paper_corag.sh has them."""
    questions, tests = sum(TRAINING.values()), sum(TESTS.values())
    yield PricedStage(
        "index: E5-large over 35.7 million", PASSAGES * PASSAGE, E5, PASSAGES * DIMENSION * 4 / 1e9
    )
    yield PricedStage("chains: the authors', scored", questions * SCORE, LLAMA, 1)
    sampled_tokens = questions * CHAINS * MEAN_HOPS * (HOP + SCORE)
    yield PricedStage("chains: 16 of our own a question", sampled_tokens, LLAMA, 20)
    # A fifth of the hops' rows, all final answers. Activations are computed twice: 8 operations a weight.
    rows = questions * (LONGEST_ROW + 0.2 * MEAN_HOPS * HOP)
    yield PricedStage("train: with chains", rows, LLAMA, 16 + 2 * 96, TRAINER, 4)
    yield PricedStage("train: without (baseline)", questions * LONGEST_ROW, LLAMA, 16, TRAINER, 4)
    yield PricedStage(
        "decode: table 1's five rows",
        tests * sum(tokens_of(StrategySteps.most(each)) for each in CELLS),
        LLAMA,
        2,
    )
    yield PricedStage("decode: the whole sweep, figure 3", tests * tokens_of(sweep_work()), LLAMA, 10)
    yield PricedStage("decode: without chains (baseline)", tests * ANSWER, LLAMA, 0)


def corag_hours() -> dict[str, tuple[float, float]]:
    """Return hours from the index to table 1, and to the whole sweep: on one H100, and on eight.

    With the authors' chains. Two of the eight cards only search while chains are scored and questions are
    answered.
    """
    index, scoring, _, *training, table, sweep, baseline = (each.hours(H100) for each in corag_stages())
    return {
        name: (
            index + scoring + sum(training) + decoding + baseline,
            (index + sum(training)) / 8 + (scoring + decoding + baseline) / 6,
        )
        for name, decoding in (("table 1", table), ("tables 1 and 4, figure 3", sweep))
    }


def ircot_stages() -> Iterator[PricedStage]:
    """Yield IRCoT's stages on three datasets with Flan-T5-XXL, as scripts/recipes/paper_ircot.sh has them."""
    yield PricedStage("index: BM25 over 5.2 + 0.43 + 0.14 million", 0, FLAN, 6)
    choosing = IRCOT_SETS * 100 * (12 * STEPS + 18) * PROMPT
    yield PricedStage("choose: 12 cells of IRCoT, 18 of one step", choosing, FLAN, 1, TRANSFORMERS)
    testing = IRCOT_SETS * 500 * 3 * (STEPS + 1 + 1) * PROMPT
    yield PricedStage("test: 500 questions, 3 sets, 3 methods", testing, FLAN, 1, TRANSFORMERS)
    recall = IRCOT_SETS * (100 * 12 + 500 * 3) * (STEPS - 1) * PROMPT
    yield PricedStage("recall: both again without a reader", recall, FLAN, 1, TRANSFORMERS)


def searches() -> int:
    """Return the searches of table 1's rows: one for each hop and one for the question."""
    return sum(TESTS.values()) * (sum(StrategySteps.most(each).hops for each in CELLS) + 1)


STAGES = {"corag": corag_stages, "ircot": ircot_stages}


def rows_of(name: str) -> list[list[str]]:
    """Return the table's rows: stage, million tokens, hours of an H100 and of a card of 24 GB, GB of disk."""
    return [
        [stage.name, f"{stage.tokens / 1e6:,.0f}", *(_hours(stage.hours(each)) for each in (H100, RTX_4090)),
         f"{stage.disk:,.0f}"]
        for stage in STAGES[name]()
    ]  # fmt: skip


def _hours(number: float) -> str:
    """Write hours: below ten with one digit."""
    return f"{number:.1f}" if number < 10 else f"{number:,.0f}"


def main(name: str) -> None:
    """Print the table."""
    print("Estimated, not run (docs/guides/reproduce_costs.md has the arithmetic):")
    heads = ["stage", "million tokens", "H100 hours", "RTX 4090 hours", "GB of disk"]
    for row in [heads, *rows_of(name)]:
        print(f"{row[0]:44}" + "".join(f"{cell:>16}" for cell in row[1:]))
    if name == "corag":
        print(f"Searches of table 1's five rows: {searches() / 1e6:.1f} million.")
        for what, (one, eight) in corag_hours().items():
            print(
                f"All stages with the authors' chains, {what}: {one:.0f} hours on one H100, {eight:.0f} on 8."
            )


def check_name(arguments: Sequence[str]) -> str:
    """Return the experiment that a command line names."""
    if len(arguments) != 1 or arguments[0] not in STAGES:
        raise SystemExit(f"corag: name one experiment: {' or '.join(STAGES)}.")
    return arguments[0]


if __name__ == "__main__":
    main(check_name(sys.argv[1:]))
