"""A language model as judge of chains of thought: is each statement borne out by the paragraphs?

IRCoT's authors count by hand the chains with at least one factual error (section 5). Here a model reads each
statement beside the gold paragraphs, and again beside those that the method had collected.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from corag.core.prompting.prompt import Segment
from corag.core.prompting.render import render_passages
from corag.core.tools import Tools
from corag.core.types import Answer, Passage, Question
from eval.scoring.judge import JUDGE, JudgeConfig, Verdict, parse_verdict


@dataclass(frozen=True, slots=True)
class ThoughtsToJudge:
    """What is judged of one question: a method's statements, and paragraphs, None where unknown."""

    statements: tuple[str, ...]
    gold: tuple[Passage, ...] | None
    retrieved_passages: tuple[Passage, ...] | None


@dataclass(frozen=True, slots=True)
class JudgedThoughts(Answer):
    """A judge's verdicts on the ``statements``, by gold paragraphs and by what was retrieved; () if unknown.

    ``text`` is "", ``stopped`` is "judged", ``steps`` the number of statements.
    """

    statements: tuple[str, ...] = ()
    by_gold: tuple[Verdict, ...] = ()
    by_retrieved: tuple[Verdict, ...] = ()


async def judge_thoughts(
    question: Question, tools: Tools, config: JudgeConfig, reasoning: Mapping[str, ThoughtsToJudge]
) -> JudgedThoughts:
    """Judge a question's statements one by one. ``reasoning``: of another run, by question id."""
    thoughts = reasoning[question.id]
    verdicts: list[tuple[Verdict, ...]] = []
    for passages in (thoughts.gold, thoughts.retrieved_passages):
        numbers = [] if passages is None else range(len(thoughts.statements))
        verdicts.append(
            tuple(
                [
                    await _judge_one(question, thoughts.statements[: n + 1], passages or (), tools, config)
                    for n in numbers
                ]
            )
        )
    gold_verdicts, retrieved_verdicts = verdicts
    return JudgedThoughts(
        "", (), len(thoughts.statements), "judged", thoughts.statements, gold_verdicts, retrieved_verdicts
    )


async def _judge_one(
    question: Question,
    statements: Sequence[str],
    passages: Sequence[Passage],
    tools: Tools,
    config: JudgeConfig,
) -> Verdict:
    """Judge the last of some statements."""
    (template,) = config.templates()
    *earlier, statement = statements
    values: dict[str, str | Sequence[Segment]] = {
        "query": question.text,
        "paragraphs": render_passages(passages, template, goes_first="last"),
        "before": " ".join(earlier) or "(none)",
        "statement": statement,
    }
    reply = await tools.generate(template.render(values), role=JUDGE, max_tokens=config.max_reply_tokens)
    return parse_verdict(reply.text)
