"""The report's Python side: figures that are those of the other commands, traces that hold what a reader
looks for, bad input.
"""

import asyncio
import re
from xml.etree import ElementTree

import pytest

from corag.cli.main import main
from corag.core.runs.folder import TRACES, RunFolder, read_rows
from corag.core.runs.manifest import Manifest
from corag.core.runs.rows import Row, SavedRow
from corag.core.types import Answer, Question
from eval.api.results import report
from eval.report.page import ASSETS, SCRIPTS, STYLES, add_texts, html_page, make_report
from eval.report.traces import Passages, trace
from eval.tables.printing import comparison_cells, condition_lines, further_columns, main_columns
from eval.tables.results import PLAIN_VIEW, TableView, score_view, table_of_runs
from tests.eval.report_runs import EVIL, REFUSAL, Page, World, kilt_report, write
from tests.fakes import WordRetriever

QUESTIONS = 24


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    return World(tmp_path_factory.mktemp("world"), QUESTIONS)


@pytest.fixture(scope="module")
def runs(world, tmp_path_factory):
    out = tmp_path_factory.mktemp("runs")
    skills = {"one_step": 0.3, "ircot": 0.4, "greedy": 0.5, "best_of_4": 0.6, "tree": 0.7}
    return {name: write(out, name, world, skill) for name, skill in skills.items()}


@pytest.fixture(scope="module")
def page(runs, tmp_path_factory):
    out = tmp_path_factory.mktemp("report") / "report.html"
    assert main(["table", *map(str, runs.values()), "--report", str(out)]) == 0
    return Page(out)


def test_the_page_has_the_figures_tests_and_sentences_of_the_terminal(page, runs):
    table = table_of_runs(runs, TableView(baseline="tree"))
    columns = [*(main_columns(table) | further_columns(table)).values()]
    heads, *rows = page.rows("results")
    assert heads == ["run", *(heading for heading, _ in columns)]
    assert rows == [
        [name, *(values[run] for _, values in columns)] for run, name in enumerate(page.run_names)
    ]
    assert page.headlines == table.headlines
    assert page.remarks == [" ".join(each.split()) for each in condition_lines(table)]
    tests = [list(comparison_cells(one, table.recall_at)) for one in table.against]
    assert page.rows("Tests against tree")[1:] == tests and len(tests) == 3 * (len(runs) - 1)


def test_a_chart_has_a_point_for_each_run_and_a_curve_for_each_method(page):
    charts = page.main.findall(".//figure/svg")
    assert len(charts) == 2
    for chart in charts:
        assert [each.get("href") for each in chart.iter("use")] == [f"#marker-{run}" for run in range(5)]
        curves = [each.get("d") for each in chart.iter("path") if each.get("class").startswith("curve")]
        assert sorted(each.count("L") for each in curves) == [0, 0, 2], (
            "greedy, best of 4 and tree are one method"
        )
        assert "NaN" not in ElementTree.tostring(chart).decode()
    assert len(page.main.findall(".//symbol")) == 5


@pytest.mark.parametrize("name", ["one_step", "ircot", "greedy", "best_of_4", "tree"])
def test_traces_hold_every_step_of_every_method(page, runs, name):
    rows = read_rows(runs[name])
    longest = 0
    for question, row in rows.items():
        shown, ids = page.trace(name, question), page.ids
        assert [step["kind"] for step in shown.get("steps", [])] == [step.kind for step in row.steps]
        searches = [step for step in row.steps if step.kind == "search"]
        drawn = [step for step in shown.get("steps", []) if step["kind"] == "search"]
        assert [[ids[number] for number, _ in step["hits"]] for step in drawn] == [
            [hit.passage.id for hit in step.hits] for step in searches
        ]
        tokens = sum(
            step["usage"][1] + step["usage"][2] for step in shown.get("steps", []) if "usage" in step
        )
        assert tokens == row.total_usage.total
        place = page.index["ids"].index(question)
        assert tokens == page.index["rows"][page.run_names.index(name)][place]["tokens"]
        if row.answer:
            assert shown["answer"] == row.text and shown["stopped"] == row.answer.stopped
            longest = max(longest, row.answer.steps)
        else:
            assert shown["error"] == row.error and "answer" not in shown
    assert longest >= (1 if name == "one_step" else 3)


