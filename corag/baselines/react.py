"""ReAct over passages (Yao et al.: ReAct: Synergizing Reasoning and Acting in Language Models, ICLR 2023).

arXiv 2210.03629. Thought, action, observation, and again, until an action finishes with the answer. Preset
"paper" is the released HotpotQA code: seven steps, six worked examples, a second call where no action can be
read, an empty answer when no step finishes. The default asks a chat model without examples, takes an
unreadable reply as the answer and forces an answer at the end.

Differences in both, and why:

- Any retriever's passages in place of Wikipedia's pages and similar titles, which need Wikipedia's own
  search.
- ``lookup`` goes over all that was found, not over one page: passages are shorter than pages. By default it
  shows five sentences at a time, each with its passage's title and its number there; with "paper" one, with
  the title alone.
- Parsing forgives letter case, round brackets, further actions and made-up observations, which small models
  write.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, ClassVar, Literal, TypeAlias

from annotated_types import Ge

from corag.baselines.shared import answer_from_newest
from corag.baselines.transcripts import TranscriptConfig
from corag.core.errors import BudgetExhaustedError
from corag.core.language.sentences import sentence_end
from corag.core.language.text import extract_answer, stated_answer
from corag.core.method import Method
from corag.core.prompting.prompt import Prompt
from corag.core.tools import SearchStep, Tools
from corag.core.types import Answer, Hit, Passage, Question


@dataclass(frozen=True)
class ReActConfig(TranscriptConfig, section="react"):
    """Options of ReAct, with those of its transcript (fields {query}, {hops}, {cue} and {demonstrations}).

    In the prompt's passage, {place} is its number among all that were found, and {sentence} says which of its
    sentences a lookup shows, as ", sentence 3"; a search leaves it empty. The released code has its
    examples under webthink_simple6 in prompts_naive.json: make that text a file for ``demonstrations``.
    """

    demonstration_count: Annotated[int, Ge(0)] = 6
    max_steps: Annotated[int, Ge(1)] = 7
    """maximum number of thoughts, each with its action."""

    k: Annotated[int, Ge(1)] = 5
    """passages per search (also ``top_k``)."""

    shown_sentences: Annotated[int, Ge(0)] = 5  # released code: the first five sentences of a page
    """sentences shown of each retrieved passage, the rest is left to lookups; 0 shows all."""

    lookup_sentences: Annotated[int, Ge(1)] = 5
    """sentences that a lookup shows; repeating it shows the next ones."""

    unparsable: Literal["answer", "ask_again"] = "answer"
    """a reply without an action is the "answer"; or "ask_again", for the action alone."""

    force_answer: bool = True
    """request an answer if no step gave one. With an exhausted budget this is always done."""

    max_step_tokens: Annotated[int, Ge(1)] = (
        200  # ours: chat models think at twice the length of the paper's 100
    )
    """token limit of a thought and its action."""

    max_answer_tokens: Annotated[int, Ge(1)] = 64
    """token limit of a forced answer."""

    ALIASES: ClassVar[dict[str, str]] = {"top_k": "k", "max_iterations": "max_steps"}
    PRESETS: ClassVar[dict[str, dict[str, Any]]] = {
        "paper": {
            "k": 1,
            "lookup_sentences": 1,
            "unparsable": "ask_again",
            "force_answer": False,
            "max_step_tokens": 100,
        },
        "zero_shot": {},
    }


@dataclass(frozen=True, slots=True)
class ReActStep:
    """One turn.

    ``action`` and ``observation`` are "" where there is none; ``repeated``: the same action had been taken
    before.
    """

    number: int
    thought: str
    action: str
    observation: str
    repeated: bool


@dataclass(frozen=True, slots=True)
class ReActAnswer(Answer):
    """ReAct's result.

    ``stopped``: "finish", "unparsable" (a reply without an action is the answer), "max_steps" or "budget".
    ``calls`` of the model, ``searches`` and ``bad_parses``, replies in which no action was found: all of this
    question.
    """

    trajectory: tuple[ReActStep, ...] = ()
    calls: int = 0
    searches: int = 0
    bad_parses: int = 0


async def react(question: Question, tools: Tools, config: ReActConfig) -> ReActAnswer:
    """Answer one question with ReAct (paper, section 2; released code, function ``webthink``)."""
    library = Library()
    steps: list[ReActStep] = []
    answer, stop_reason, bad_parses = "", "", 0
    try:
        while not stop_reason:
            # 1. Thought and action: one generation, which ends where the observation would begin.
            final = final_prompt(question, steps, config)
            with tools.reserve(final(steps), config.max_answer_tokens):
                move, bad = await next_move(question, steps, tools, config)
            bad_parses += bad
            # Noted and not refused, as in the paper: the trace shows models that go in circles.
            repeats_action = bool(move.action) and any(move.action == step.action for step in steps)
            observation = ""
            if move.name == "finish":
                answer, stop_reason = extract_answer(move.argument), "finish"
            elif not move.name and config.unparsable == "answer":
                answer, stop_reason = answer_without_action(move.thought), "unparsable"
            else:
                # 2. Observation: what the action brings.
                observation = await observe(move, library, tools, config, path=f"step {len(steps) + 1}")
                stop_reason = "max_steps" if len(steps) + 1 == config.max_steps else ""
            thought = " ".join(move.thought.split())
            steps.append(ReActStep(len(steps) + 1, thought, move.action, observation, repeats_action))
    except BudgetExhaustedError:
        stop_reason = "budget"
    # 3. Released code: steps that run out finish with an empty answer.
    if not answer and (config.force_answer or stop_reason == "budget"):
        final, stop = final_prompt(question, steps, config), ("]", "\n")
        answer = await answer_from_newest(final, steps, tools, max_tokens=config.max_answer_tokens, stop=stop)
    return ReActAnswer(
        text=answer,
        passage_ids=library.ids,
        steps=len(steps),
        stopped=stop_reason,
        trajectory=tuple(steps),
        calls=tools.spent.calls,
        searches=sum(isinstance(step, SearchStep) for step in tools.steps),
        bad_parses=bad_parses,
    )


async def next_move(
    question: Question, steps: Sequence[ReActStep], tools: Tools, config: ReActConfig
) -> tuple[Move, bool]:
    """Generate a thought and an action; return them, and whether the reply held no action."""
    number = len(steps) + 1
    path, stop = f"step {number}", (f"Observation {number}:", "Observation:")
    prompt = react_prompt(question, config, f"Thought {number}:", steps)
    reply = await tools.generate(prompt, role="step", max_tokens=config.max_step_tokens, stop=stop, path=path)
    move = parse_move(reply.text)
    if move.name or config.unparsable == "answer":
        return move, not move.name
    # Released code: the first line is the thought, and the action is asked for by itself.
    thought = move.thought.split("\n", 1)[0]
    prompt = react_prompt(question, config, f"Thought {number}: {thought}\nAction {number}:", steps)
    reply = await tools.generate(
        prompt, role="action", max_tokens=config.max_step_tokens, stop=("\n",), path=path
    )
    action = parse_move(f"Action: {reply.text}")
    return Move(thought, action.name, action.argument if action.name else reply.text.strip()), True


async def observe(move: Move, library: Library, tools: Tools, config: ReActConfig, *, path: str) -> str:
    """Take an action and say what it brings. Only "search" reaches the retriever."""
    if move.name == "lookup":
        observation, match = library.look_up(move.argument, config.lookup_sentences)
        return observation + (write(match, config) if match else "")
    if move.name == "think":  # released code accepts it; it changes nothing
        return "Noted."
    if move.name != "search":
        return f"Invalid action: {move.action or 'none'}. Use search[query], lookup[term] or finish[answer]."
    hits = await tools.search(move.argument, k=config.k, path=path)
    excerpts = library.add(hits, config.shown_sentences)
    return write(excerpts, config) or f"Nothing was found for '{move.argument}'."


# Prompts


def react_prompt(question: Question, config: ReActConfig, cue: str, steps: Sequence[ReActStep]) -> Prompt:
    """Write the transcript so far, to be continued after ``cue``; too long, it loses the oldest steps."""
    template = config.template()
    items = [
        {
            "step": str(step.number),
            "thought": step.thought,
            "action": step.action,
            "observation": step.observation,
        }
        for step in steps
    ]
    hops = template.items("hop", items)
    return template.render(
        {"query": question.text, "hops": hops, "cue": cue, "demonstrations": config.examples()}
    )


def final_prompt(question: Question, steps: Sequence[ReActStep], config: ReActConfig) -> partial[Prompt]:
    """Return the function that asks for the answer, and nothing else, after some of the steps."""
    return partial(react_prompt, question, config, f"Action {len(steps) + 1}: finish[")


def write(excerpts: Sequence[Excerpt], config: ReActConfig) -> str:
    """Write some of the passages found as the prompt says."""
    return "".join(segment.text for segment in config.template().items("passage", excerpts)).strip()


# Reading an action out of a reply

_OBSERVATION = re.compile(r"observation[ \t]*\d*[ \t]*:", re.IGNORECASE)
_THOUGHT_LABEL = re.compile(r"^\W*thought[ \t]*\d*[ \t]*:", re.IGNORECASE)
_ACTION_LABEL = re.compile(r"[*_`]*\baction[ \t]*\d*[ \t]*:\W*?(?=\w|$)", re.IGNORECASE)
_CALL = re.compile(r"\b(search|lookup|finish|think)\s?([\[(])", re.IGNORECASE)
# Without a label, square brackets make a call anywhere; round ones only at the start of a line, for a thought
# may well speak of "the search (2018)".
_BARE_CALL = re.compile(
    r"(?=\b(?:search|lookup|finish)\[)|^(?=\W*(?:search|lookup|finish)\s?\()", re.IGNORECASE | re.MULTILINE
)
# A word of the model's own where an action should be, named in the reply as invalid.
_MADE_UP = re.compile(r"(\w+)\s?([\[(])")


@dataclass(frozen=True, slots=True)
class Move:
    """What a reply says.

    ``name``: "search", "lookup", "finish", "think", a word the model made up, or "" without an action.
    ``thought``: what stands before the action, or all of it without one, line breaks included. ``argument``:
    the action's, or what was written where an action should be.
    """

    thought: str
    name: str
    argument: str

    @property
    def action(self) -> str:
        """The action as a transcript writes it."""
        return f"{self.name}[{self.argument}]" if self.name else self.argument


def parse_move(reply: str) -> Move:
    r"""Read thought and action out of a reply; without any action, all that was written is the thought.

    Only the first action counts, and nothing from a made-up observation on. Brackets may be round or square;
    the argument reaches to the last closing one on the line, or before a second action behind the bracket
    that closes the first.

    >>> parse_move("I need the author.\nAction 1: Search[The Glass Orchard (novel)]\nObservation 1: It is")
    Move(thought='I need the author.', name='search', argument='The Glass Orchard (novel)')
    """
    step = _OBSERVATION.split(reply, maxsplit=1)[0]
    starts_at = [start for pattern in (_ACTION_LABEL, _BARE_CALL) for start in pattern.finditer(step)]
    starts = sorted(starts_at, key=lambda start: start.start())
    for start in starts:  # a label that no call follows is a word of the thought
        line = step[start.end() :].strip().split("\n", 1)[0]
        if call := _CALL.search(line) or _MADE_UP.match(line):
            thought, argument = step[: start.start()], _argument(line[call.end() :], call[2])
            return Move(_thought(thought), call[1].lower(), argument)
    if starts and not step[starts[-1].end() :].strip():
        step = step[: starts[-1].start()]  # a label, and nothing more
    return Move(_thought(step), "", "")


def answer_without_action(response: str) -> str:
    r"""Return what a line of a response states as the answer, else all of the response, joined by spaces.

    >>> answer_without_action("The Glass Orchard\nis by Mara Velden.")
    'The Glass Orchard is by Mara Velden'
    """
    has_answer = any(stated_answer(line) is not None for line in response.splitlines())
    return extract_answer(response if has_answer else " ".join(response.split()))


def _thought(text: str) -> str:
    return _THOUGHT_LABEL.sub("", text).strip()


def _argument(rest: str, opening: str) -> str:
    """Cut the argument out of what follows the opening bracket of an action."""
    closing = "]" if opening == "[" else ")"
    # Within an argument, the name of an action is a word of a title: "The Search (film)".
    for following in _CALL.finditer(rest):
        before = rest[: following.start()]
        if before.count(closing) > before.count(opening):
            rest = before
            break
    end = rest.rfind(closing)
    return _bare(rest[:end] if end >= 0 else rest)


def _bare(argument: str) -> str:
    """Take off white space and one pair of brackets or quotes around the whole argument."""
    argument = argument.strip()
    around = len(argument) >= 2 and argument[0] + argument[-1] in ("[]", '""', "''", "“”")
    inside = argument[1:-1]
    return inside.strip() if around and argument[0] not in inside and argument[-1] not in inside else argument


# What was found, and how searches and lookups show it

Excerpt: TypeAlias = dict[str, str]
"""Some of a passage, as a prompt's "passage" takes it: title, text, its place among all found, and which
sentence it is, both from 1.
"""


class Library:
    """What a question's searches have found, in order, and how far the current lookup has come."""

    def __init__(self) -> None:
        self._passages: dict[str, Passage] = {}
        self._term = ""
        self._position = 0

    @property
    def ids(self) -> tuple[str, ...]:
        """Ids of the passages."""
        return tuple(self._passages)

    def add(self, hits: Sequence[Hit], shown_sentences: int) -> list[Excerpt]:
        """Take in what a search found; return so many sentences of each passage, all for 0."""
        self._passages.update((hit.passage.id, hit.passage) for hit in hits)
        self._term = ""  # lookups begin anew (released code: on a new page)
        places = {name: position for position, name in enumerate(self._passages, 1)}
        return [
            _excerpt(
                places[hit.passage.id], hit.passage, sentences(hit.passage.text)[: shown_sentences or None]
            )
            for hit in hits
        ]

    def look_up(self, term: str, limit: int) -> tuple[str, list[Excerpt]]:
        """Return the next ``limit`` sentences that hold the term, in any case, after a first line."""
        needle = term.strip().casefold()
        if needle != self._term:
            self._term, self._position = needle, 0
        matches = [
            _excerpt(position, passage, [sentence], number)
            for position, passage in enumerate(self._passages.values(), 1)
            for number, sentence in enumerate(sentences(passage.text), 1)
            if needle and needle in sentence.casefold()
        ]
        if not matches:
            return f"No sentence with '{term}' in what was found so far.", []
        first, page = self._position + 1, matches[self._position : self._position + limit]
        self._position += len(page)
        if not page:
            return "No more results.", []
        if len(page) == 1:
            return f"(Result {first} / {len(matches)}) ", page
        return f"(Results {first} to {self._position} / {len(matches)})\n", page


def _excerpt(position: int, passage: Passage, part: Sequence[str], number: int = 0) -> Excerpt:
    """``number``: of the one sentence that a lookup shows; 0 for the passage's beginning."""
    sentence = f", sentence {number}" if number else ""
    return {"place": str(position), "title": passage.title, "sentence": sentence, "text": " ".join(part)}


def sentences(text: str) -> list[str]:
    r"""Split a text into sentences; line breaks end them too.

    >>> sentences("J. R. Smith left. He came to St. Ives.\nThe end")
    ['J. R. Smith left.', 'He came to St. Ives.', 'The end']
    """
    matches = []
    while end := sentence_end(text):
        matches.append(text[:end].strip())
        text = text[end:]
    return matches


METHOD = Method(
    react,
    ReActConfig,
    "think, then search, look up or finish, step by step (ReAct: Yao et al. 2023)",
    published="2022-10",
)
