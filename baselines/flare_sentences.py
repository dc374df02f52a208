"""FLARE's sentences: generated one at a time, each with the probabilities of its tokens (Jiang et al. 2023,
section 3.2.1).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from baselines.flare_config import FLAREConfig
from baselines.flare_queries import Token
from baselines.forced_answer import written
from core.prompting.prompt import Prompt
from core.prompting.render import render_demonstrations, render_passages
from core.sentences import sentence_end
from core.tools import Tools
from core.types import Hit, Question

LEAST_SENTENCE = 5  # released code: what is shorter, in characters, is one sentence with what follows


@dataclass(frozen=True, slots=True)
class Sentence:
    """A generated sentence with the white space before it; ``ended``: the model wrote nothing after it."""

    text: str
    tokens: tuple[Token, ...]
    ended: bool

    @property
    def confidence(self) -> float:
        """The lowest probability of its tokens; 1 if there are none."""
        return math.exp(min((logprob for _, logprob in self.tokens), default=0.0))


async def next_sentence(
    role: str,
    question: Question,
    hits: Sequence[Hit],
    sentences: Sequence[Sentence],
    tools: Tools,
    config: FLAREConfig,
    *,
    path: str,
) -> Sentence:
    """Generate on from the sentences so far, and keep the first sentence with its tokens."""
    prompt = answer_prompt(question, hits, written(sentences), config)
    left = config.max_tokens - token_count(sentences)
    stop = ("\n\n",) if prompt.plain else ()
    reply = await tools.generate(
        prompt, role=role, max_tokens=min(config.look_ahead_tokens, left), stop=stop, logprobs=True, path=path
    )
    completion = reply.completions[0]
    end = sentence_end(completion.text, LEAST_SENTENCE)
    ended = completion.finish_reason == "stop" and not completion.text[end:].strip()
    return Sentence(completion.text[:end], tuple(completion.tokens(end)), ended)


def answer_prompt(question: Question, hits: Sequence[Hit], so_far: str, config: FLAREConfig) -> Prompt:
    """Write the answer so far, to be continued.

    If the prompt is too long, passages are left out, the worst first.
    """
    template, passages = config.template(), (hit.passage for hit in hits)
    return template.render(
        {
            "query": question.text,
            "paragraphs": render_passages(passages, template, config.max_shown_words, goes_first="last"),
            "cot_history": so_far,
            "demonstrations": render_demonstrations(config.examples(), template),
        }
    )


def token_count(sentences: Sequence[Sentence]) -> int:
    """Return how many tokens the answer so far has."""
    return sum(len(sentence.tokens) for sentence in sentences)
