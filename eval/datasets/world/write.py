"""Write a world into a folder: corpus, questions of three splits, demonstrations, and last the manifest."""

from __future__ import annotations

import hashlib
import json
import os
import random
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TextIO

from corag.core.errors import DataError
from corag.core.prompting.demonstrations import Demonstration, rebuild
from corag.core.seeds import derive_seed
from corag.core.system.files import write_atomically
from corag.core.types import Passage, Question
from eval.datasets.sets.jsonl import question_record
from eval.datasets.world.questions import WorldQuestion
from eval.datasets.world.world import VERSION, Province, generate

DEMONSTRATIONS = 15  # as in one of IRCoT's sets (appendix G)
CORPUS, DEMONSTRATIONS_FILE, MANIFEST = "corpus.jsonl", "demonstrations.txt", "manifest.json"


@dataclass(frozen=True, slots=True)
class WorldManifest:
    """What a world's folder holds.

    Equal fingerprints mean equal bytes in all its files; a folder with a manifest is complete.
    """

    version: int
    seed: int
    passages: int
    train: int
    dev: int
    test: int
    demonstrations: int
    fingerprint: str
    references: bool = False


def write_world(
    folder: str | Path,
    *,
    seed: int = 0,
    passages: int = 2000,
    train: int = 500,
    dev: int = 100,
    test: int = 200,
    references: bool = False,
    report: Callable[[str], object] = lambda line: None,
) -> WorldManifest:
    """Write ``corpus.jsonl``, ``{train,dev,test}.jsonl``, ``demonstrations.txt`` and ``manifest.json``.

    Passages are lines ``{"id", "title", "text"}``; questions are lines ``{"id", "question", "answers",
    "supporting", "type", "hops", "decomposition": [{"question", "answer", "passage_id"}]}``. Demonstrations
    are IRCoT's (appendix G of the paper): the first train questions with their passages, one or two
    distractors and a complete chain of thought. With ``references`` pages end in "See also ...". An older
    world in the folder is replaced. Raises :class:`DataError` for impossible sizes (see
    :func:`eval.datasets.world.world.generate`) and when the folder cannot be written.
    """
    folder = Path(folder)
    provinces = generate(seed=seed, passages=passages, train=train, dev=dev, test=test, references=references)
    demonstrations: list[Demonstration] = []
    passage_count, step = 0, max(1, passages // 10)
    next_report = step
    digest = hashlib.blake2b(digest_size=8)
    with _files(folder, [CORPUS, "train.jsonl", "dev.jsonl", "test.jsonl"]) as files:

        def write(name: str, record: dict[str, object]) -> None:
            line = json.dumps(record, ensure_ascii=False) + "\n"
            files[name].write(line)
            digest.update(f"{name}\t{line}".encode())

        for province in provinces:
            for passage in province.passages:
                write(CORPUS, {"id": passage.id, "title": passage.title, "text": passage.text})
            for question in province.questions:
                write(f"{province.split}.jsonl", question_record(question))
            if province.split == "train":
                demonstrations += _demonstrations(province, seed, DEMONSTRATIONS - len(demonstrations))
            passage_count += len(province.passages)
            if passage_count >= next_report:
                next_report += step
                report(f"{passage_count:,} of {passages:,} passages written")
    text = rebuild(tuple(demonstrations))
    digest.update(text.encode())
    write_atomically(folder / DEMONSTRATIONS_FILE, text)
    manifest = WorldManifest(
        VERSION, seed, passages, train, dev, test, len(demonstrations), digest.hexdigest(), references
    )
    write_atomically(folder / MANIFEST, json.dumps(asdict(manifest), indent=2) + "\n")
    report(
        f"world {manifest.fingerprint}: {passages:,} passages, {train:,} train, {dev:,} dev, {test:,} test "
        f"questions in {folder}"
    )
    return manifest


def _demonstrations(province: Province, seed: int, limit: int) -> Iterator[Demonstration]:
    for draft, question in list(zip(province.drafts, province.questions, strict=True))[:limit]:
        rng = random.Random(derive_seed(seed, "demonstration", question.id))
        gold = [passage for passage in province.passages if passage.id in question.supporting]
        others = [passage for passage in province.passages if passage.id not in question.supporting]
        context = gold + rng.sample(others, rng.randint(1, 2))
        rng.shuffle(context)
        yield demonstration(question, context, draft)


def demonstration(question: Question, passages: list[Passage], draft: WorldQuestion) -> Demonstration:
    """Return a question with its passages and chain of thought as one of IRCoT's demonstrations."""
    context = "".join(f"Wikipedia Title: {passage.title}\n{passage.text}\n\n" for passage in passages)
    comment = f"# METADATA: {json.dumps({'qid': question.id})}"
    return Demonstration(question.id, context, question.text, draft.thoughts, comment)


@contextmanager
def _files(folder: Path, names: list[str]) -> Iterator[Mapping[str, TextIO]]:
    """Open files under temporary names; they get their real ones at the end, none if anything fails."""
    temporary = {name: folder / f"{name}.{os.getpid()}.tmp" for name in names}
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / MANIFEST).unlink(missing_ok=True)  # until it is back, the folder does not count as whole
        with ExitStack() as stack:
            for path in temporary.values():
                stack.callback(path.unlink, missing_ok=True)
            files = {
                name: stack.enter_context(path.open("w", encoding="utf-8"))
                for name, path in temporary.items()
            }
            yield files
            for name, file in files.items():
                file.flush()
                os.fsync(file.fileno())
                temporary[name].replace(folder / name)
    except OSError as error:
        problem = f"cannot write a world into '{folder}': {error.strerror}."
        raise DataError(f"{problem} Free some space or choose another folder.") from error
