"""Search-o1 (Li et al.: Search-o1: Agentic Search-Enhanced Large Reasoning Models, 2025, arXiv 2501.05366).

A reasoning model searches in the middle of its reasoning; a second call reads the documents and only what
helps is inserted. Preset "released_code" has the limits and the sampling that the authors' code uses for
QwQ-32B on multi-hop questions, and gives no answer where the model boxes none. The default, "greedy", is
deterministic, short, and forces an answer. Differences in both: passages of any retriever, not web pages;
what is inserted keeps its spaces; the answer is looked for in the model's own words only, its braces paired;
a search that finds nothing costs no call; a query also ends where the model begins to make up a result; a
turn for which a full window would cut the question is not used. A spent budget is answered with the newest
turns that it allows, in both.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal

from baselines import search_o1_tags as tags
from baselines.forced_answer import conclude
from baselines.search_o1_config import SearchO1Config
from baselines.transcripts import passages_found
from core.errors import BudgetExhaustedError, RequestRefusedError
from core.prompting.prompt import Prompt
from core.prompting.render import render_passages
from core.prompting.shorten import reserve
from core.protocols import Completion, Generation
from core.tools import Tools
from core.types import Answer, Hit, Question


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
    written: list[str] = []  # the model's own words
    searches: list[Search] = []
    stopped = ""
    final = partial(reasoning_prompt, question, config, f"\n\n{tags.BOX}")
    try:
        while not stopped:
            with tools.holding(reserve(final(turns), config.max_answer_tokens, tools)):
                # Reason, until a search query is complete or to the end.
                path = f"turn {len(turns) + 1}"
                prompt = reasoning_prompt(question, config, "", turns)
                stop = (tags.END_QUERY, tags.BEGIN_RESULT)
                reply = await ask(prompt, "reasoning", config.max_turn_tokens, stop, path, tools, config)
                if turns and reply.shortening.cut_tokens:
                    stopped = "window"  # the question lost words to the reasoning, so the reply is not used
                    break
                turn = reply.completions[0]
                written.append(turn.text)
                turns.append(turn.text)
                query = tags.asked_query(turn.text)
                stopped = exit_reason(turn, query)
                if query and not stopped:
                    # Search, reason in the documents, and insert what they tell.
                    turns[-1] += tags.END_QUERY
                    searches.append(await look_up(query, searches, "".join(turns), path, tools, config))
                    turns[-1] += tags.inserted(searches[-1].result)
                    stopped = "max_turns" if len(turns) == config.max_turns else ""
    except BudgetExhaustedError:
        stopped = "budget"
    except RequestRefusedError:
        if not turns:
            raise
        stopped = "window"
    answer = tags.boxed("\n".join(written))
    if not answer and (config.force_answer or stopped == "budget"):
        answer = await conclude(final, turns, tools, max_tokens=config.max_answer_tokens, read=tags.forced)
    return SearchO1Answer(answer, passages_found(tools), len(turns), stopped, tuple(searches))


def exit_reason(turn: Completion, query: str | None) -> str:
    """Say why the reasoning ends with this turn, "" if a search goes on with it."""
    if turn.finish_reason == "length":
        return "length"
    return "end" if query is None else "" if query else "malformed"


async def look_up(
    query: str, earlier: Sequence[Search], reasoning: str, path: str, tools: Tools, config: SearchO1Config
) -> Search:
    """Search and let the model reason in the documents.

    A repeated query, or one beyond the limit, gets a note instead.
    """
    done = [search.query for search in earlier if not search.refused]
    if len(done) >= config.max_searches:
        return Search(query, tags.LIMIT_REACHED, refused="limit")
    if query in done:
        return Search(query, tags.REPEATED, refused="repeated")
    hits = await tools.search(query, k=config.k, path=path)
    if not hits:
        return Search(query, tags.NOTHING_HELPFUL)
    prompt = documents_prompt(query, hits, reasoning, config)
    reply = await ask(prompt, "documents", config.max_result_tokens, (), path, tools, config)
    return Search(query, tags.refined(reply.text), tuple(hit.passage.id for hit in hits))


async def ask(
    prompt: Prompt,
    role: str,
    max_tokens: int,
    stop: Sequence[str],
    path: str,
    tools: Tools,
    config: SearchO1Config,
) -> Generation:
    """Generate with the method's sampling."""
    return await tools.generate(
        prompt,
        role=role,
        max_tokens=max_tokens,
        temperature=config.temperature,
        stop=stop,
        top_p=config.top_p,
        top_k=config.sampling_top_k,
        repetition_penalty=config.repetition_penalty,
        path=path,
    )


def reasoning_prompt(question: Question, config: SearchO1Config, cue: str, turns: Sequence[str]) -> Prompt:
    """Write the reasoning so far, to be continued after ``cue``."""
    reasoning = "".join(turns) + cue
    values = {"query": question.text, "max_searches": str(config.max_searches), "reasoning": reasoning}
    return config.template("reasoning").render(values)


def documents_prompt(query: str, hits: Sequence[Hit], reasoning: str, config: SearchO1Config) -> Prompt:
    """Ask what documents tell about a query.

    If the prompt is too long, documents are left out, the worst first.
    """
    template, documents = config.template("documents"), (hit.passage for hit in hits)
    passages = render_passages(documents, template, config.max_shown_words, goes_first="last")
    values = {
        "sub_query": query,
        "reasoning": tags.outlined(reasoning),
        "nothing_helpful": tags.NOTHING_HELPFUL,
    }
    return template.render({**values, "passages": passages})
