"""Ask your own documents, and see where each answer comes from.

    python examples/ask_own_documents.py                              # three small documents, written first
    python examples/ask_own_documents.py FOLDER "your question?"      # yours: text, Markdown, HTML, PDF, Word

The folder becomes an index of passages; IRCoT thinks, searches for what it thought, and thinks on. When some
documents have changed, the next run reads only those. About 2 minutes on two CPU cores, most of it for the
engine to start.
"""

import sys
from pathlib import Path

from corag import IRCoTConfig, ask, build_index, ircot, open_index, open_model

DOCUMENTS = {
    "orchard.md": "# The Glass Orchard\n\nThe Glass Orchard is a novel by Mara Velden. It appeared in 1931.",
    "velden.txt": "Mara Velden was a writer and a clockmaker. She was born in Tarn Hollow.",
    "tarn_hollow.html": "<title>Tarn Hollow</title><p>Tarn Hollow is a town on the river Issel.</p>",
}
QUESTION = "Which river flows through the town where the author of The Glass Orchard was born?"


def main() -> None:
    """Index the documents and ask."""
    folder, question = Path("runs/examples/documents"), QUESTION
    if len(sys.argv) == 3:
        folder, question = Path(sys.argv[1]), sys.argv[2]
    else:
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in DOCUMENTS.items():
            (folder / name).write_text(text)
    index_folder = build_index(folder, out=folder.with_name(f"{folder.name}-index"))
    print(index_folder)  # what was read, and what could not be, with the reason
    config = IRCoTConfig(max_steps=3, max_thought_tokens=40, max_answer_tokens=16)
    with open_model() as model, open_index(index_folder) as index:
        answer = ask(question, ircot, model, index, config)
    print(answer)  # every step, the answer, its sources, what it cost
    for passage in answer.passages:
        print(f"\n{passage.title} ({passage.origin})\n{passage.text}")


if __name__ == "__main__":
    main()