def test_chains_and_states_of_the_tree_keep_scores_and_the_chosen_one(page, runs):
    for name, kinds in (("best_of_4", {"score"}), ("tree", {"value"})):
        for question, row in read_rows(runs[name]).items():
            if row.answer is None:
                continue
            chains = row.further["chains"]
            shown = page.trace(name, question)
            assert shown["chosen"] == chains[row.further["chosen"]]["path"]
            known = [
                {kind: chain[kind] for kind in ("score", "value") if chain[kind] is not None}
                for chain in chains
            ]
            assert [
                {kind: chain[kind] for kind in ("score", "value") if kind in chain}
                for chain in shown["chains"]
            ] == known
            assert any(kinds <= chain.keys() for chain in known) or len(known) == 1


def test_states_taken_over_from_rollouts_bring_their_own_hop(page, runs):
    taken = 0
    for question, row in read_rows(runs["tree"]).items():
        shown = page.trace("tree", question)
        searched = {step.path for step in row.steps if step.kind == "search"}
        for chain in shown.get("chains", ()):
            if "steps" in chain:
                taken += 1
                assert chain["path"] not in searched
                search, answer = chain["steps"]
                assert search["query"] and answer["texts"][0] and search["hits"]
                assert all(number < len(page.ids) for number, _ in search["hits"])
    assert taken > 0


def test_refused_hops_are_told_from_answered_ones(page, runs):
    refused = answered = 0
    for question in read_rows(runs["greedy"]):
        for step in page.trace("greedy", question).get("steps", []):
            if step.get("role") == "sub_answer":
                assert step.get("refused", False) == (step["texts"] == [REFUSAL])
                refused += step.get("refused", False)
                answered += not step.get("refused", False)
    assert refused and answered


def test_gold_passages_are_named_and_found_among_those_collected(page, world):
    found = 0
    for question in world.questions:
        about, ids = page.gold(question.id), page.ids
        assert [ids[number] for number in about["supporting"]] == list(question.supporting)
        assert [hop[:2] for hop in about["decomposition"]] == [
            [hop.question, hop.answer] for hop in question.decomposition
        ]
        collected = page.trace("greedy", question.id).get("collected", [])
        found += any(number in collected for number in about["supporting"])
    assert found > QUESTIONS / 4


def test_gold_pages_are_found_by_any_of_their_passages(tmp_path):
    page = Page(kilt_report(tmp_path))
    about, ids = page.gold("7"), page.ids
    assert about["by_page"] and [ids[number] for number in about["supporting"]] == ["290", "17", "4"]
    assert dict(page.block("passages"))["290"].startswith("About 290-"), "as its passages are called"
    shown = page.trace("found", "7")
    assert [ids[number] for number in shown["gold"]] == ["290-3", "290-5", "17#0"]
    assert [place for _, place in shown["places"]] == [2, 3, 0], "of pages 5, 290 and 17; page 4 was missed"
    failed = page.trace("failed", "7")
    assert [place for _, place in failed["places"]] == [0, 0, 0] and "gold" not in failed
    assert [[row["recall"] for row in rows] for rows in page.index["rows"]] == [[0.5, 1], [0, 0]]
    about = page.gold("8")
    assert "by_page" not in about and [ids[number] for number in about["supporting"]] == ["290-3"]
    shown = page.trace("found", "8")
    assert [(ids[number], place) for number, place in shown["places"]] == [("290-3", 1)]


def test_nothing_in_the_data_can_end_an_element_or_run(page, world):
    assert page.index["texts"][1].startswith(EVIL)
    assert "alert(1)" not in page.text, "texts of questions and passages are packed"
    assert "<" not in page.elements["report"]
    assert page.text.count("<script") == page.text.count("</script>") == len(page.elements) + 1
    assert "default-src 'none'" in page.text and "unsafe" not in page.text.partition("<style>")[0]
    own = "".join((ASSETS / name).read_text() for name in (*SCRIPTS, *STYLES))
    assert not re.search(
        r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\b|new Function|https?://(?!www\.w3\.org)",
        own,
    )
    assert "</script" not in own and "</style" not in own


def test_a_run_may_be_called_like_markup(world, runs, tmp_path):
    strange = tmp_path / "a<" / "script><img src=x onerror=alert(2)>"
    strange.parent.mkdir()
    strange.symlink_to(runs["greedy"])
    out = tmp_path / "report.html"
    assert main(["table", str(strange), "--report", str(out)]) == 0
    page = Page(out)
    assert any(each.endswith("onerror=alert(2)>") or "onerror=alert(2)> (" in each for each in page.remarks)
    assert "<img" not in page.text


def test_the_same_runs_make_the_same_page_but_for_its_date(runs, tmp_path):
    pages = []
    for name in ("a.html", "b.html"):
        assert main(["table", str(runs["tree"]), str(runs["greedy"]), "--report", str(tmp_path / name)]) == 0
        pages.append(re.sub("Made [^.]*", "", (tmp_path / name).read_text()))
    assert pages[0] == pages[1]


