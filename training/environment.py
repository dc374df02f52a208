"""A question with a search engine, as TRL's GRPOTrainer trains agents on it (``environment_factory``)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from eval.api.opened import Index
from eval.scoring.scorers import choose_scorer


class SearchEnvironment:
    """One rollout: the model calls ``search`` as often as it likes, then ``answer``, which is scored.

    ``GRPOTrainer(environment_factory=lambda: SearchEnvironment(index, "hotpotqa"), train_dataset=...)``:
    rows have ``prompt`` and ``answers``, the gold ones. Every public method but ``reset`` and ``get_reward``
    is a tool, whose docstring is what the model reads of it.
    """

    def __init__(
        self, index: Index, dataset: str = "jsonl", *, k: int = 3, measure: Literal["em", "f1"] = "f1"
    ) -> None:
        """Prepare rollouts.

        Args:
            index: what :func:`corag.open_index` returned.
            dataset: whose scorer rewards answers.
            k: passages that a search shows.
            measure: of the scorer, between 0 and 1.
        """
        self._index, self._k, self._measure = index, k, measure
        self._scorer = choose_scorer("auto", dataset)
        self._gold: Sequence[str] = ()
        self._reply = ""

    def reset(self, *, answers: Sequence[str], **_: Any) -> None:
        """Begin with a question, by its row of the training set."""
        self._gold, self._reply = answers, ""

    def search(self, query: str) -> str:
        """Search the corpus for passages.

        Args:
            query: what to search for.

        Returns:
            The best passages.
        """
        hits = self._index.search(query, self._k)
        return "\n\n".join(f"{hit.passage.title}\n{hit.passage.text}" for hit in hits) or "nothing found"

    def answer(self, text: str) -> str:
        """Answer the question. The last answer counts.

        Args:
            text: the answer, in as few words as possible.

        Returns:
            That it was noted.
        """
        self._reply = text
        return "noted"

    def get_reward(self) -> float:
        """Return the score of the answer, 0 without one."""
        if not self._reply.strip():
            return 0.0
        score = self._scorer.score(self._reply, self._gold)
        return score.em if self._measure == "em" else score.f1
