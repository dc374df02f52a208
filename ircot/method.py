"""IRCoT (Trivedi, Balasubramanian, Khot, Sabharwal: Interleaving Retrieval with Chain-of-Thought Reasoning,
ACL 2023).

Retrieve with the question; then think one sentence, retrieve with that sentence, and so on; at the end a
separate reader answers from everything collected. Where paper and released code differ, presets name the side
that they take.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from core.errors import BudgetExhaustedError
from core.passage_pool import PassagePool
from core.prompting.render import render_demonstrations, render_passages
from core.reader import read
from core.sentences import first_sentence
from core.text import extract_answer, stated_answer, strip_question_words
from core.tools import Tools
from core.types import Answer, Question
from ircot.config import IRCoTConfig
from ircot.queries import next_query


@dataclass(frozen=True, slots=True)
class Retrieval:
    """One search of the loop: what was asked, how many passages were new, whether the same query had been
    asked before.
    """

    query: str
    new_passages: int
    repeated_query: bool


@dataclass(frozen=True, slots=True)
class IRCoTAnswer(Answer):
    """IRCoT's result.

    ``passage_ids``: the collected passages, at most the budget. ``retrieved_ids``: all that any search
    returned. ``stopped``: "answer" (the newest thought states one), "max_steps", "empty_generation" or
    "budget".
    """

    cot_sentences: tuple[str, ...] = ()
    retrieved_ids: tuple[str, ...] = ()
    retrievals: tuple[Retrieval, ...] = ()


async def ircot(question: Question, tools: Tools, config: IRCoTConfig) -> IRCoTAnswer:
    """Answer one question with IRCoT (paper, section 3; released code, class ``ircot`` with a reader)."""
    collected = PassagePool(
        config.paragraph_budget,
        config.budget_policy,
        max_words=config.max_collected_words,
        near_duplicate=config.near_duplicate,
    )
    thoughts: list[str] = []
    retrievals: list[Retrieval] = []
    stopped = ""
    try:
        while not stopped:
            # Retrieve step (section 3.1): the question first, then the last thought worth looking up.
            query = next_query(question.text, thoughts)
            if config.strip_question_words:
                query = strip_question_words(query)
            hits = await tools.search(query, k=config.k_per_step, path=f"step {len(thoughts) + 1}")
            repeated = any(query == earlier.query for earlier in retrievals)
            retrievals.append(Retrieval(query, collected.add(hits), repeated))

            # Reason step: the next sentence of the chain of thought, given all paragraphs so far.
            thought = await next_thought(question, collected, thoughts, tools, config)
            thoughts.append(thought)
            stopped = exit_reason(thoughts, config)
        answer = await read_or_conclude(question, collected, thoughts, tools, config)
    except BudgetExhaustedError:
        stopped = "budget"
        answer = conclusion(thoughts, config)
    return IRCoTAnswer(
        text=answer,
        passage_ids=collected.ids,
        steps=len(thoughts),
        stopped=stopped,
        cot_sentences=tuple(thoughts),
        retrieved_ids=tuple(collected.seen_ids),
        retrievals=tuple(retrievals),
    )


async def next_thought(
    question: Question, collected: PassagePool, thoughts: list[str], tools: Tools, config: IRCoTConfig
) -> str:
    """Generate, and keep the first sentence only ("" if nothing was generated)."""
    template = config.reasoning_template()
    prompt = template.render(
        {
            "query": question.text,
            "paragraphs": render_passages(
                collected.passages, template, config.max_shown_words, goes_first="first"
            ),
            "cot_history": " ".join(thoughts),
            "demonstrations": render_demonstrations(config.examples(), template),
        }
    )
    stop = ("\n",) if prompt.plain else ()  # a chat model may begin with a line break
    reply = await tools.generate(
        prompt,
        role="thought",
        max_tokens=config.max_thought_tokens,
        stop=stop,
        path=f"step {len(thoughts) + 1}",
    )
    return first_sentence(reply.text, config.sentence_splitter)


def exit_reason(thoughts: list[str], config: IRCoTConfig) -> str:
    """Say why the loop ends after the newest thought, "" if it goes on."""
    newest = thoughts[-1]
    if not newest:
        return "empty_generation"
    lenient = config.stop_rule == "lenient" and config.stop_sequence.lower() in newest.lower()
    if lenient or stated_answer(newest) is not None:
        return "answer"
    return "max_steps" if len(thoughts) >= config.max_steps else ""


async def read_or_conclude(
    question: Question, collected: PassagePool, thoughts: list[str], tools: Tools, config: IRCoTConfig
) -> str:
    """Let the reader answer from all collected paragraphs.

    Without a reader, take the answer from the thoughts (Table 6).
    """
    if config.reader == "none":
        return conclusion(thoughts, config)
    return await read(question, collected.passages, tools, config)


def conclusion(thoughts: list[str], config: IRCoTConfig) -> str:
    """Take the answer from the chain of thought: what it states, by the rule that ended it."""
    chain = " ".join(thoughts)
    if config.stop_rule == "lenient" and stated_answer(chain) is None:
        *before, rest = re.split(re.escape(config.stop_sequence), chain, flags=re.IGNORECASE)
        if before:
            return extract_answer(rest)
    return extract_answer(chain)
