"""FLARE direct: forward-looking active retrieval (Jiang et al., EMNLP 2023, arXiv 2305.06983).

Draft the next sentence; if one of its tokens is improbable, make a query of the draft, search, and write the
sentence again from what was found; so on to the end. Preset "paper": the released configuration for
2WikiMultihopQA (8 demonstrations, 2 passages).

Known differences: the demonstrations' passages are those of your file, not searched for; sentences are split
by rules, not by NLTK, and end at line breaks too; an accepted draft is kept, where the released code
generates it again with the same prompt; a draft whose query is blank or finds nothing, or that would be
written again as nothing, is kept; a stated answer ends the loop; one that was not stated is asked for (not by
preset "paper", but for a spent budget). The thresholds were tuned for text-davinci-003: look at ``searched``
in the trace (best when it is true of 40 to 80% of the sentences) and tune ``theta`` for your model.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from baselines.flare_config import FLAREConfig
from baselines.flare_queries import masked, questions
from baselines.flare_sentences import Sentence, answer_prompt, next_sentence, token_count
from baselines.forced_answer import conclude_chain, cued, written
from core.errors import BudgetExhaustedError
from core.fusion import interleave
from core.prompting.prompt import Prompt
from core.prompting.shorten import reserve
from core.text import stated_answer
from core.tools import Tools
from core.types import Answer, Hit, Question


@dataclass(frozen=True, slots=True)
class Draft:
    """What was drafted for a sentence of the answer.

    ``searched``: it was given up for a sentence that read fresh passages.
    """

    text: str
    confidence: float
    queries: tuple[str, ...]
    searched: bool


@dataclass(frozen=True, slots=True)
class FLAREAnswer(Answer):
    """FLARE's result.

    ``steps``: sentences of the answer, which are ``sentences``, one draft each; blank ones are left out.

    ``stopped``: "answer" (the newest sentence states one), "end" (of the model's turn), "max_sentences",
    "max_tokens", "empty_generation" or "budget". After all but "answer", it was asked for, with the preset
    "paper" after "budget" only.
    """

    sentences: tuple[str, ...] = ()
    drafts: tuple[Draft, ...] = ()


async def flare(question: Question, tools: Tools, config: FLAREConfig) -> FLAREAnswer:
    """Answer one question with FLARE direct (paper, section 3.2)."""
    sentences: list[Sentence] = []
    drafts: list[Draft] = []
    found: dict[str, None] = {}
    stopped = ""
    # The question's passages set the generation going.
    hits = await look_up([question.text], found, tools, config, path="question")

    def final(kept: Sequence[Sentence]) -> Prompt:
        return answer_prompt(question, hits, cued(kept), config)

    try:
        while not stopped:
            path = f"sentence {len(sentences) + 1}"
            to_hold_back = config.look_ahead_tokens + config.max_answer_tokens
            with tools.holding(reserve(final(sentences), to_hold_back, tools)):
                # Look ahead: the next sentence, for the time being.
                shown = hits if config.draft_with == "passages" or not sentences else []
                sentence = draft = await next_sentence(
                    "draft", question, shown, sentences, tools, config, path=path
                )
                queries: list[str] = []
                if draft.tokens and draft.confidence <= config.theta:
                    # Unsure: search for what it says, or for what it does not know, and write it again.
                    queries = await form_queries(draft, sentences, tools, config, path=path)
                    if fresh := await look_up(queries, found, tools, config, path=path):
                        hits = fresh  # they replace those before
                        again = await next_sentence(
                            "sentence", question, hits, sentences, tools, config, path=path
                        )
                        sentence = again if again.text.strip() else draft
            if not sentence.text.strip():
                stopped = "empty_generation"
                break
            drafts.append(Draft(draft.text, draft.confidence, tuple(queries), sentence is not draft))
            sentences.append(sentence)
            stopped = exit_reason(sentences, config)
    except BudgetExhaustedError:
        stopped = "budget"
    answer = await conclude_chain(final, sentences, stopped, tools, config)
    texts = tuple(sentence.text for sentence in sentences)
    return FLAREAnswer(answer, tuple(found), len(sentences), stopped, texts, tuple(drafts))


async def form_queries(
    draft: Sentence, sentences: Sequence[Sentence], tools: Tools, config: FLAREConfig, *, path: str
) -> list[str]:
    """Make queries of an unsure draft (section 3.2.2)."""
    if config.query == "masked":
        return [masked(draft.tokens, config.beta)]
    text = written([*sentences, draft])
    return await questions(draft.tokens, text, tools, config, path=path)


async def look_up(
    queries: Sequence[str], found: dict[str, None], tools: Tools, config: FLAREConfig, *, path: str
) -> list[Hit]:
    """Search with each query, note in ``found`` what came, and merge it into k hits.

    Blank queries find nothing.
    """
    rankings = [await tools.search(query, k=config.k, path=path) for query in queries if query]
    found |= dict.fromkeys(hit.passage.id for ranking in rankings for hit in ranking)
    return interleave(rankings)[: config.k]


def exit_reason(sentences: Sequence[Sentence], config: FLAREConfig) -> str:
    """Say why the loop ends after the newest sentence, "" if it goes on."""
    newest = sentences[-1]
    if stated_answer(newest.text.strip()) is not None:
        return "answer"
    if newest.ended:
        return "end"
    if len(sentences) >= config.max_sentences:
        return "max_sentences"
    return "max_tokens" if token_count(sentences) >= config.max_tokens else ""
