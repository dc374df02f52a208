"""Search-o1 (Li et al.: Search-o1: Agentic Search-Enhanced Large Reasoning Models, 2025, arXiv 2501.05366).

A reasoning model searches in the middle of its reasoning. A second call reads the documents, and only what
helps is inserted. Preset "released_code" has the limits and the sampling that the authors' code uses for
QwQ-32B on multi-hop questions, and gives no answer where the model boxes none. The default, "greedy", is
deterministic, short, and forces an answer. Under both, a spent budget is answered with the newest turns that
it allows.

Differences in both, and why:

- Passages of any retriever, not web pages; a search that finds nothing costs no call.
- What is inserted keeps its spaces.
- The answer is looked for in the model's own words only, not in inserted text, and its braces are paired.
- A query also ends where the model begins to make up a result.
- A turn for which a full window would cut the question is not used.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Annotated, Any, ClassVar, Literal

from annotated_types import Ge, Gt, Le

from corag.baselines.shared import PROMPTS, answer_from_newest, list_found_ids
from corag.core.errors import BudgetExhaustedError, RequestRefusedError
from corag.core.language.text import extract_answer
from corag.core.method import Method, MethodConfig
from corag.core.options.names import NameOrPath
from corag.core.prompting.prompt import ALOUD, Prompt
from corag.core.prompting.render import render_passages
from corag.core.prompting.template import Template, load_prompt
from corag.core.protocols import Ability, Completion
from corag.core.tools import Tools
from corag.core.types import Answer, Hit, Question

# The tags and the sentence for unhelpful documents are the released code's; the two notes are in our words.
BEGIN_QUERY, END_QUERY = "<|begin_search_query|>", "<|end_search_query|>"
BEGIN_RESULT, END_RESULT = "<|begin_search_result|>", "<|end_search_result|>"
NOTHING_HELPFUL = "No helpful information found."
REPEAT_MESSAGE = "This query has been searched before: see the result above."
LIMIT_MESSAGE = "No more searches are allowed: go on with what is known."
BOX = r"\boxed{"


@dataclass(frozen=True)
class SearchO1Config(MethodConfig, section="search_o1"):
    """Options of Search-o1."""

    preset: Literal["greedy", "released_code"] = "greedy"
    """values for the other options: "greedy", or "released_code" (as for QwQ-32B on multi-hop questions;
    needs a window of more than 20,480 tokens. The code gives single-hop questions 5 searches, and other
    models 8,192 tokens and no penalty)."""

    max_searches: Annotated[int, Ge(0)] = 10
    """searches at most; a query beyond gets a note."""

    max_turns: Annotated[int, Ge(1)] = 15
    """turns of reasoning at most."""

    k: Annotated[int, Ge(1)] = 5
    """passages that a search returns (also ``top_k``)."""

    max_shown_words: Annotated[int, Ge(1)] = 350
    """passages are cut to so many words in prompts (released code: 3,000 characters of a web page)."""

    temperature: Annotated[float, Ge(0)] = 0.0
    """of reasoning and of reading documents; a forced answer is greedy."""

    top_p: Annotated[float, Gt(0), Le(1)] = 1.0
    """sample from the likeliest tokens that have this much probability together."""

    sampling_top_k: Annotated[int, Ge(0)] = 0
    """sample from so many likeliest tokens; 0 for all."""

    repetition_penalty: Annotated[float, Gt(0)] = 1.0
    """divides the likelihood of tokens that occurred; 1 for none."""

    force_answer: bool = True
    """ask for the answer if the model boxed none. A spent budget is always answered so."""

    max_turn_tokens: Annotated[int, Ge(1)] = 1024
    """most tokens of a turn of reasoning."""

    max_result_tokens: Annotated[int, Ge(1)] = 512
    """most tokens of reading documents."""

    max_answer_tokens: Annotated[int, Ge(1)] = 64
    """most tokens of a forced answer."""

    reasoning_prompt: NameOrPath = "search_o1"
    """a shipped name, a file, or a text with {query}, {max_searches} and {reasoning}."""

    documents_prompt: NameOrPath = "search_o1_documents"
    """the same with {sub_query}, {passages}, {reasoning} and {nothing_helpful}."""

    ALIASES: ClassVar[dict[str, str]] = {
        "top_k": "k", "max_passage_words": "max_shown_words",
        "max_search_limit": "max_searches", "max_turn": "max_turns",  # as in the released code
    }  # fmt: skip
    PRESETS: ClassVar[dict[str, dict[str, Any]]] = {
        "greedy": {},
        "released_code": {
            "k": 10,
            "max_shown_words": 500,  # about the code's 3,000 characters
            "temperature": 0.7,
            "top_p": 0.8,
            "sampling_top_k": 20,
            "repetition_penalty": 1.05,
            "force_answer": False,
            "max_turn_tokens": 20_480,
            "max_result_tokens": 20_480,
        },
    }

    def template(self, name: Literal["reasoning", "documents"]) -> Template:
        """Load one of the prompts."""
        if name == "reasoning":
            return load_prompt(self.reasoning_prompt, "search_o1", PROMPTS)
        return load_prompt(self.documents_prompt, "search_o1_documents", PROMPTS)

    def needs(self) -> Mapping[Ability, str]:
        """Options of its sampling beyond top_p."""
        usual = (self.sampling_top_k == 0 or self.temperature == 0) and self.repetition_penalty == 1
        out = "choose search_o1.sampling_top_k=0 and search_o1.repetition_penalty=1"
        abilities = {} if usual else {Ability.SAMPLING: out}
        return abilities | (
            {Ability.TEMPERATURE: "choose search_o1.temperature=0"} if self.temperature else {}
        )

    def sampling(self) -> dict[str, Any]:
        """Return how reasoning and reading of documents are sampled, for :meth:`Tools.generate`."""
        names = {"temperature", "top_p", "repetition_penalty"}
        return {name: getattr(self, name) for name in names} | {"top_k": self.sampling_top_k}

    def templates(self) -> tuple[Template, ...]:
        """Both prompts."""
        return (self.template("reasoning"), self.template("documents"))


@dataclass(frozen=True, slots=True)
class Search:
    """A query of the reasoning, and what was inserted after it.

    ``refused``: why it was not searched for, "" if it was.
    """

    query: str
    result: str
    passage_ids: tuple[str, ...] = ()
    refused: Literal["", "limit", "repeated"] = ""


@dataclass(frozen=True, slots=True)
class SearchO1Answer(Answer):
    """Search-o1's result.

    ``steps``: turns of reasoning. ``stopped``: "end" (a turn without a query), "malformed" (a query that is
    blank or never closed), "length" (a turn without an end), "max_turns", "window" (the reasoning no longer
    fits) or "budget".
    """

    searches: tuple[Search, ...] = ()


async def search_o1(question: Question, tools: Tools, config: SearchO1Config) -> SearchO1Answer:
    """Answer one question with Search-o1 (paper, section 3 and algorithm 1)."""
    turns: list[str] = []  # the reasoning, with what was inserted into it
    pieces: list[str] = []  # the model's own words
    searches: list[Search] = []
    stop_reason = ""
    final = partial(reasoning_prompt, question, config, f"\n\n{BOX}")
    try:
        while not stop_reason:
            with tools.reserve(final(turns), config.max_answer_tokens):
                # 1. Reason, until a search query is complete or to the end.
                path = f"turn {len(turns) + 1}"
                prompt, stop = reasoning_prompt(question, config, "", turns), (END_QUERY, BEGIN_RESULT)
                limit = config.max_turn_tokens
                reply = await tools.generate(
                    prompt, role="reasoning", max_tokens=limit, stop=stop, path=path, **config.sampling()
                )
                if turns and reply.shortening.cut_tokens:
                    stop_reason = "window"  # the question lost words to the reasoning: no use of the reply
                    break
                turn = reply.completions[0]
                pieces.append(turn.text)
                turns.append(turn.text)
                query = last_query(turn.text)
                stop_reason = exit_reason(turn, query)
                if query and not stop_reason:
                    # 2. Search, 3. reason in the documents, and insert what they tell.
                    turns[-1] += END_QUERY
                    searches.append(await look_up(query, searches, "".join(turns), path, tools, config))
                    turns[-1] += f"\n\n{BEGIN_RESULT}{searches[-1].result}{END_RESULT}\n\n"
                    stop_reason = "max_turns" if len(turns) == config.max_turns else ""
    except BudgetExhaustedError:
        stop_reason = "budget"
    except RequestRefusedError:
        if not turns:
            raise
        stop_reason = "window"
    # 4. The last box is the answer.
    answer = last_box("\n".join(pieces))
    if not answer and (config.force_answer or stop_reason == "budget"):
        limit = config.max_answer_tokens
        answer = await answer_from_newest(final, turns, tools, max_tokens=limit, parse=forced_box)
    return SearchO1Answer(answer, list_found_ids(tools), len(turns), stop_reason, tuple(searches))


def exit_reason(turn: Completion, query: str | None) -> str:
    """Return why the reasoning ends with this turn, "" if a search goes on with it."""
    if turn.finish_reason == "length":  # a query in it may be half a query
        return "length"
    return "end" if query is None else "" if query else "malformed"


async def look_up(
    query: str, earlier: Sequence[Search], reasoning: str, path: str, tools: Tools, config: SearchO1Config
) -> Search:
    """Search and let the model reason in the documents; a repeated query, or one too many, gets a note."""
    earlier_queries = [search.query for search in earlier if not search.refused]
    if len(earlier_queries) >= config.max_searches:
        return Search(query, LIMIT_MESSAGE, refused="limit")
    if query in earlier_queries:  # word for word: another wording may find more
        return Search(query, REPEAT_MESSAGE, refused="repeated")
    hits = await tools.search(query, k=config.k, path=path)
    if not hits:
        return Search(query, NOTHING_HELPFUL)
    prompt = documents_prompt(query, hits, reasoning, config)
    limit = config.max_result_tokens
    reply = await tools.generate(prompt, role="documents", max_tokens=limit, path=path, **config.sampling())
    return Search(query, final_information(reply.text), tuple(hit.passage.id for hit in hits))


# Prompts


def reasoning_prompt(question: Question, config: SearchO1Config, cue: str, turns: Sequence[str]) -> Prompt:
    """Write the reasoning so far, to be continued after ``cue``."""
    reasoning = "".join(turns) + cue
    values = {"query": question.text, "max_searches": str(config.max_searches), "reasoning": reasoning}
    return replace(config.template("reasoning").render(values), thought=ALOUD)


def documents_prompt(query: str, hits: Sequence[Hit], reasoning: str, config: SearchO1Config) -> Prompt:
    """Ask what documents tell about a query; a prompt that is too long loses the worst documents first."""
    template, documents = config.template("documents"), (hit.passage for hit in hits)
    return template.render(
        {
            "sub_query": query,
            "reasoning": outline_reasoning(reasoning),
            "nothing_helpful": NOTHING_HELPFUL,
            "passages": render_passages(documents, template, config.max_shown_words, goes_first="last"),
        }
    )


def outline_reasoning(reasoning: str) -> str:
    r"""Number the lines of a reasoning and keep the first, the last four, and those with a query or a result.

    So does the released code for the reader of documents, which needs the thread and not every thought. "..."
    stands for the others.

    >>> outline_reasoning("a\n\nb\nc\nd\ne\nf")
    'Step 1: a\n\n...\n\nStep 3: c\n\nStep 4: d\n\nStep 5: e\n\nStep 6: f'
    """
    lines = [line for line in reasoning.split("\n") if line.strip()]
    outline: list[str] = []
    for number, line in enumerate(lines, 1):
        if number == 1 or number > len(lines) - 4 or BEGIN_QUERY in line or BEGIN_RESULT in line:
            outline.append(f"Step {number}: {line.strip()}")
        elif outline[-1] != "...":
            outline.append("...")
    return "\n\n".join(outline)


# Reading replies

# The prompt asks for this header, in bold type; what stands before it is the reader's own reasoning.
_HEADER = re.compile(r"final information[*_: \t]*", re.IGNORECASE)
# How models write plain words in a formula.
_TEXT_WRAPPER = re.compile(r"\s*\\(?:text|textbf|mathrm|mbox)\{(.*)\}\s*", re.DOTALL)


def last_query(turn: str) -> str | None:
    """Return the query that a turn ends with, None without one; generation stopped at the tag that closes it.

    A query of several lines is returned as "": it was never closed, and the reasoning went on after it.

    >>> last_query("I need the author. <|begin_search_query|> author of Emma ")
    'author of Emma'
    """
    _, tag, query = turn.rpartition(BEGIN_QUERY)
    query = query.strip()
    return None if not tag else "" if "\n" in query else query


def final_information(reply: str) -> str:
    r"""Return what a reader of documents puts under its last "Final Information" header, in one paragraph.

    >>> final_information("The first page says so.\n**Final Information**\nEmma is by\nJane Austen.")
    'Emma is by Jane Austen.'
    """
    headers = list(_HEADER.finditer(reply))
    content = " ".join(reply[headers[-1].end() :].strip("` \n").split()) if headers else ""
    return content or NOTHING_HELPFUL


def last_box(text: str) -> str:
    r"""Return what the last non-empty ``\boxed{...}`` holds, "" if there is none.

    Braces are paired; a box that is never closed reaches to the end of its line. A ``\text{...}`` around the
    content goes.

    >>> last_box(r"So \boxed{A_{1}} or rather \boxed{\text{Issel}}. \boxed{}")
    'Issel'
    """
    start = len(text)
    while (start := text.rfind(BOX, 0, start)) >= 0:
        content = _up_to_closing_brace(text[start + len(BOX) :])
        if match := _TEXT_WRAPPER.fullmatch(content):
            content = match[1]
        if content.strip():
            return content.strip()
    return ""


def forced_box(reply: str) -> str:
    r"""Return the answer of a reply whose box was opened for the model.

    >>> forced_box(r"\text{Issel}} is the river.")
    'Issel'
    """
    return extract_answer(last_box(BOX + reply))


def _up_to_closing_brace(text: str) -> str:
    """Return the text up to the brace that closes what was open before it."""
    depth = 1
    for position, character in enumerate(text):
        depth += (character == "{") - (character == "}")
        if not depth:
            return text[:position]
    return text.split("\n", 1)[0]


METHOD = Method(
    search_o1,
    SearchO1Config,
    "search in the middle of the reasoning, insert what documents tell (Search-o1: Li et al. 2025)",
    published="2025-01",
)
