"""Auto-RAG (Yu, Zhang, Feng: Autonomous Retrieval-Augmented Generation for Large Language Models, 2024).

arXiv 2411.19443. The model talks to the search engine: in every turn its own words say whether and what to
retrieve, until it states the answer. When the searches are used up, it writes the documents itself. The paper
fine-tunes a model for this dialogue; without that checkpoint this is *prompted* Auto-RAG, another baseline.

Differences from the released code, and why:

- Markers count in any case, and the first one that says something decides. The code tests in any case but
  splits by case, so that a lower-case "query:" sends the whole turn to the search.
- Titles are shown: our passages often do not name what they are about.
- A turn cannot make up the next document, which small models do.
- A last turn without an answer is made to go on with one (preset "paper"; "released_code" does so for a spent
  budget only).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

from annotated_types import Ge

from corag.baselines.shared import PROMPTS, force_answer
from corag.core.errors import BudgetExhaustedError
from corag.core.language.text import extract_answer, says_none
from corag.core.method import Method, MethodConfig
from corag.core.options.names import NameOrPath
from corag.core.prompting.prompt import Message, Prompt, Segment
from corag.core.prompting.render import passage_items
from corag.core.prompting.template import Template, load_prompt
from corag.core.tools import Tools
from corag.core.types import Answer, Passage, Question

# Hits among which new ones are looked for, so that a repeated query goes on down its list.
SEARCH_DEPTH = 10


@dataclass(frozen=True)
class AutoRAGConfig(MethodConfig, section="auto_rag"):
    """Options of Auto-RAG; the defaults are the released code's numbers."""

    preset: Literal["paper", "released_code"] = "paper"
    """values for the other options: "paper", or "released_code", which does not ask for an answer after the
    last round."""

    max_rounds: Annotated[int, Ge(1)] = 10
    """searches at most."""

    max_recalls: Annotated[int, Ge(0)] = 5
    """documents that the model writes at most, once the searches are used up."""

    documents_per_round: Annotated[int, Ge(1)] = 2
    """new documents shown per search at most (also ``top_k``)."""

    force_answer: bool = True
    """ask for the answer if no turn states one. A spent budget is always answered so."""

    max_turn_tokens: Annotated[int, Ge(1)] = 200
    """most tokens of a turn, and of a document that the model writes (released code: 150 after the last
    search)."""

    max_answer_tokens: Annotated[int, Ge(1)] = 64
    """most tokens of a forced answer."""

    start_prompt: NameOrPath = "auto_rag_start"
    """a shipped name, a file, or a text with {query}; the authors' checkpoint wants its own."""

    documents_prompt: NameOrPath = "auto_rag_documents"
    """the same with {number} and {passages}."""

    recall_prompt: NameOrPath = "auto_rag_recall"
    """the same with {query} and {sub_query}."""

    ALIASES: ClassVar[dict[str, str]] = {"top_k": "documents_per_round"}
    PRESETS: ClassVar[dict[str, dict[str, Any]]] = {"paper": {}, "released_code": {"force_answer": False}}

    def prompt(self, name: str) -> Template:
        """Load one of the prompts: start, documents or recall."""
        return load_prompt(getattr(self, f"{name}_prompt"), f"auto_rag_{name}", PROMPTS)

    def templates(self) -> tuple[Template, ...]:
        """Every prompt that Auto-RAG may use."""
        return tuple(map(self.prompt, ("start", "documents", "recall")))


@dataclass(frozen=True, slots=True)
class AutoRAGAnswer(Answer):
    """Auto-RAG's result.

    ``steps``: turns of the model. ``stopped``: "answer", "max_rounds" (also: no query left to write a
    document for) or "budget". ``queries``: one per round. ``unparsable``: turns with neither query nor
    answer, after which a search repeats the query before.
    """

    queries: tuple[str, ...] = ()
    unparsable: int = 0


