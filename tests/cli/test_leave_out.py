"""What a recipe leaves out of training questions: all that stands in the files that are measured on."""

import json
import subprocess
import sys
from pathlib import Path

PROGRAM = Path(__file__).parents[2] / "scripts/recipes/leave_out.py"


def question(name: str, *titles: str) -> dict[str, object]:
    """A question of two hops in MuSiQue's format, whose first two paragraphs are gold."""
    paragraphs = [
        {"idx": at, "title": title, "paragraph_text": f"{title} is {at}.", "is_supporting": at < 2}
        for at, title in enumerate(titles)
    ]
    hops = [{"id": at, "question": f"What is {titles[at]}?", "answer": str(at), "paragraph_support_idx": at}
            for at in (0, 1)]  # fmt: skip
    return {"id": name, "question": f"{name}?", "answer": "1", "answer_aliases": [], "answerable": True,
            "paragraphs": paragraphs, "question_decomposition": hops}  # fmt: skip


def test_questions_and_paragraphs_of_held_out_files_are_left_out(tmp_path: Path) -> None:
    train = [
        question("kept", "Ada", "Bern", "Cork"),
        question("gold is held", "Dorn", "Ely"),
        question("asked", "Fulda", "Graz"),
    ]
    held = [question("asked", "dorn!", "Hull", "CORK")]
    for name, rows in ("train", train), ("dev", held):
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    words = [tmp_path / "out", "musique", tmp_path / "train.jsonl", f"musique:{tmp_path / 'dev.jsonl'}"]
    done = subprocess.run([sys.executable, PROGRAM, *map(str, words)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr

    def names(file: str, field: str) -> list[str]:
        return [json.loads(line)[field] for line in (tmp_path / "out" / file).read_text().splitlines()]

    assert names("questions.jsonl", "id") == ["kept"] and names("left.jsonl", "id") == [
        "gold is held",
        "asked",
    ]
    assert names("corpus.jsonl", "title") == ["Ada", "Bern", "Ely", "Fulda", "Graz"]
    assert "1 questions of 3, 2 left out; 5 paragraphs of 7" in done.stdout


def test_facts_of_abstracts_become_comparisons(tmp_path: Path) -> None:
    texts = "Mara (born 3 May 1950) was a Dutch painter.", "Otto (born 7 June 1931) was a German painter.", *(
        f"{title} is a 1950 film directed by Ida Holm." for title in ("Red Lake", "Iron Gate")
    )  # fmt: skip
    rows = (
        {"id": text, "title": text.split(" (")[0].split(" is")[0], "text": text + " So" * 9} for text in texts
    )
    (tmp_path / "abstracts").write_text("\n".join(map(json.dumps, rows)))
    words = sys.executable, PROGRAM, tmp_path, "comparisons", tmp_path / "abstracts"
    subprocess.run(words, check=True, capture_output=True)
    made = map(json.loads, (tmp_path / "questions.jsonl").read_text().splitlines())
    older = [each for each in made if each["question"].startswith("Who is older")]
    assert {each["answers"][0] for each in older} == {"Otto"}
    assert {each["decomposition"][0]["answer"] for each in older} == {"3 May 1950", "7 June 1931"}
