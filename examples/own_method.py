"""A method of your own is a plain async function: pass it to ask() and run() like any other.

    python examples/own_method.py

This one is HyDE (Gao et al., ACL 2023): imagine a passage that answers, search with it, read what was found.
Nothing is registered; tokens, steps, failures and resuming are seen to. docs/guides/your_own_method.md says
how to give it options. About 2 minutes on two CPU cores for 20 questions (QUESTIONS=100 for more).
"""

import os
from pathlib import Path

from corag import (
    Answer, OneStepConfig, Question, Tools, build_index, one_step, open_index, open_model, run, write_world,
)  # fmt: skip
from corag.core.prompting.render import load_layout, render_passages
from corag.core.language.text import extract_answer

FOLDER = Path("runs/examples/own_method")
IMAGINE = load_layout("Write two sentences of an encyclopedia that answer this.\nQuestion: {query}")
READ = load_layout("{passages}Question: {query}\nReply with the answer alone.")


async def hyde(question: Question, tools: Tools) -> Answer:
    """Search with an imagined passage, then read."""
    prompt = IMAGINE.render({"query": question.text})
    draft = await tools.generate(prompt, role="imagine", max_tokens=60)
    hits = await tools.search(f"{question.text} {draft.text}", k=5)
    passages = [hit.passage for hit in hits]
    paragraphs = render_passages(
        passages, READ, 200, goes_first="last"
    )  # a long prompt loses its last passages
    reply = await tools.generate(
        READ.render({"passages": paragraphs, "query": question.text}), role="read", max_tokens=16
    )
    return Answer(extract_answer(reply.text), tuple(passage.id for passage in passages), steps=1)


def main() -> None:
    """Compare it with searching for the question."""
    write_world(FOLDER / "world", passages=1000, train=20, dev=20, test=100)
    index_folder = build_index(FOLDER / "world/corpus.jsonl", out=FOLDER / "index")
    with open_model() as model, open_index(index_folder) as index:
        limit = int(os.environ.get("QUESTIONS", "20"))
        methods = {"one_step": (one_step, OneStepConfig(k=5, max_answer_tokens=16)), "hyde": hyde}
        print(run(FOLDER / "world/test.jsonl", methods, model, index, out=FOLDER, limit=limit))


if __name__ == "__main__":
    main()