async def auto_rag(question: Question, tools: Tools, config: AutoRAGConfig) -> AutoRAGAnswer:
    """Answer one question with Auto-RAG (paper, section 3 and its algorithm)."""
    dialogue = list(config.prompt("start").render({"query": question.text}).messages)
    answer, query, reply, turns, unparsable = "", question.text, "", 0, 0
    queries: list[str] = []
    passage_ids: list[str] = []
    rounds = config.max_rounds + config.max_recalls
    try:
        for number in range(1, rounds + 2):  # one turn more than rounds: what was found last is read too
            path, searching = f"round {number}", number <= config.max_rounds
            with tools.reserve(final_prompt(dialogue, ""), config.max_answer_tokens):
                # 1. Reason: what is known and what is missing? Hence the answer or the next query, in the
                #    model's own words.
                made_up = (f"Retrieved Document_{number}:",)  # the header of what only the search will find
                reply = await write(Prompt(tuple(dialogue)), "turn", path, made_up, tools, config)
                turns = number
                answer, next_query = parse(reply)
                unparsable += not (answer or next_query)
                if answer or number > rounds or not (next_query or searching):
                    break
                # 2. Retrieve: from outside first, from the model's own knowledge once the searches are used
                #    up.
                query = next_query or query
                if searching:
                    depth = max(SEARCH_DEPTH, config.documents_per_round)
                    hits = await tools.search(query, k=depth, path=path)
                    fresh = [hit.passage for hit in hits if hit.passage.id not in passage_ids]
                    new = fresh[: config.documents_per_round]
                    passage_ids += [passage.id for passage in new]
                else:
                    recall = config.prompt("recall").render({"query": question.text, "sub_query": query})
                    new = [Passage("", "", await write(recall, "recall", path, (), tools, config))]
            queries.append(query)
            # 3. What was found is the next turn of the dialogue.
            dialogue += [Message("assistant", (Segment(reply),)), *documents_turn(number, new, config)]
            reply = ""
        stop_reason = "answer" if answer else "max_rounds"
        if not answer and config.force_answer:
            answer = await force_answer(final_prompt(dialogue, reply), config.max_answer_tokens, tools)
    except BudgetExhaustedError:
        stop_reason = "budget"
        with suppress(BudgetExhaustedError):
            answer = await force_answer(final_prompt(dialogue, reply), config.max_answer_tokens, tools)
    return AutoRAGAnswer(answer, tuple(passage_ids), turns, stop_reason, tuple(queries), unparsable)


async def write(
    prompt: Prompt, role: str, path: str, stop: Sequence[str], tools: Tools, config: AutoRAGConfig
) -> str:
    """Generate a turn or a document."""
    reply = await tools.generate(prompt, role=role, max_tokens=config.max_turn_tokens, stop=stop, path=path)
    return reply.text.strip()


def documents_turn(number: int, new: Sequence[Passage], config: AutoRAGConfig) -> tuple[Message, ...]:
    """Write what a round found; in a dialogue that is too long the oldest rounds' documents go first."""
    template = config.prompt("documents")
    items = passage_items(passage for passage in new if passage.text.strip())
    passages = template.items("passage", items, [number] * len(items))
    return template.render({"number": str(number), "passages": passages}).messages


def final_prompt(dialogue: Sequence[Message], reply: str) -> Prompt:
    """Make the model's turn, as far as it has come, go on with the answer."""
    return Prompt(tuple(dialogue), prefix=f"{reply}\nFinal Answer:".strip())


# Reading a turn

_MARKER = re.compile(  # a list's mark or number before it belongs to it, not to the value before
    r"(?:^\W*(?:\d+[.)]\W*)?)?\b(final answer|(?:refined )?query|need information)[*_]*:[*_]*",
    re.IGNORECASE | re.MULTILINE,
)


def parse(reply: str) -> tuple[str, str]:
    r"""Return the answer and the query that a turn states, of which one or both are empty.

    The first answer or query counts that is more than "none"; without any, the information needed; without
    that, an answer such as "unknown". A value is one line, and ends where another marker begins.

    >>> parse("Need Information: none\nQuery: none\nFinal Answer: Oslo")
    ('Oslo', '')
    """
    _, *parts = _MARKER.split(reply)
    values = [
        (marker.lower(), text.strip().partition("\n")[0].strip("*_ "))
        for marker, text in zip(parts[::2], parts[1::2], strict=True)
    ]
    answers = [pair for pair in values if not says_none(pair[1])]
    decisive = [pair for pair in answers if pair[0] != "need information"]
    # "Final Answer: unknown" ends the dialogue only where nothing is left to look for.
    resignations = [pair for pair in values if pair[0] == "final answer"]
    marker, value = next(iter([*decisive, *answers, *resignations]), ("", ""))
    return (extract_answer(value), "") if marker == "final answer" else ("", value)


METHOD = Method(
    auto_rag,
    AutoRAGConfig,
    "the model decides turn by turn what to search for (Auto-RAG: Yu et al. 2024)",
    published="2024-11",
)
