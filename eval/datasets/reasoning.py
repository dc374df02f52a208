"""Gold reasoning in sentences: what each hop of a question's decomposition finds out, one sentence each.

Datasets have it in different forms: 2WikiMultihopQA's sub-questions are answered in sentences, MuSiQue's are
"subject >> relation" or questions, the embedded world's come from a table that can be read backwards.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from corag.core.types import GoldHop, Question
from eval.datasets.world.questions import state_fact

# A sub-question may name the answer to an earlier one, as MuSiQue writes it: "#1" for the first.
_REFERENCE = re.compile(r"#(\d+)")


def resolve(sub_question: str, answers: Sequence[str]) -> str:
    """Write earlier answers into a sub-question that names them by number.

    >>> resolve("Where was #1 born?", ["Mara Velden"])
    'Where was Mara Velden born?'
    """

    def answer(reference: re.Match[str]) -> str:
        number = int(reference[1])
        return answers[number - 1] if 1 <= number <= len(answers) else reference[0]

    return _REFERENCE.sub(answer, sub_question)


def as_question(sub_question: str) -> str:
    """Write MuSiQue's "subject >> relation" as the question that a searcher would ask.

    >>> as_question("Bubye River >> country")
    'What is the country of Bubye River?'
    >>> as_question("Where was Mara Velden born?")
    'Where was Mara Velden born?'
    """
    relation = relation_of(sub_question)
    return f"What is the {relation}?" if relation else sub_question


def relation_of(sub_question: str) -> str:
    """Return "relation of subject" of MuSiQue's "subject >> relation"; nothing of a question.

    >>> relation_of("Bubye River >> country")
    'country of Bubye River'
    """
    subject, _, relation = sub_question.partition(" >> ")
    return f"{relation.strip()} of {subject.strip()}" if relation else ""


def gold_sentences(question: Question) -> tuple[str, ...]:
    """Return a sentence for each hop of the decomposition that names what the hop found."""
    sentences: list[str] = []
    answers: list[str] = []
    for hop in question.decomposition:
        sentences.append(hop_sentence(hop, answers))
        answers.append(hop.answer)
    return tuple(sentences)


def hop_sentence(hop: GoldHop, before: Sequence[str]) -> str:
    """Return one hop as a sentence. ``before``: the answers to earlier hops.

    >>> hop_sentence(GoldHop("Emma >> author", "Jane Austen"), [])
    'The author of Emma is Jane Austen.'
    >>> hop_sentence(GoldHop("When was #1 born?", "1775"), ["Jane Austen"])
    'When was Jane Austen born: 1775.'
    """
    if hop.says:
        return hop.says
    question = resolve(hop.question, before)
    if world := state_fact(question, hop.answer, before):
        return world
    if relation := relation_of(question):
        return f"The {relation} is {hop.answer}."
    # No rule turns any question into a statement; this names the same things and is one sentence.
    return f"{question.strip().rstrip('?').strip()}: {hop.answer.rstrip('.')}."
