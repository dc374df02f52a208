"""Search-R1 and its kin: models that were trained by reinforcement to search while they reason.

Jin et al.: Search-R1: Training LLMs to Reason and Leverage Search Engines with Reinforcement Learning, 2025,
arXiv 2503.09516. Each preset writes and reads as one project's checkpoints do: "search_r1"; "zerosearch" (Sun
et al., arXiv 2505.04588); "research" (Chen et al.: ReSearch, arXiv 2503.19470); "r1_searcher" (Song et al.,
arXiv 2503.05592); "tools", calls of tools search and answer in Qwen's form, as TRL trains them. Tags and the
form of passages are the projects'; prompts (``prompts/`` has one of each preset's name) and the note after a
turn without tags ask the same in our words. Loops: search_r1/llm_agent/generation.py of Search-R1 a14dc3a,
llm_agent/generation.py of ZeroSearch 2d4cdca, src/flashrag/pipeline/active_pipeline.py of ReSearch (branch
re-search), evaluation/eval_search_loacl.py of R1-Searcher 631167c.

Differences, and why:

- A turn ends at the first tag that closes a query or an answer. Search-R1 generates to the end of the turn
  and cuts there: the same text for more tokens.
- A tag that is open where the model ends its turn counts as closed: engines return replies without the stop
  string that ended them.
- Without an answer the answer is empty. Search-R1's scorer then takes the example of its prompt, "Beijing".
- What a full window cuts is the beginning of the prompt. In Search-R1 it is, too, beyond 4,096 tokens.
- A spent token budget is answered with the newest turns that it allows, as in all methods here.
"""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import accumulate
from typing import Annotated, Any, ClassVar, Literal

from annotated_types import Ge

from corag.baselines.search_o1 import last_box
from corag.baselines.shared import PROMPTS, answer_from_newest, list_found_ids
from corag.core.errors import BudgetExhaustedError
from corag.core.language.text import extract_answer
from corag.core.method import Method, MethodConfig
from corag.core.options.names import NameOrPath
from corag.core.prompting.prompt import ALOUD, Message, Prompt, Segment
from corag.core.prompting.render import render_passages
from corag.core.prompting.template import Template, load_prompt
from corag.core.protocols import Completion
from corag.core.tools import Tools
from corag.core.types import Answer, Question

ANSWER, ANSWER_END = "<answer>", "</answer>"
INVALID = "\nThat is no step: I write <search> query </search> or <answer> answer </answer>.\n"


@dataclass(frozen=True, slots=True)
class Dialect:
    """How checkpoints write queries and read results.

    ``query``, ``result``: what stands before and behind one. ``mark``: put behind a question that lacks it.
    ``has_note``: a turn without query and answer gets a note, else it is the last. ``strips``: white space
    around a turn goes. ``chats``: results are the user's turns, and a call with a text, or a turn without
    one, is the answer; else all is one growing turn of the model.
    """

    query: tuple[str, str]
    result: tuple[str, str]
    mark: str = ""
    has_note: bool = False
    strips: bool = False
    chats: bool = False
    read_query: Callable[[str], str] = str.strip
    read_answer: Callable[[str], str] = str.strip


def bare_query(text: str) -> str:
    r"""Return R1-Searcher's query without quotation marks and dots of omission, its keywords apart by spaces.

    >>> bare_query(' "Emma"\tauthor... ')
    'Emma author'
    """
    return text.translate({ord("\t"): " ", ord('"'): "", ord("'"): ""}).replace("...", "").strip()


def called(argument: str, call: str) -> str:
    """Return an argument of a tool call, "" where it has none or cannot be read.

    >>> called("query", '{"name": "search", "arguments": {"query": "author of Emma"}}')
    'author of Emma'
    """
    try:
        return str(json.loads(call)["arguments"][argument]).strip()
    except (ValueError, KeyError, TypeError):
        return ""


_TAGS = ("<search>", "</search>")
_TOOL = (("<tool_call>", "</tool_call>"), ("<tool_response>\n", "\n</tool_response>"))
_KEYWORDS = ("<|begin_of_query|>", "<|end_of_query|>")
_DOCUMENTS = ("\n\n<|begin_of_documents|>\n", "\n<|end_of_documents|>\n\n")
_SEARCH_R1 = Dialect(_TAGS, ("\n\n<information>", "</information>\n\n"), mark="?", has_note=True)
DIALECTS = {
    "search_r1": _SEARCH_R1,
    "zerosearch": _SEARCH_R1,
    "research": Dialect(_TAGS, (" <result>\n", "\n</result>"), read_answer=last_box),
    "r1_searcher": Dialect(_KEYWORDS, _DOCUMENTS, strips=True, read_query=bare_query),
    "tools": Dialect(*_TOOL, chats=True, read_query=partial(called, "query"), read_answer=extract_answer),
}


