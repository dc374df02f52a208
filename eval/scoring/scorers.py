"""Answer scorers: the official rule of each dataset, re-implemented, one scorer per rule.

They share one normaliser (:func:`normalize_as_squad`) and differ in what earns F1: see each function.
Scores are fractions in [0, 1] per question; means and rounding are left to the table. Papers mix these rules,
so a figure means little without its scorer's title beside it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from corag.core.errors import ConfigError, DataError, nearest
from corag.core.language.text import is_other_script, normalize_as_mlqa, normalize_as_squad
from corag.core.language.words import is_unspaced
from corag.core.types import Question
from eval.datasets.registry import DATASETS

_CLOSED_ANSWERS = frozenset({"yes", "no", "noanswer"})  # as hotpot_evaluate_v1.py lists them


@dataclass(frozen=True, slots=True)
class ItemScore:
    """Exact match (0 or 1) of one prediction, and the F1, precision and recall (0 to 1) of its tokens."""

    em: float
    f1: float
    precision: float
    recall: float


NOTHING_RIGHT = ItemScore(0.0, 0.0, 0.0, 0.0)


@dataclass(frozen=True, slots=True)
class Scorer:
    """A dataset's way to compare a prediction with one gold answer, applied to all gold answers.

    Attributes:
        name: what ``--scorer`` calls it, and :attr:`eval.datasets.dataset.Dataset.scorer`.
        title: what a table prints beside the figures.
        compare: scores a prediction against one gold answer.
        accuracy: the rule's further measure of a prediction against one gold answer, if it has one.
        wants_pages: whether an answer must be borne out by pages. Then a question that names no gold pages
            counts as one whose pages were not found.
        without_aliases: what the title says as well if the gold answers lack the dataset's aliases.
        other_scripts: whether it has a rule for gold answers of other scripts than Latin.
    """

    name: str
    title: str
    compare: Callable[[str, str], ItemScore]
    accuracy: Callable[[str, str], float] | None = None
    wants_pages: bool = False
    without_aliases: str = ""
    other_scripts: bool = False

    def score(self, prediction: str, answers: Sequence[str]) -> ItemScore:
        """Return the best of each measure over the gold answers, each by itself, as the official scripts do.

        Raises :class:`DataError` if there are none.
        """
        if not answers:
            raise DataError(
                "a question without gold answers cannot be scored: give at least one in 'answers'."
            )
        items = [self.compare(prediction, answer) for answer in answers]
        return ItemScore(
            max(item.em for item in items),
            max(item.f1 for item in items),
            max(item.precision for item in items),
            max(item.recall for item in items),
        )

    def best_accuracy(self, prediction: str, answers: Sequence[str]) -> float:
        """Return the rule's accuracy, best over the gold answers; 0 for a rule that has none."""
        if self.accuracy is None:
            return 0.0
        return max((self.accuracy(prediction, answer) for answer in answers), default=0.0)


def squad_score(prediction: str, answer: str) -> ItemScore:
    """EM, and F1 over token counts (Rajpurkar et al. 2016; what CoRAG reports).

    F1 is 0 when both are empty after normalising, though EM is 1: no token is shared.
    """
    prediction_text, gold = normalize_as_squad(prediction), normalize_as_squad(answer)
    common = (Counter(prediction_text.split()) & Counter(gold.split())).total()
    return _item(float(prediction_text == gold), common, len(prediction_text.split()), len(gold.split()))


def mlqa_score(prediction: str, answer: str) -> ItemScore:
    """SQuAD's, and MLQA's for a gold answer of another script than Latin (Lewis et al. 2020).

    There punctuation of any script is deleted, and in scripts that set no spaces between words characters are
    compared: "湖南" has F1 0.8 for "湖南省". The script is the gold answer's; of one without letters,
    the prediction's.
    """
    letters = answer if any(map(str.isalpha, answer)) else prediction
    if not is_other_script(letters):
        return squad_score(prediction, answer)
    prediction_text, gold = normalize_as_mlqa(prediction), normalize_as_mlqa(answer)
    common = (Counter(prediction_text.split()) & Counter(gold.split())).total()
    return _item(float(prediction_text == gold), common, len(prediction_text.split()), len(gold.split()))


def hotpotqa_score(prediction: str, answer: str) -> ItemScore:
    """HotpotQA's and 2WikiMultihopQA's: SQuAD's, but yes, no and noanswer earn F1 only if both sides say it.

    So "no, they are not" scores 0 for the gold answer "no" (hotpot_evaluate_v1.py; 2Wiki's script v1.1).
    """
    prediction_text, gold = normalize_as_squad(prediction), normalize_as_squad(answer)
    if prediction_text != gold and not _CLOSED_ANSWERS.isdisjoint((prediction_text, gold)):
        return NOTHING_RIGHT
    return squad_score(prediction, answer)


def musique_score(prediction: str, answer: str) -> ItemScore:
    """MuSiQue's, which is SQuAD 2.0's: as SQuAD's, but two answers that normalise to nothing agree, F1 1.

    There is no rule for yes and no: "no, they are not" earns F1 0.4 for "no" (evaluate_v1.0.py).
    """
    item = squad_score(prediction, answer)
    return item if normalize_as_squad(answer) else ItemScore(item.em, item.em, item.em, item.em)


