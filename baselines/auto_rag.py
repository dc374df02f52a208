"""Auto-RAG (Yu, Zhang, Feng: Autonomous Retrieval-Augmented Generation for Large Language Models, 2024, arXiv
2411.19443).

The model talks to the search engine: in every turn its own words say whether and what to retrieve, until it
states the answer. When the searches are used up, it writes the documents itself. Without the authors'
fine-tuned model this is *prompted* Auto-RAG, another baseline. Differences: markers count in any case, the
first one that says something decides, titles are shown, a turn cannot make up the next document, and a last
turn without an answer is made to go on with one (preset "paper"; "released_code" does so for a spent budget
only).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

from baselines.auto_rag_config import AutoRAGConfig
from baselines.forced_answer import force_answer
from core.errors import BudgetExhaustedError
from core.prompting.prompt import Message, Prompt, Segment
from core.prompting.render import passage_items
from core.prompting.shorten import reserve
from core.text import extract_answer, is_nothing
from core.tools import Tools
from core.types import Answer, Passage, Question

_MARKER = re.compile(  # a list's mark or number before it belongs to it, not to the value before
    r"(?:^\W*(?:\d+[.)]\W*)?)?\b(final answer|(?:refined )?query|need information)[*_]*:[*_]*",
    re.IGNORECASE | re.MULTILINE,
)


@dataclass(frozen=True, slots=True)
class AutoRAGAnswer(Answer):
    """``steps``: turns of the model.

    ``stopped``: "answer", "max_rounds" (also: no query left to write a document for) or "budget".

    ``queries``: one per round. ``unparsable``: turns with neither query nor answer, after which a search
    repeats the query before.
    """

    queries: tuple[str, ...] = ()
    unparsable: int = 0


async def auto_rag(question: Question, tools: Tools, config: AutoRAGConfig) -> AutoRAGAnswer:
    """Answer one question with Auto-RAG (paper, section 3 and its algorithm)."""
    dialogue = list(config.prompt("start").render({"query": question.text}).messages)
    answer, query, said, turns, unparsable = "", question.text, "", 0, 0
    queries: list[str] = []
    shown: list[str] = []
    rounds = config.max_rounds + config.max_recalls
    try:
        for number in range(1, rounds + 2):
            path, searching = f"round {number}", number <= config.max_rounds
            with tools.holding(reserve(final_prompt(dialogue, ""), config.max_answer_tokens, tools)):
                # Reason: what is known and what is missing? Hence the answer or the next query, in the
                # model's own words.
                made_up = (f"Retrieved Document_{number}:",)  # the header of what only the search will find
                said = await ask(Prompt(tuple(dialogue)), "turn", path, made_up, tools, config)
                turns = number
                answer, wanted = parse(said)
                unparsable += not (answer or wanted)
                if answer or number > rounds or not (wanted or searching):
                    break
                # Retrieve: from outside first, from the model's own knowledge once the searches are used up.
                query = wanted or query
                if searching:
                    hits = await tools.search(query, k=config.search_depth, path=path)
                    new = [hit.passage for hit in hits if hit.passage.id not in shown][
                        : config.documents_per_round
                    ]
                    shown += [passage.id for passage in new]
                else:
                    recall = config.prompt("recall").render({"query": question.text, "sub_query": query})
                    new = [Passage("", "", await ask(recall, "recall", path, (), tools, config))]
            queries.append(query)
            documents = config.prompt("documents")
            items = passage_items(passage for passage in new if passage.text.strip())
            found = documents.items("passage", items, [number] * len(items))  # the oldest go first
            turn = documents.render({"number": str(number), "passages": found})
            dialogue, said = [*dialogue, Message("assistant", (Segment(said),)), *turn.messages], ""
        stopped = "answer" if answer else "max_rounds"
        if not answer and config.force_answer:
            answer = await force_answer(final_prompt(dialogue, said), config.max_answer_tokens, tools)
    except BudgetExhaustedError:
        stopped = "budget"
        with suppress(BudgetExhaustedError):
            answer = await force_answer(final_prompt(dialogue, said), config.max_answer_tokens, tools)
    return AutoRAGAnswer(answer, tuple(shown), turns, stopped, tuple(queries), unparsable)


async def ask(
    prompt: Prompt, role: str, path: str, stop: Sequence[str], tools: Tools, config: AutoRAGConfig
) -> str:
    """Generate a turn or a document."""
    reply = await tools.generate(prompt, role=role, max_tokens=config.max_turn_tokens, stop=stop, path=path)
    return reply.text.strip()


def parse(said: str) -> tuple[str, str]:
    r"""Return the answer and the query that a turn states, of which one or both are empty.

    The first answer or query counts that is more than "none"; without any, the information needed; without
    that, an answer such as "unknown". A value is one line, and ends where another marker begins.

    >>> parse("Need Information: none\nQuery: none\nFinal Answer: Oslo")
    ('Oslo', '')
    """
    _, *parts = _MARKER.split(said)
    values = [
        (marker.lower(), text.strip().partition("\n")[0].strip("*_ "))
        for marker, text in zip(parts[::2], parts[1::2], strict=True)
    ]
    told = [pair for pair in values if not is_nothing(pair[1])]
    decisive = [pair for pair in told if pair[0] != "need information"]
    resigned = [pair for pair in values if pair[0] == "final answer"]
    marker, value = next(iter([*decisive, *told, *resigned]), ("", ""))
    return (extract_answer(value), "") if marker == "final answer" else ("", value)


def final_prompt(dialogue: Sequence[Message], said: str) -> Prompt:
    """Make the model's turn, as far as it has come, go on with the answer."""
    return Prompt(tuple(dialogue), prefix=f"{said}\nFinal Answer:".strip())
