"""A language model as judge of answers: yes or no, one question at a time.

A judge is a method like any other, so its verdicts lie in a run folder, can be resumed, and have their tokens
counted. It decodes greedily: the same answers get the same verdicts.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from corag.core.method import MethodConfig
from corag.core.options.names import NameOrPath
from corag.core.prompting.template import Template, load_prompt
from corag.core.tools import Tools
from corag.core.types import Answer, Question

PROMPTS = Path(__file__).parent / "prompts"
JUDGE = "judge"
Verdict = Literal["yes", "no", "unreadable"]
_REPLY_TOKENS = 8  # a chat model may write a word or two before yes or no
_WORDS = re.compile(r"\b(yes|no)\b")


@dataclass(frozen=True)
class JudgeConfig(MethodConfig):
    """Options of the judge."""

    prompt: NameOrPath = JUDGE
    """a shipped name, a file, or a text with {query}, {answers} and {prediction}."""

    def templates(self) -> tuple[Template, ...]:
        """The judge's prompt."""
        return (load_prompt(self.prompt, JUDGE, PROMPTS),)


async def judge(
    question: Question, tools: Tools, config: JudgeConfig, predictions: Mapping[str, str]
) -> Answer:
    """Judge the answer that ``predictions`` has for the question by its gold answers.

    Args:
        question: with its gold answers.
        tools: for the one call.
        config: the prompt.
        predictions: answers of another run by question id.

    Returns:
        The reply as it came as ``text``; the :data:`Verdict` as ``stopped``.
    """
    (template,) = config.templates()
    values = {
        "query": question.text,
        "answers": "; ".join(question.answers),
        "prediction": predictions[question.id].strip() or "(none)",  # a blank would read as a torn prompt
    }
    reply = await tools.generate(template.render(values), role=JUDGE, max_tokens=_REPLY_TOKENS)
    return Answer(reply.text, steps=1, stopped=parse_verdict(reply.text))


def parse_verdict(reply: str) -> Verdict:
    """Read a reply: its first word if that is yes or no, else whichever of the two it mentions.

    Both or neither cannot be read.

    >>> [parse_verdict(reply) for reply in ("Yes.", "The answer is wrong: No", "Yes and no", "Maybe")]
    ['yes', 'no', 'yes', 'unreadable']
    """
    words = _WORDS.findall(reply.lower())
    if words and (re.match(r"\W*(yes|no)\b", reply.lower()) or len(set(words)) == 1):
        return "yes" if words[0] == "yes" else "no"
    return "unreadable"