def drop_score(prediction: str, answer: str) -> ItemScore:
    """DROP's (Dua et al. 2019), for answers of one span; IRCoT uses it for IIRC and to choose its settings.

    Tokens also split at hyphens, numbers compare by value ("10" is "10.0"), F1 is over token sets, rounded to
    2 decimals, and 0 if the gold answer has numbers of which the prediction has none. IRCoT repairs
    mis-encoded text before, which forgives curly quotes; this does not.
    """
    prediction_tokens, gold = _drop_tokens(prediction), _drop_tokens(answer)
    numbers = {token for token in gold if _is_number(token)}
    if numbers and numbers.isdisjoint(prediction_tokens):
        return NOTHING_RIGHT
    common = len(set(prediction_tokens) & set(gold))
    precision = common / len(set(prediction_tokens)) if prediction_tokens else 1.0
    recall = common / len(set(gold)) if gold else 1.0
    return ItemScore(
        float(prediction_tokens == gold), round(harmonic_mean(precision, recall), 2), precision, recall
    )


def kilt_score(prediction: str, answer: str) -> ItemScore:
    """KILT's: SQuAD's, but a blank prediction earns nothing, whatever is left of the gold answer.

    Else it would be right wherever the gold answer is an article or a mark (KILT's eval_downstream.py).
    """
    return squad_score(prediction, answer) if prediction.strip() else NOTHING_RIGHT


def same_text(prediction: str, answer: str) -> float:
    """KILT's accuracy: 1 if the answer is the gold one to the letter, but for space around it."""
    return float(bool(prediction.strip()) and prediction.strip() == answer.strip())


def contains(prediction: str, answer: str) -> float:
    """FlashRAG's accuracy: 1 if the normalised gold answer stands in the prediction's, inside a word too.

    So "no" is found in "Norway": it is generous to long replies.
    """
    return float(normalize_as_squad(answer) in normalize_as_squad(prediction))


def harmonic_mean(precision: float, recall: float) -> float:
    """Return F1, which is 0 where both are."""
    return 2 * precision * recall / (precision + recall) if precision + recall else 0.0


def _item(em: float, common: int, prediction_size: int, gold_size: int) -> ItemScore:
    """Score ``common`` tokens among so many predicted and gold ones."""
    if not common:
        return ItemScore(em, 0.0, 0.0, 0.0)
    # F1 from the counts: by way of precision and recall it would be rounded twice more.
    return ItemScore(
        em, 2 * common / (prediction_size + gold_size), common / prediction_size, common / gold_size
    )


def _drop_tokens(text: str) -> list[str]:
    tokens: list[str] = []
    for part in re.split("[ -]", text):
        # Normalising would delete the point of "10.0", so numbers are kept from it.
        word = part if _is_number(part) else normalize_as_squad(part)
        tokens += [str(float(word))] if _is_number(word) else word.split()
    return tokens


def _is_number(token: str) -> bool:
    try:
        float(token)
    except ValueError:
        return False
    return True


SCORERS = {
    scorer.name: scorer
    for scorer in (
        Scorer("hotpotqa", "HotpotQA v1", hotpotqa_score),
        Scorer("2wikimultihopqa", "2WikiMultihopQA v1.1", hotpotqa_score, without_aliases="no aliases"),
        Scorer("musique", "MuSiQue v1.0", musique_score),
        Scorer("drop", "DROP-style", drop_score),
        Scorer("squad", "SQuAD-style", mlqa_score, other_scripts=True),
        Scorer("flashrag", "SQuAD-style with FlashRAG's yes/no rule", hotpotqa_score, contains),
        Scorer("kilt", "KILT", kilt_score, same_text, wants_pages=True),
    )
}


def scorer(name: str) -> Scorer:
    """Return the scorer of this name. Raises :class:`ConfigError` if there is none."""
    if name not in SCORERS:
        raise ConfigError(f"there is no scorer '{name}': {nearest(name, SCORERS)}")
    return SCORERS[name]


def default_scorer(dataset: str) -> Scorer:
    """Return a dataset's own scorer; SQuAD-style, as in CoRAG's paper, if it has no official script."""
    name = DATASETS[dataset].scorer if dataset in DATASETS else dataset
    return SCORERS.get(name, SCORERS["squad"])


def scorer_title(rule: Scorer, questions: Sequence[Question], aliases: str | None = None) -> str:
    """Return the title that a table prints: without the dataset's aliases a scorer scores lower, and says so.

    Args:
        rule: the scorer.
        questions: those that it scored. If any has a second gold answer, it brought aliases of its own.
        aliases: the file of aliases, or its hash, where it is known. A few questions may have no alias in it,
            and are scored as with it all the same.
    """
    takes_aliases = any(len(question.answers) > 1 for question in questions)
    if rule.without_aliases and not aliases and not takes_aliases:
        return f"{rule.title}, {rule.without_aliases}"
    if rule.other_scripts and any(map(is_other_script, _first_answers(questions))):
        return f"{rule.title}, other scripts than Latin by MLQA's rule"
    return rule.title


def script_note(rule: Scorer, questions: Sequence[Question]) -> str:
    """Return how many gold answers a rule that was made for English cannot compare well; "" if none.

    Its words are what stands between spaces, and its punctuation is ASCII's.
    """
    answers = list(_first_answers(questions))
    unspaced_count = sum(is_other_script(answer) and is_unspaced(answer) for answer in answers)
    if rule.other_scripts or not unspaced_count:
        return ""
    return (
        f"{unspaced_count:,} of {len(answers):,} gold answers are in a script without spaces between words, "
        f"where '{rule.title}' counts any other spelling as wrong: "
        + "choose scorer=squad, which compares characters."
    )


def _first_answers(questions: Sequence[Question]) -> Iterator[str]:
    return (question.answers[0] for question in questions if question.answers)


def choose_scorer(name: str, dataset: str) -> Scorer:
    """Return the scorer of this name, or for "auto" the dataset's own."""
    return default_scorer(dataset) if name == "auto" else scorer(name)