@dataclass(frozen=True)
class SearchR1Config(MethodConfig, section="search_r1"):
    """Options of Search-R1. Replies are greedy, as in the projects' evaluations."""

    preset: Literal["search_r1", "zerosearch", "research", "r1_searcher", "tools"] = "search_r1"
    """whose checkpoint it is: tags, prompt, and values for the other options ("research" is ReSearch, whose
    base models also want ``prompt`` research_base)."""

    k: Annotated[int, Ge(1)] = 3
    """passages that a search returns (also ``top_k``)."""

    max_turns: Annotated[int, Ge(0)] = 4
    """turns after which something is inserted; one turn more is read for its answer alone."""

    max_turn_tokens: Annotated[int, Ge(1)] = 500
    """most tokens of a turn."""

    max_result_tokens: Annotated[int, Ge(1)] = 500
    """what a search inserts is cut to so many tokens, its closing tag among them (released code)."""

    prompt: NameOrPath = "auto"
    """"auto" (the preset's own), a shipped name, a file, or a text with {query} and {transcript}."""

    note: str = ""
    """what follows a turn with neither query nor answer where the preset has a note; "" for ours."""

    ALIASES: ClassVar[dict[str, str]] = {"top_k": "k"}
    PRESETS: ClassVar[dict[str, dict[str, Any]]] = {
        "search_r1": {},
        "zerosearch": {"k": 5, "max_turns": 5, "max_result_tokens": 2048},
        "research": {"k": 5, "max_turns": 10, "max_turn_tokens": 1024, "max_result_tokens": 8192},
        "r1_searcher": {"k": 5, "max_turns": 8, "max_turn_tokens": 512, "max_result_tokens": 8192},
        "tools": {"max_turns": 10, "max_turn_tokens": 512, "max_result_tokens": 8192},
    }

    def templates(self) -> tuple[Template, ...]:
        """The one prompt, which also says how passages are written."""
        return (load_prompt(self.preset if self.prompt == "auto" else self.prompt, self.preset, PROMPTS),)


async def search_r1(question: Question, tools: Tools, config: SearchR1Config) -> Answer:
    """Answer one question as a checkpoint was trained to (paper, algorithm 1).

    ``steps``: turns. ``stopped``: "answer", "end" (a turn without tags), "max_turns" or "budget".
    """
    dialect = DIALECTS[config.preset]
    turns: list[tuple[str, str]] = []  # what the model wrote, and what was inserted after it
    answer, stop_reason = "", ""
    cue = "The answer is" if dialect.chats else ANSWER
    final, limit = partial(fill, question, config, cue), config.max_turn_tokens
    try:
        while not stop_reason:
            with tools.reserve(final(turns), limit):
                # 1. Reason, until a query or the answer is complete.
                path, stop = f"turn {len(turns) + 1}", (dialect.query[1], ANSWER_END)
                prompt = fill(question, config, "", turns)
                reply = await tools.generate(prompt, role="reasoning", max_tokens=limit, stop=stop, path=path)
                text = reply.text.strip() if dialect.strips else reply.text
                inserted = config.note or INVALID if dialect.has_note else ""
                kind, content = read_turn(reply.completions[0], dialect)
                if kind == "answer":
                    answer, stop_reason = content, "answer"
                elif len(turns) == config.max_turns:
                    stop_reason = "max_turns"
                elif kind == "query":
                    # 2. Search, and go on behind what was found.
                    text += dialect.query[1]
                    inserted = await look_up(content, path, tools, config)
                elif not inserted:
                    stop_reason = "end"
                turns.append((text, inserted))
    except BudgetExhaustedError:
        stop_reason = "budget"
        answer = await answer_from_newest(
            final,
            turns,
            tools,
            max_tokens=limit,
            stop=(ANSWER_END, "\n"),
            parse=lambda reply: dialect.read_answer(reply) or extract_answer(reply),
        )
    return Answer(answer, list_found_ids(tools), len(turns), stop_reason)


def read_turn(turn: Completion, dialect: Dialect) -> tuple[str, str]:
    """Return "answer" or "query" with its text, as the tag says that was opened last; "" without either."""
    at, tag = max((turn.text.rfind(tag), tag) for tag in (dialect.query[0], ANSWER))
    if at < 0 or turn.finish_reason == "length":
        text = called("text", turn.text) or dialect.read_answer(turn.text)
        return ("answer", text) if dialect.chats else ("", "")
    content = turn.text[at + len(tag) :]
    if tag == ANSWER:
        return "answer", dialect.read_answer(content)
    text = called("text", content) if dialect.chats else ""
    return ("answer", text) if text else ("query", dialect.read_query(content))


async def look_up(query: str, path: str, tools: Tools, config: SearchR1Config) -> str:
    """Search, and return what is inserted, cut to its first words of so many tokens."""
    hits = await tools.search(query, k=config.k, path=path) if query else ()
    passages = render_passages((hit.passage for hit in hits), config.templates()[0], goes_first="last")
    text = "".join(passage.text for passage in passages).strip().join(DIALECTS[config.preset].result)
    beginnings = list(accumulate(text.split(" "), "{} {}".format))
    fitting = bisect_right(beginnings, config.max_result_tokens, key=tools.count_tokens)
    return beginnings[fitting - 1] if fitting else ""


def fill(question: Question, config: SearchR1Config, cue: str, turns: Sequence[tuple[str, str]]) -> Prompt:
    """Write the transcript so far, to be continued after ``cue``."""
    dialect = DIALECTS[config.preset]
    query = question.text.strip().removesuffix(dialect.mark) + dialect.mark
    transcript = "" if dialect.chats else "".join(text + inserted for text, inserted in turns)
    prompt = config.templates()[0].render({"query": query, "transcript": transcript + cue})
    messages = list(prompt.messages)
    for text, inserted in turns if dialect.chats else ():
        messages += [Message("assistant", (Segment(text),)), Message("user", (Segment(inserted),))]
    return replace(prompt, messages=tuple(messages), thought=None if dialect.chats else ALOUD)


METHOD = Method(search_r1, SearchR1Config, "models trained to search (Jin et al. 2025)", published="2025-03")
