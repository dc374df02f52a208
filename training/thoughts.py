"""IRCoT's thoughts from gold reasoning: what it would have been shown at every step, and what to think.

The loop is IRCoT's own (``ircot/method.py``), but each thought is the gold one: a sentence that names what
the next hop finds, at last "So the answer is: ...". So paragraphs are those that such thoughts bring in.
"""

from __future__ import annotations

from dataclasses import dataclass

from corag.core.language.sentences import first_sentence
from corag.core.language.text import mentions
from corag.core.prompting.render import passage_items
from corag.core.tools import Tools
from corag.core.types import Question
from eval.datasets.reasoning import gold_sentences
from ircot.method import IRCoTConfig, new_pool, retrieve


@dataclass(frozen=True, slots=True)
class GoldThought:
    """A step of the loop: the paragraphs that were collected by then, in order, and the sentence to think."""

    sentence: str
    passage_ids: tuple[str, ...]


async def follow_reasoning(
    question: Question, tools: Tools, config: IRCoTConfig
) -> tuple[tuple[GoldThought, ...], bool]:
    """Return the steps of a question's gold reasoning, and whether they reach its answer.

    They end where no paragraph holds what the next sentence says: a model would learn to make it up.
    """
    pool, sentences_before, steps = new_pool(config), list[str](), list[GoldThought]()
    sentences = [*gold_sentences(question), f"So the answer is: {question.answers[0]}."]
    facts = [hop.answer for hop in question.decomposition]
    for sentence, fact in zip(sentences, [*facts, ""], strict=True):
        await retrieve(question, pool, sentences_before, tools, config)
        # No more can be found than a budget of paragraphs holds; and the loop takes no further step.
        texts = [" ".join(item.values()) for item in passage_items(pool.passages, config.max_shown_words)]
        is_supported = mentions(texts, [fact]) if fact else True
        if not is_supported or len(sentences_before) >= config.max_steps:
            return tuple(steps), False
        # Decoding keeps the first sentence of a reply, by these rules. What it would cut is not taught.
        first = first_sentence(sentence)
        if not mentions([first], [fact or question.answers[0]]):
            return tuple(steps), False
        sentences_before.append(first)
        steps.append(GoldThought(sentences_before[-1], pool.ids))
    return tuple(steps), True
