"""ReAct over passages (Yao et al.: ReAct: Synergizing Reasoning and Acting in Language Models, ICLR 2023).

Thought, action, observation, and again, until an action finishes with the answer. Preset "paper" is the
released HotpotQA code: seven steps, six worked examples, a second call where no action can be read, an empty
answer when no step finishes. The default asks a chat model without examples, takes an unreadable reply as the
answer and forces an answer at the end. Differences in both: any retriever's passages in place of Wikipedia's
pages and similar titles; ``lookup`` goes over all that was found, not one page (by default five sentences at
a time, "paper": one); parsing forgives letter case, round brackets, further actions and made-up observations.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from baselines.forced_answer import conclude
from baselines.react_actions import Move, answer_without_action, parse_move
from baselines.react_config import ReActConfig
from baselines.react_library import Excerpt, Library
from core.errors import BudgetExhaustedError
from core.prompting.prompt import Prompt
from core.prompting.shorten import reserve
from core.text import extract_answer
from core.tools import SearchStep, Tools
from core.types import Answer, Question


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
    answer, stopped, bad_parses = "", "", 0
    try:
        while not stopped:
            # Thought and action: one generation, which ends where the observation would begin.
            with tools.holding(
                reserve(final_prompt(question, steps, config)(steps), config.max_answer_tokens, tools)
            ):
                move, bad = await next_move(question, steps, tools, config)
            bad_parses += bad
            repeated = bool(move.action) and any(move.action == step.action for step in steps)
            observation = ""
            if move.name == "finish":
                answer, stopped = extract_answer(move.argument), "finish"
            elif not move.name and config.unparsable == "answer":
                answer, stopped = answer_without_action(move.thought), "unparsable"
            else:
                observation = await observe(move, library, tools, config, path=f"step {len(steps) + 1}")
                stopped = "max_steps" if len(steps) + 1 == config.max_steps else ""
            steps.append(
                ReActStep(len(steps) + 1, " ".join(move.thought.split()), move.action, observation, repeated)
            )
    except BudgetExhaustedError:
        stopped = "budget"
    if not answer and (config.force_answer or stopped == "budget"):
        final = final_prompt(question, steps, config)
        answer = await conclude(final, steps, tools, max_tokens=config.max_answer_tokens, stop=("]", "\n"))
    return ReActAnswer(
        text=answer,
        passage_ids=library.ids,
        steps=len(steps),
        stopped=stopped,
        trajectory=tuple(steps),
        calls=tools.spent.calls,
        searches=sum(isinstance(step, SearchStep) for step in tools.steps),
        bad_parses=bad_parses,
    )


async def next_move(
    question: Question, steps: Sequence[ReActStep], tools: Tools, config: ReActConfig
) -> tuple[Move, bool]:
    """Generate a thought and an action. Returns them, and whether the reply held no action."""
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
        said, found = library.look_up(move.argument, config.lookup_sentences)
        return said + (write(found, config) if found else "")
    if move.name == "think":
        return "Noted."
    if move.name != "search":
        return f"Invalid action: {move.action or 'none'}. Use search[query], lookup[term] or finish[answer]."
    hits = await tools.search(move.argument, k=config.k, path=path)
    return (
        write(library.add(hits, config.shown_sentences), config)
        or f"Nothing was found for '{move.argument}'."
    )


def write(excerpts: Sequence[Excerpt], config: ReActConfig) -> str:
    """Write some of the passages found as the prompt says."""
    return "".join(segment.text for segment in config.template().items("passage", excerpts)).strip()


def react_prompt(question: Question, config: ReActConfig, cue: str, steps: Sequence[ReActStep]) -> Prompt:
    """Write the transcript so far, to be continued after ``cue``.

    If it is too long, the oldest steps go first.
    """
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
