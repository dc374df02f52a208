"""The record of what the product does: equal when nothing changed, and a changed prompt is noticed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.record.product import record_run
from tests.record.writing import differences, plain, prompt_lines, steady

READER = "Read these.\n{paragraphs}\nQuestion: {query}\nAnswer:"


@pytest.fixture(autouse=True)
def in_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def record(out: Path, reader: str) -> Path:
    """Record two methods of which one has this prompt."""
    assert not record_run(out / "closed_book", "closed_book", {}, count=2)
    assert not record_run(out / "one_step", "one_step", {"qa_prompt": reader}, count=2)
    return out


def test_two_records_are_equal_and_a_changed_prompt_is_named_with_its_file_and_line(tmp_path: Path) -> None:
    first, second, other = (
        record(tmp_path / name, READER.replace("these", word))
        for name, word in (("first", "these"), ("second", "these"), ("other", "those"))
    )
    assert list(differences(first, second, 40)) == []
    lines = list(differences(first, other, 40))
    assert "-Read these." in lines and "+Read those." in lines
    assert {line for line in lines if line.startswith("--- ")} == {
        f"--- before/one_step/{name}" for name in ("prompts.txt", "rows.json", "settings.json")
    }


def test_a_file_that_is_new_or_gone_differs_and_a_long_difference_is_cut(tmp_path: Path) -> None:
    for name, text in (("one", "a\n" * 9), ("other", "")):
        (tmp_path / name).mkdir()
        if text:
            (tmp_path / name / "file.txt").write_text(text)
    gone = list(differences(tmp_path / "one", tmp_path / "other", 4))
    assert gone[0] == "--- before/file.txt" and gone[-1] == "... and 8 lines more of file.txt"
    assert list(differences(tmp_path / "other", tmp_path / "one", 40))[-1] == "+a"


def test_times_and_places_are_left_out() -> None:
    assert plain(f"{Path.cwd()}/a took 1.2 s at 2026-01-02T03:04:05") == "TMP/a took TIME at DATE\n"
    assert steady({"seconds": 3, "steps": [{"started": 1, "k": 2}]}) == {"steps": [{"k": 2}]}


def test_prompts_are_sorted_and_a_shared_beginning_is_written_once() -> None:
    lines = list(prompt_lines([("a\nb\nc\nd\nf", "x"), ("a\nb\nc\nd\ne", "x"), ("a\nb\nc\nd\ne", "x")]))
    assert lines[1:7] == ["---- 2 x x", "a", "b", "c", "d", "e"]
    assert lines[8:] == ["---- 1 x x", "[4 lines as in the prompt above]", "f"]


def test_the_program_compares_a_record_with_what_it_makes_anew(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.record", str(tmp_path / "out"), "--parts", "cases"]
    root = Path(__file__).parents[1]
    subprocess.run(command, cwd=root, check=True)
    (tmp_path / "out/cases/own.docx.auto.txt").write_text("something else\n")
    compared = subprocess.run([*command, "--compare"], cwd=root, check=False, capture_output=True, text=True)
    assert compared.returncode == 1
    assert (
        compared.stdout.startswith("--- before/cases/own.docx.auto.txt\n")
        and compared.stdout.count("---") == 1
    )
