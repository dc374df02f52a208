"""Scripts on which IRCoT's authors' code was run as well: a model, an index and worked examples.

What their code did stands in ``released_code.json`` (IRCoT) and ``released_readers.json`` (their one-step and
no-retrieval baselines): thoughts, queries, the answer and a hash of every prompt in order. The examples are
ours, in the layouts of the authors' files, of which there are four: with chains of thought or bare answers,
for Codex or, with an instruction in each question, for Flan-T5.
"""

from __future__ import annotations

from corag.core.language.sentences import first_sentence
from corag.core.seeds import stable_hash

PREFIXES = {
    "cot": "Answer the following question by reasoning step-by-step.\n",
    "direct": "Answer the following question.\n",
}
ANSWERS = ("Beta", "the U.S.", "12 May 1902", "no", "St. Ives, Inc.", '"Quoted"')


def examples(kind: str, flan: bool, count: int, paragraphs: str = "alike") -> str:
    """Write a file of worked examples of rising and falling lengths. ``kind``: "cot" or "direct".

    ``paragraphs``: "alike" for both kinds, each its "own", as the authors' files have them, or "none".
    """
    blocks = []
    for at in range(count):
        text = " ".join(f"fact{at}x{word}" for word in range(5 + 7 * (at % 4)))
        answer = ANSWERS[at % len(ANSWERS)]
        reply = f"Alpha {at} is by {answer} So the answer is: {answer}." if kind == "cot" else answer
        question = (PREFIXES[kind] if flan else "") + f"Who made Alpha {at}?"
        other = "Beta" if paragraphs == "alike" else kind.title()
        paragraph = (
            f"Wikipedia Title: Alpha {at}\n{text}\n\nWikipedia Title: {other} {at}\n{other} {at} is here.\n\n"
        )
        shown = "" if paragraphs == "none" else paragraph
        blocks.append(f'# METADATA: {{"qid": "d{at}"}}\n{shown}Q: {question}\nA: {reply}')
    return "\n\n\n".join(blocks) + "\n"


def count(text: str) -> int:
    return len(text.split())


def number(text: str, below: int) -> int:
    return int(stable_hash(text), 16) % below


REPLIES = (
    "Mara Velden wrote it. She was born somewhere.",
    "Tarn Hollow lies on the Issel.",
    "Therefore it is Issel.",
    "So the answer is: the U.S..",
    "It is 3 + 4 = 7 years.",
    "",
    "The answer is Issel",
    "who is",
    "He lived there.",
    "Mara Velden was born in Tarn Hollow.",
    "It is the capital of Norway.",
    "The town is old.\nQ: Which town?",
    '"Issel"',
)


def reply(seed: int, prompt: str) -> str:
    """What the model writes, by the prompt alone."""
    return REPLIES[number(f"{seed} {prompt}", len(REPLIES))]


def found(seed: int, query: str, k: int) -> list[tuple[str, str]]:
    """The (title, text) pairs that a search finds; some searches find nothing, as blank ones do."""
    if not query.strip() or number(f"{seed} {query}", 3) == 0:
        return []
    places = dict.fromkeys(number(f"{seed} {query} {rank}", 12) for rank in range(k))
    return [(f"Page {at}", " ".join(f"p{at}w{word}" for word in range(5 + at * 3))) for at in places]


def sentences(text: str) -> list[str]:
    """The first sentence, by our rules, and the rest: only the first one is looked at."""
    first = first_sentence(text, "rules")
    return [first] if first else []


def digest(prompts: list[str]) -> list[str]:
    return [stable_hash(prompt)[:8] for prompt in prompts]
