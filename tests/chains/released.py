"""A scripted model, an index and questions on which CoRAG's authors' agent was run as well.

What their code did stands in ``released_code.json``: its chains, answers, counts of calls and a hash of all
that it asked. Prompts are written in these words on both sides, so that the layout is compared and not the
wording. Every reply depends on the request alone, and on how often it was made while sampling.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field

from corag.core.seeds import stable_hash

# The authors' layouts of hops and passages (their ``prompts.py``) in words of ours.
HOPS = "--- hop\nAsked {number}: {sub_query}\nFound {number}: {sub_answer}\n--- no_hops\n(none)\n"
PROMPTS = {
    "sub_query_prompt": HOPS + "--- user\nNEXT\n{hops}\nTASK {task}\nMAIN {query}",
    "sub_answer_prompt": "--- passage\n{title}\n{text}\n\n--- hop\nQ: {sub_query}\nA: {sub_answer}\n\n"
    "--- no_passages\n\n\n--- user\nREAD\n{passages}ASKED {sub_query}",
    "final_answer_prompt": HOPS + "--- passage\nDoc {index}: {title}\n{text}\n\n"
    "--- no_passages\n\n\n--- user\nFINAL\n{passages}{hops}\nTASK {task}\nMAIN {query}",
}
REFUSAL = "No relevant information found"

_TOKEN = re.compile(r"\s*\S+|\s+$")


def tokens(text: str) -> list[str]:
    """Split a text into tokens that joined are the text, each a word with the white space before it."""
    return _TOKEN.findall(text)


def count(text: str) -> int:
    return len(tokens(text))


def number(text: str, below: int) -> int:
    return int(stable_hash(text), 16) % below


SUB_QUERIES = (
    "who wrote it",
    "where is it",
    "Who wrote it",
    " who wrote it ",
    '"who wrote it"',
    "",
    "  ",
    "when\nwas it",
    "Intermediate query 2: where is it",
    "Question: where is it",
    "what is east of it",
    "who ruled there",
    "2. who ruled there",
    '"a" or "b"',
    '"',
    "which river\n\nis it",
    "how old is she",
    "is it Mara",
    "who is Mara",
)
SUB_ANSWERS = (
    "Mara Velden",
    " Issel ",
    "",
    REFUSAL,
    REFUSAL + ".",
    "no relevant information found",
    "Oslo\nand Bergen",
    "So the answer is: Issel.",
    '"Tarn Hollow"',
    "\n",
    "It lies in the north of the country by the sea.",
    "Issel\n",
)
ANSWERS = (
    "Issel",
    " Issel.\n",
    "So the answer is: Issel.",
    '"Issel"',
    "Issel\nor not",
    "",
    "No relevant information found",
)


@dataclass
class Script:
    """A question's world. ``seed`` tells it from others; ``plain`` models only say new and whole things."""

    seed: int
    plain: bool = False
    asked: Counter[tuple[str, bool, int]] = field(default_factory=Counter)

    @property
    def question(self) -> str:
        return f"Which river flows by the town of book {self.seed}?"

    def reply(self, prompt: str, temperature: float, n: int) -> list[str]:
        """Reply to a request; sampled ones differ from one time to the next."""
        place = (prompt, temperature > 0, n)
        time = self.asked[place]
        self.asked[place] += temperature > 0
        kind = prompt.split()[0]
        return [self._one(kind, f"{self.seed} {prompt} {temperature > 0} {n} {time} {i}") for i in range(n)]

    def _one(self, kind: str, key: str) -> str:
        if self.plain:
            return {"NEXT": "what is ", "READ": "it is ", "FINAL": "Issel "}[kind] + str(number(key, 97))
        choices = {"NEXT": SUB_QUERIES, "READ": SUB_ANSWERS, "FINAL": ANSWERS}[kind]
        return choices[number(key, len(choices))]

    def score(self, prompt: str) -> float:
        """Mean log-likelihood of the refusal; of few values, so that there are ties."""
        return -1.0 - number(f"{self.seed} score {prompt}", 6)

    def found(self, query: str, corpus: int) -> list[int]:
        """The places of the passages that a search finds, best first; some find nothing, as blank ones do."""
        if not query.strip() or number(f"{self.seed} {query}", 5) == 0:
            return []
        return [
            number(f"{self.seed} {query} {rank}", corpus // 5) + rank * (corpus // 5) for rank in range(5)
        ]


def corpus(words: int, size: int = 40) -> list[tuple[str, str]]:
    """Passages as (title, text) of up to so many words."""
    return [
        (
            f"Title {place}",
            " ".join(f"w{place}x{word}" for word in range(1 + number(f"{place} {words}", words))),
        )
        for place in range(size)
    ]


def digest(requests: list[tuple[str, float, int]]) -> str:
    """Hash all that was asked, in whatever order: chains go on at the same time here, and in turn there."""
    return stable_hash(
        "\0".join(sorted(f"{prompt}\1{temperature:g}\1{n}" for prompt, temperature, n in requests))
    )
