"""A retriever and a language model of your own: pass them to ask(), run() and sweep() as they are.

    python examples/own_retriever_and_llm.py

The retriever is scikit-learn's TF-IDF, the model a pipeline of transformers; other objects and functions will
do, too: docs/guides/own_retriever_and_model.md. About 2 minutes on two CPU cores for 3 questions.
"""

import json
from pathlib import Path

from sklearn.feature_extraction.text import TfidfVectorizer
from transformers import pipeline

from corag import ClosedBookConfig, OneStepConfig, ask, closed_book, one_step, run, write_world
from corag.generation.models import model_folder

FOLDER = Path("runs/examples/own_retriever")


class TfIdf:
    """Has a method ``search``: all that it needs."""

    def __init__(self, passages: list[dict[str, str]]) -> None:
        self.passages, self.vectorizer = passages, TfidfVectorizer(sublinear_tf=True)
        self.matrix = self.vectorizer.fit_transform(f"{each['title']} {each['text']}" for each in passages)

    def search(self, query: str, k: int) -> list[tuple[dict[str, str], float]]:
        """Return the best passages."""
        scores = (self.matrix @ self.vectorizer.transform([query]).T).toarray().ravel()
        return [(self.passages[i], scores[i]) for i in scores.argsort()[::-1][:k]]


def main() -> None:
    """Ask one question, then see on three what the retriever is good for."""
    write_world(FOLDER / "world", passages=1000, train=20, dev=20, test=100)
    retriever = TfIdf([json.loads(line) for line in (FOLDER / "world/corpus.jsonl").open()])
    generate = pipeline("text-generation", model=model_folder("default"), dtype="float32")

    def llm(messages: list[dict[str, str]], max_tokens: int) -> object:
        return generate(messages, max_new_tokens=max_tokens, do_sample=False)

    short, alone = OneStepConfig(k=3, max_answer_tokens=16), ClosedBookConfig(max_answer_tokens=16)
    print(ask("Who is the mayor of Tarn Hollow?", one_step, llm, retriever, short))
    methods = {"closed_book": (closed_book, alone), "one_step": (one_step, short)}  # corag and ircot, too
    print(run(FOLDER / "world/test.jsonl", methods, llm, retriever, out=FOLDER / "runs", limit=3))


if __name__ == "__main__":
    main()