def test_questions_that_a_run_lacks_are_left_out_and_counted(runs, tmp_path):
    short = tmp_path / "short"
    short.mkdir()
    (short / "manifest.json").write_bytes((runs["greedy"] / "manifest.json").read_bytes())
    lines = (runs["greedy"] / TRACES).read_bytes().splitlines(keepends=True)
    (short / TRACES).write_bytes(b"".join(lines[:7]) + lines[7][:30])  # the run is going on
    out = tmp_path / "report.html"
    assert main(["table", str(runs["one_step"]), str(short), "--report", str(out)]) == 0
    page = Page(out)
    assert any(
        re.search("^17 of 24 questions are left out: .*short' lacks 17 of", each) for each in page.remarks
    )
    assert len(page.index["ids"]) == 7


def test_failed_questions_and_questions_without_gold_answers(tmp_path, runs):
    manifest = Manifest.read(runs["one_step"])
    with RunFolder(tmp_path / "run", manifest.settings, manifest.last.record) as run:
        run.append(Row(Question("a", "Who?"), Answer("Ada", ("p",), 1, "read"), (), {}, 1.0))
        run.append(Row(Question("b", "When?", ("1",)), Answer("1", (), 1, "read"), (), {}, 1.0))
        run.append(
            Row(Question("c", "Where?", ("x",)), None, (), {}, 1.0, "SearchFailedError: gone\nTraceback <b>")
        )
    assert main(["table", str(tmp_path / "run"), "--report", str(tmp_path / "report.html")]) == 0
    page = Page(tmp_path / "report.html")
    heads, figures = page.rows("results")
    assert figures[heads.index("EM")].startswith("50.0 [") and figures[heads.index("failed")] == "1"
    assert not page.headlines and any(
        "1 of 3 questions have no gold answers" in each for each in page.remarks
    )
    rows = page.index["rows"][0]
    assert [(row["em"], row["failed"]) for row in rows] == [(None, False), (1, False), (0, True)]
    assert page.trace(page.run_names[0], "c")["error"].endswith("Traceback <b>")


def test_shortened_prompts_and_cut_off_replies_are_kept():
    usage = {"calls": 1, "prompt": 5, "generated": 2, "computed_prompt": 3, "computed_generated": 2}
    step = {
        "kind": "generate", "role": "reader", "path": "", "texts": ["a"], "finish_reasons": ["length"],
        "usage": usage, "shortening": {"dropped": [["passage", 2]], "cut_tokens": 7}, "prompt": "P",
        "seconds": 0.5,
    }  # fmt: skip
    record = {
        "question": {"id": "a", "text": "Who?"}, "error": "", "seconds": 0.5, "opened": 1.0, "begun": 1.0,
        "usage": {"reader": usage},
        "answer": None, "steps": [step],
    }  # fmt: skip
    (shown,) = trace(SavedRow.from_json(record), Passages(), "")["steps"]
    assert (shown["cut_off"], shown["dropped"], shown["cut"]) == (1, (("passage", 2),), 7)
    assert shown["prompt"] == "P"
    assert shown["usage"] == [1, 5, 2, 5]


def unfolded(page):
    """The baselines whose tests a page opens with."""
    found = [each for each in page.main.iter("details") if each.get("name") == "baseline"]
    assert len(found) == len(page.run_names)
    return [each.find("summary").text for each in found if each.get("open") is not None]


def test_the_page_opens_with_the_baseline_that_was_asked_for(page, runs, tmp_path):
    out = tmp_path / "report.html"
    command = ["table", *map(str, runs.values()), "--report", str(out)]
    assert unfolded(page) == ["Tests against one_step"]
    assert main([*command, "--baseline", "greedy"]) == 0
    assert unfolded(Page(out)) == ["Tests against greedy"]
    assert unfolded(Page(report(runs, out, baseline="tree"))) == ["Tests against tree"]


def test_texts_come_from_the_index_where_it_has_them(runs, world, tmp_path):
    report = make_report(score_view({"greedy": runs["greedy"]}, PLAIN_VIEW))
    known = dict(list(world.pages.items())[::2])
    report = asyncio.run(add_texts(report, WordRetriever(known.values())))
    out = tmp_path / "report.html"
    out.write_text(html_page(report, "today"), encoding="utf-8")
    page = Page(out)
    assert 0 < report.text_count < len(page.ids)
    size = page.report["texts_per_block"]
    for number, name in enumerate(page.ids):
        found = page.block(f"texts-{number // size}")[number % size]
        assert found == ([known[name].title, known[name].text] if name in known else None)
