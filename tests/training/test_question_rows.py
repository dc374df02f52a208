"""The recipe that teaches a small model to write the questions of ``corag questions``."""

import json
import subprocess
import sys
from pathlib import Path

import datasets

from training.config import SftConfig
from training.sft import check, main, summarise

PROGRAM = Path(__file__).parents[2] / "scripts/recipes/question_rows.py"
PARAGRAPHS = [
    ("Harbour Song", "Harbour Song is a song by the band Copper Kettle."),
    ("Copper Kettle", "Copper Kettle is a band that was formed in 1974."),
    *((f"Town {number}", f"Town {number} lies on a river.") for number in range(4)),
]


def record(name: str, hops: list[tuple[str, str, int]], question: str) -> dict[str, object]:
    return {
        "id": name, "question": question, "answer": hops[-1][1], "answer_aliases": [], "answerable": True,
        "paragraphs": [
            {"idx": number, "title": title, "paragraph_text": text, "is_supporting": number < 2}
            for number, (title, text) in enumerate(PARAGRAPHS)
        ],
        "question_decomposition": [
            {"id": number, "question": asked, "answer": answer, "paragraph_support_idx": place}
            for number, (asked, answer, place) in enumerate(hops)
        ],
    }  # fmt: skip


def test_hops_are_written_joined_and_read(tmp_path: Path, tiny_model: str) -> None:
    worded = [
        ("Which band plays Harbour Song?", "Copper Kettle", 0),
        ("when was #1 formed", "1974", 1),
    ]
    relation = [("Harbour Song >> performer", "Copper Kettle", 0), ("When was #1 formed?", "1974", 1)]
    joined = "When was the band that plays Harbour Song formed?"
    records = [record("2hop__1", worded, joined), record("2hop__2", relation, joined)]
    file = tmp_path / "musique.json"
    file.write_text(json.dumps(records))
    out = tmp_path / "rows"
    command = [sys.executable, str(PROGRAM), str(out), tiny_model, f"musique:{file}"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.startswith("3 question, 1 composed, 7 one_step: ")

    rows = datasets.load_from_disk(str(out))["train"].to_list()
    told = {task: {row["completion"].strip() for row in rows if row["task"] == task} for task in
            ("question", "composed", "one_step")}  # fmt: skip
    assert told["question"] == {"Which band plays Harbour Song?", "When was Copper Kettle formed?"}
    assert told["composed"] == {joined}
    assert told["one_step"] == {"Copper Kettle", "1974"}
    (composed,) = (row["prompt"] for row in rows if row["task"] == "composed")
    assert composed.endswith(
        "Its answer: Copper Kettle\nSecond question: When was Copper Kettle formed?\n\nOne question:"
    )
    assert {len(row["input_ids"]) for row in rows} != {0}
    config = SftConfig(
        rows=[str(out)], model=tiny_model, out=str(tmp_path / "adapter"), max_steps=1, batch_size=2
    )
    check(config)
    manifest = main(config)
    assert manifest["result"]["steps"] == 1 and "corag ask" in summarise(config, manifest)
