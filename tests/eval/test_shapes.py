"""Slices in the shapes of other projects, from index to table, with a script for a model and all else real.

Every shape is made of the same four passages. What the project's own reader shows of a record is written down
here anew, and compared with what ours is shown.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
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
GOLD = ["The Glass Orchard", "Mara Velden", "Tarn Hollow"]


@dataclass(frozen=True)
class Shape:
    """A project's files.

    Attributes:
        corpus: what 'corag index' is given.
        questions: the question file, with the options that it wants.
        texts: what the project's reader shows of each passage.
        sample: options of 'corag sample'.
        recall: whether gold passages can be told in this corpus.
    """

    corpus: Path
    questions: Sequence[object]
    texts: Sequence[str]
    sample: Sequence[str] = ("--sample.chains", "2", "--sample.max_hops", "2")
    recall: bool = True


def write(path: Path, content: bytes | str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def lines(records: Sequence[Mapping[str, Any]]) -> str:
    return "".join(json.dumps(record) + "\n" for record in records)


def corag(folder: Path) -> Shape:
    """corag/multihopqa and corag/kilt-corpus, as Parquet files of a copy; an id is the number of a row."""
    # Some rows bring their title in the text, as the authors' code expects of both kinds.
    rows = [
        {"id": str(n), "title": each.title, "wikipedia_id": str(70 + n),
         "contents": each.contents if n % 2 else each.text}
        for n, each in enumerate(WORLD)
    ]  # fmt: skip
    write(folder / "kilt-corpus/data/train-00000-of-00002.parquet", parquet(rows[:2]))
    write(folder / "kilt-corpus/data/train-00001-of-00002.parquet", parquet(rows[2:]))
    question = {
        "query": QUESTION.text, "query_id": "2hop__1_2", "answers": ["Issel"], "predictions": "Issel",
        "context_doc_ids": ["2", "0", "3"], "subqueries": [asked for asked, _ in CHAIN],
        "subanswers": [said for _, said in CHAIN],
    }  # fmt: skip
    file = write(folder / "multihopqa/musique/train-00000-of-00001.parquet", parquet([question]))

    def shown(row: Mapping[str, str]) -> str:
        return f"{row['title']}\n{row['contents'].removeprefix(row['title'] + chr(10))}".strip()

    return Shape(
        folder / "kilt-corpus",
        [file, "--dataset", "corag"],
        [shown(row) for row in rows],
        ["--sample.source", "given"],
        recall=False,  # nobody says which passages are gold
    )


def wiki18(folder: Path) -> tuple[Path, list[str]]:
    """Search-R1's and FlashRAG's wiki-18: the quoted title is the first line of ``contents``.

    Their readers show title and text as they are; ours leaves the quotation marks out.
    """
    rows = [{"id": str(n), "contents": f'"{each.title}"\n{each.text}'} for n, each in enumerate(WORLD)]
    file = write(folder / "wiki-18.jsonl.gz", gzip.compress(lines(rows).encode()))
    shown = [row["contents"].partition("\n") for row in rows]
    return file, [f"{title.strip(chr(34))}\n{text}" for title, _, text in shown]


FLASHRAG = {
    "id": "dev_0", "question": QUESTION.text, "golden_answers": ["Issel"],
    "metadata": {"type": "bridge", "level": "hard",
                 "supporting_facts": {"title": [*GOLD, GOLD[0]], "sent_id": [0, 0, 0, 1]}},
}  # fmt: skip


def flashrag(folder: Path) -> Shape:
    corpus, texts = wiki18(folder)
    return Shape(corpus, [write(folder / "dev.jsonl", lines([FLASHRAG])), "--dataset", "flashrag"], texts)


def search_r1(folder: Path) -> Shape:
    """PeterJinGo/nq_hotpotqa_train: FlashRAG's records, with what the trainer wants beside it."""
    further = {
        "data_source": "hotpotqa", "ability": "fact-reasoning",
        "prompt": [{"role": "user", "content": f"Answer the given question. {QUESTION.text}"}],
        "reward_model": {"style": "rule", "ground_truth": {"target": ["Issel"]}},
        "extra_info": {"index": 0, "split": "train"},
    }  # fmt: skip
    corpus, texts = wiki18(folder)
    file = write(folder / "train.parquet", parquet([FLASHRAG | further]))
    return Shape(corpus, [file, "--dataset", "flashrag"], texts)


def hipporag(folder: Path) -> Shape:
    """HippoRAG's sample.json and sample_corpus.json; MuSiQue's fields, but no ids."""
    paragraphs = [
        {"title": each.title, "paragraph_text": each.text, "is_supporting": each.title in GOLD}
        for each in WORLD
    ]
    question = {"question": QUESTION.text, "answer": "Issel", "paragraphs": paragraphs}
    records = [{"title": each.title, "text": each.text} for each in WORLD]
    return Shape(
        write(folder / "sample_corpus.json", json.dumps(records, indent=1)),
        [write(folder / "sample.json", json.dumps([question], indent=1)), "--dataset", "musique"],
        [f"{record['title']}\n{record['text']}" for record in records],
    )


def reply(request: Any) -> str:
    """Ask for what the prompt has not asked yet, where a question is wanted; else answer in a word."""
    text = request.prompt.text
    if request.sampling.max_tokens != 64:  # CoRAG's limit of a sub-query
        return "Issel"
    return next((asked for asked, _ in CHAIN if asked not in text), CHAIN[0][0])


def lists(texts: Sequence[str]) -> Sequence[str]:
    return [" ".join(text.split()) for text in texts]


@pytest.mark.parametrize("shape", [corag, flashrag, hipporag, search_r1])
def test_a_slice_goes_from_index_to_table(
    shape: Callable[[Path], Shape],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    files = shape(tmp_path / "files")
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
    command("index", files.corpus, "--out", index)
    store = PassageStore(index)
    assert lists([each.contents for each in store.rows(0, len(store))]) == lists(files.texts)
    store.close()

    options = ["--questions", *files.questions, "--retriever.index", index]
    chains, rows, runs = tmp_path / "chains", tmp_path / "rows", tmp_path / "runs"
    sampled = command("sample", *options, *files.sample, "--out", chains)
    assert (sampled["questions"], sampled["failed"]) == (1, 0)
    command(
        "rows", chains, "--retriever.index", index, "--rows.ratio", 1, "--rows.validation", 0, "--out", rows
    )
    taught = [row["completion"] for row in load_from_disk(str(rows))["train"].to_list()]
    if shape is corag:
        for asked, said in CHAIN:
            assert sum(asked in each for each in taught) == 1, (
                "each hop of the authors' chain, refused or not"
            )
            assert any(said in each for each in taught)

    command("run", *options, "--method", "corag", "--out", runs, "--corag.preset", "released_code")
    prompts = lists(models[-1].prompts)
    shown = [text for text in lists(files.texts) if any(text in prompt for prompt in prompts)]
    assert len(shown) >= 3, "passages are read as the project's own reader shows them"
    if shape is corag:  # the final answer reads the passages of the authors' list, the best of them last
        last = [prompts[-1].find(lists(files.texts)[row]) for row in (3, 0, 2)]
        assert -1 < last[0] < last[1] < last[2]

    tabled = command("table", runs / "corag", "--answer_recall")["runs"]["corag"]
    assert tabled["em"] == 1.0 and tabled["answer_recall"] == 1.0
    assert tabled.get("recall") == (1.0 if files.recall else None)
