"""CoRAG's own data as its authors share it, from index to table, with a script for a model and all else real.

What the authors' reader shows of a record is written down here anew, and compared with what ours is shown.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from datasets import load_from_disk

from corag.cli.main import main
from retrieval.index.store import PassageStore
from retrieval.search.pipeline import open_retriever
from tests.fakes import ScriptedGenerator
from tests.hub import parquet
from tests.story import QUESTION, WORLD

CHAIN = [
    ("Who wrote The Glass Orchard?", "Mara Velden"),
    ("Where was Mara Velden born?", "No relevant information found"),
    ("Which river flows by Tarn Hollow?", "Issel"),
]


def write(path: Path, records: Sequence[Mapping[str, Any]]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(parquet(records))
    return path


def shown(row: Mapping[str, str]) -> str:
    """What the authors' reader shows of a passage."""
    return f"{row['title']}\n{row['contents'].removeprefix(row['title'] + chr(10))}".strip()


def reply(request: Any) -> str:
    """Ask for what the prompt has not asked yet, where a question is wanted; else answer in a word."""
    text = request.prompt.text
    if request.sampling.max_tokens != 64:  # CoRAG's limit of a sub-query
        return "Issel"
    return next((asked for asked, _ in CHAIN if asked not in text), CHAIN[0][0])


def lists(texts: Sequence[str]) -> Sequence[str]:
    return [" ".join(text.split()) for text in texts]


def test_a_slice_goes_from_index_to_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """corag/multihopqa and corag/kilt-corpus, as Parquet files of a copy; an id is the number of a row."""
    # Some rows bring their title in the text, as the authors' code expects of both kinds.
    rows = [
        {"id": str(n), "title": each.title, "wikipedia_id": str(70 + n),
         "contents": each.contents if n % 2 else each.text}
        for n, each in enumerate(WORLD)
    ]  # fmt: skip
    corpus, texts = tmp_path / "kilt-corpus", lists([shown(row) for row in rows])
    write(corpus / "data/train-00000-of-00002.parquet", rows[:2])
    write(corpus / "data/train-00001-of-00002.parquet", rows[2:])
    question = {
        "query": QUESTION.text, "query_id": "2hop__1_2", "answers": ["Issel"], "predictions": "Issel",
        "context_doc_ids": ["2", "0", "3"], "subqueries": [asked for asked, _ in CHAIN],
        "subanswers": [said for _, said in CHAIN],
    }  # fmt: skip
    file = write(tmp_path / "multihopqa/musique/train-00000-of-00001.parquet", [question])
    models: list[ScriptedGenerator] = []

    @asynccontextmanager
    async def scripted(setup: Any) -> Any:
        models.append(ScriptedGenerator(reply))
        retriever = await open_retriever(setup.retriever)
        yield models[-1], retriever
        await retriever.close()

    monkeypatch.setattr("eval.experiment.open_executor.open_backends", scripted)

    def command(*words: object) -> dict[str, Any]:
        capsys.readouterr()
        status = main([*map(str, words), "--json"])
        printed = capsys.readouterr()
        assert status == 0, printed.err
        return json.loads(printed.out.splitlines()[-1])  # type: ignore[no-any-return]

    index = tmp_path / "bm25"
    command("index", corpus, "--out", index)
    store = PassageStore(index)
    assert lists([each.contents for each in store.rows(0, len(store))]) == texts
    store.close()

    options = ["--questions", file, "--dataset", "corag", "--retriever.index", index]
    chains, taught_rows, runs = tmp_path / "chains", tmp_path / "rows", tmp_path / "runs"
    sampled = command("sample", *options, "--sample.source", "given", "--out", chains)
    assert (sampled["questions"], sampled["failed"]) == (1, 0)
    all_of_them = ["--rows.ratio", 1, "--rows.validation", 0]
    command("rows", chains, "--retriever.index", index, *all_of_them, "--out", taught_rows)
    taught = [row["completion"] for row in load_from_disk(str(taught_rows))["train"].to_list()]
    for asked, said in CHAIN:
        assert sum(asked in each for each in taught) == 1, "each hop of the authors' chain, refused or not"
        assert any(said in each for each in taught)

    command("run", *options, "--method", "corag", "--out", runs, "--corag.preset", "released_code")
    prompts = lists(models[-1].prompts)
    read = [text for text in texts if any(text in prompt for prompt in prompts)]
    assert len(read) >= 3, "passages are read as the authors' reader shows them"
    # The final answer reads the passages of the authors' list, the best of them last.
    last = [prompts[-1].find(texts[row]) for row in (3, 0, 2)]
    assert -1 < last[0] < last[1] < last[2]

    tabled = command("table", runs / "corag", "--answer_recall")["runs"]["corag"]
    assert tabled["em"] == 1.0 and tabled["answer_recall"] == 1.0
    assert tabled.get("recall") is None, "nobody says which passages are gold"
