"""What 'corag table' says beside the figures: tests against a baseline, means over seeds, conditions."""

import csv
import io
import json
import re
import shutil
import subprocess
from dataclasses import replace

import pytest

from corag.cli.main import main
from corag.core.errors import ConfigError
from corag.core.runs.manifest import SERVICE_SOURCE, Manifest
from corag.core.types import Passage, Question
from eval.api.results import Results
from eval.report.page import make_report
from eval.sweeps.plots import draw_figure
from eval.tables.means import find_points
from eval.tables.results import PLAIN_VIEW, TableView, score_view, table_of_runs
from eval.tables.runs import Runs
from retrieval.index.manifest import IndexSettings, hash_corpus, write_manifest
from retrieval.index.store import storing
from tests.eval.runs import QUESTIONS, make_run, row, run_of, searched
from tests.messages import raises_message


def table(capsys, *argv):
    """Run the command and return what it printed, lines of white space squeezed, and its line of JSON."""
    assert main(["table", *map(str, argv), "--json"]) == 0
    printed = capsys.readouterr().out
    return re.sub(r"[ \n]+", " ", printed), json.loads(printed.splitlines()[-1])


def test_a_baseline_adds_paired_tests_corrected_over_the_table(tmp_path, capsys):
    base = run_of(tmp_path / "base", range(4), {"seed": 1})
    better = run_of(tmp_path / "better", range(16), {"seed": 2})
    same = run_of(tmp_path / "same", range(4), {"seed": 3})
    printed, record = table(capsys, base, better, same, "--baseline", "base")
    against = {(one["run"], one["measure"]): one for one in record["against"]}
    assert set(against) == {
        (run, measure) for run in ("better", "same") for measure in ("em", "f1", "recall")
    }
    em = against["better", "em"]
    assert (em["difference"], em["n"]) == (0.5, 24) and em["difference_interval"][0] > 0.2
    assert em["p_value"] < 0.001 and em["p_value"] * 3 <= em["p_value_holm"] <= em["p_value"] * 6 + 1e-4
    assert 0.2 < em["detectable"] < 0.4
    assert (against["same", "em"]["p_value_holm"], against["same", "em"]["detectable"]) == (1, None)
    assert "minus base" in printed and "Holm over 6 tests" in printed and "80% power" in printed
    _, by_folder = table(capsys, base, better, "--baseline", base, "--measures", "em")
    assert [one["measure"] for one in by_folder["against"]] == ["em"]
    (only,) = by_folder["against"]
    assert only["p_value_holm"] == only["p_value"], "one test needs no correction"


def test_a_table_says_that_a_method_did_not_search(tmp_path, capsys):
    """Its answers may be right by luck, and its line may look like the best."""
    usual = run_of(tmp_path / "usual", range(4))
    rows = [replace(row(each, "Town 1"), steps=()) for each in QUESTIONS]
    idle = make_run(tmp_path / "idle", rows, {"seed": 1})
    printed, _ = table(capsys, usual, idle)
    assert "idle: it searched not once." in printed
    assert "usual: it searched" not in printed


def test_a_table_tells_the_seconds_of_a_question(tmp_path, capsys):
    slow = [replace(row(each, "x"), seconds=1.0 + 2 * n) for n, each in enumerate(QUESTIONS)]
    run = make_run(tmp_path / "run", slow)
    other = run_of(tmp_path / "other", range(4), {"seed": 1})
    printed, record = table(capsys, run, other)
    assert "s p50/p95" in printed and " 24.0/44.7 " in printed
    assert (record["runs"]["run"]["seconds_p50"], record["runs"]["run"]["seconds_p95"]) == (24.0, 44.7)
    widest = max(map(len, str(Results({"run": run, "other": other}).table()).splitlines()[:6]))
    assert widest <= 160, "figures are not cut where there is no terminal"


def test_a_table_says_what_it_leaves_out_and_how_many_questions_a_measure_is_of(tmp_path, capsys):
    whole = run_of(tmp_path / "whole", range(24))
    part = make_run(tmp_path / "part", [row(each, "x", ["p0"]) for each in QUESTIONS[:9]], {"seed": 1})
    printed, record = table(capsys, whole, part)
    assert (
        "15 of 24 questions are left out: 'part' lacks 15 of them." in printed
        and record["runs"]["whole"]["n"] == 9
    )
    assert "left out" not in table(capsys, whole)[0]
    few = [replace(each, supporting=each.supporting if n < 2 else ()) for n, each in enumerate(QUESTIONS)]
    printed, record = table(capsys, make_run(tmp_path / "few", [row(each, "x", ["p0"]) for each in few]))
    assert "few: recall is of 2 of 24 questions" in printed
    assert record["runs"]["few"]["measured_on_fewer"] == {"recall": 2}
    empty = make_run(tmp_path / "empty", [], {"seed": 3})
    assert main(["table", str(whole), str(empty)]) == 2
    assert "the run 'empty' has no finished question yet" in capsys.readouterr().err


def test_a_table_of_some_questions_only(tmp_path, capsys):
    asked = [
        replace(each, kind="bridge" if n % 2 else "comparison", hops=1 + n % 3)
        for n, each in enumerate(QUESTIONS)
    ]
    rows = [row(each, f"Town {n}" if n % 2 else "Nowhere", [f"p{n}"]) for n, each in enumerate(asked)]
    run = make_run(tmp_path / "run", rows, {})
    base = make_run(tmp_path / "base", [row(each, "Nowhere", [f"p{n}"]) for n, each in enumerate(asked)], {})
    record = table(capsys, run, base, "--kinds", "bridge", "--baseline", "base")[1]
    assert (record["runs"]["run"]["n"], record["runs"]["run"]["em"]) == (12, 1)
    assert next(one for one in record["against"] if one["measure"] == "em")["n"] == 12
    assert table(capsys, run, "--kinds", "bridge,comparison", "--min_hops", 2)[1]["runs"]["run"]["n"] == 16
    for options, words in (
        (["--kinds", "bridges"], "no question is of the type 'bridges': did you mean 'bridge'"),
        (["--min_hops", "4"], "no question has 4 hops or more"),
    ):
        assert main(["table", str(run), *options]) == 2
        assert words in capsys.readouterr().err


def test_mean_and_deviation_over_seeds(tmp_path, capsys):
    runs = [run_of(tmp_path / f"seed{n}", range(6 + 6 * n), {"seed": n}) for n in range(3)]
    other = run_of(tmp_path / "other", range(12), {"seed": 0, "method": "ircot"})
    printed, record = table(capsys, *runs, other, "--over", "seeds")
    means = record["means"]
    assert set(means) == {"seed0", "other"}
    low, high = means["seed0"]["em"].pop("interval")
    assert means["seed0"]["em"] == {"mean": 0.5, "deviation": 0.25, "runs": 3}
    assert low < 0.25 + 0.05 and high > 0.75 - 0.05, "the runs scatter more than the questions of one"
    assert means["seed0"]["tokens"] == {"mean": 12.0, "deviation": 0.0, "interval": None, "runs": 3}
    assert means["other"]["em"] == {"mean": 0.5, "deviation": None, "interval": None, "runs": 1}
    assert "50.0 ± 25.0" in printed and "Mean ± standard deviation" in printed


def test_mean_and_deviation_over_demonstrations(tmp_path, capsys):
    sets = [
        {
            "options": {"k": 5, "demonstrations": f"set{n}.txt", "demonstration_ids": [str(n)]},
            "demonstrations": {f"set{n}.txt": f"hash{n}"},
        }
        for n in range(2)
    ]
    runs = [run_of(tmp_path / f"set{n}", range(6 + 12 * n), settings) for n, settings in enumerate(sets)]
    printed, record = table(capsys, *runs, "--over", "demonstrations")
    assert record["means"]["set0"]["em"]["mean"] == 0.5 and record["means"]["set0"]["em"]["runs"] == 2
    for n in range(2):
        which = f"demonstrations: set{n}.txt (hash{n}), 1 of them chosen by id"
        assert which in printed and which in record["conditions"]["own"][f"set{n}"]
    assert main(["table", *map(str, runs), "--over", "seeds"]) == 2
    assert "differ in nothing but their seeds" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--baseline", "bas"], "no run 'bas' in the table to be the baseline: did you mean 'base'"),
        (["--answer_recall"], "indexes/none is neither the folder of an index"),
    ],
)
def test_wrong_options_are_sentences(tmp_path, capsys, options, message):
    runs = [run_of(tmp_path / name, range(3), {"seed": seed}) for seed, name in enumerate(("base", "other"))]
    assert main(["table", *map(str, runs), *options]) == 2
    assert message in capsys.readouterr().err


def test_gold_answers_are_those_of_the_first_run_in_figures_and_tests_alike(tmp_path, capsys):
    aliased = [
        row(Question("1", "Who?", answers), "Christiania") for answers in (("Oslo", "Christiania"), ("Oslo",))
    ]
    runs = [
        make_run(tmp_path / name, [one], {"seed": n})
        for n, (name, one) in enumerate(zip("ab", aliased, strict=True))
    ]
    printed, record = table(capsys, *runs, "--baseline", "a")
    assert [record["runs"][name]["em"] for name in "ab"] == [1, 1]
    assert record["against"][0]["difference"] == 0
    said = (
        "Stored gold answers differ: '{}' keeps others than '{}' for 1 of 1 questions. "
        "All runs are scored by those of '{}'."
    )
    assert said.format("b", "a", "a") in printed
    printed, record = table(capsys, *runs[::-1], "--baseline", "a")
    assert record["against"][0]["difference"] == 0, "one gold answer for both"
    assert said.format("a", "b", "b") in printed
    assert "gold answers differ" not in table(capsys, runs[0])[0]


def test_a_run_that_went_on_with_another_file_of_aliases_says_so(tmp_path, capsys):
    for number, aliases in enumerate(("", "0123456789abcdef")):
        run = make_run(tmp_path / "run", [row(QUESTIONS[number], "x")], aliases=aliases)
    assert "differ: the starts of 'run' had different aliases." in table(capsys, run)[0]
    same = [make_run(tmp_path / "same", [row(question, "x")], aliases="") for question in QUESTIONS[:2]]
    assert "gold answers differ" not in table(capsys, same[0])[0]


def test_a_baseline_may_be_named_by_the_end_of_its_path(tmp_path, capsys):
    runs = [
        run_of(tmp_path / name, range(3), {"seed": n}) for n, name in enumerate(("a/one", "b/one", "b/two"))
    ]
    assert table(capsys, *runs, "--baseline", "two", "--measures", "em")[1]["baseline"] == "b/two"
    assert table(capsys, *runs, "--baseline", "a/one", "--measures", "em")[1]["baseline"] == "a/one"
    assert main(["table", *map(str, runs), "--baseline", "one"]) == 2
    assert "may be a/one or b/one" in capsys.readouterr().err


@pytest.fixture
def index(tmp_path):
    """The folder of an index of three passages, without the index itself: its manifest and the passages'
    texts.
    """
    corpus = tmp_path / "mine.jsonl"
    corpus.write_text(
        "".join(
            json.dumps({"id": f"p{n}", "title": "T", "text": f"In Town {n}, far off."}) + "\n"
            for n in range(24)
        )
    )
    folder = tmp_path / "bm25"
    folder.mkdir()
    passages = [Passage(f"p{n}", "T", f"In Town {n}, far off.") for n in range(24)]
    assert len(list(storing([*passages, Passage("other", "T", "No town.")], folder))) == 25
    write_manifest(folder, IndexSettings("bm25", hash_corpus([corpus])), 25, ())
    return str(folder)


def test_answers_are_looked_for_in_the_texts_that_lie_beside_an_index(tmp_path, capsys, index):
    retriever = {"index": [index], "url": []}
    half = run_of(tmp_path / "half", range(3), found=lambda n: n < 12, retriever=retriever)
    silent = run_of(tmp_path / "silent", range(3), {"retriever": "", "seed": 1})
    printed, record = table(capsys, half, silent, "--answer_recall")
    assert record["runs"]["half"]["answer_recall"] == record["runs"]["half"]["recall"] == 0.5
    assert "answer_recall" not in record["runs"]["silent"] and "answer recall" in printed
    other = run_of(tmp_path / "other", range(3), {"seed": 2}, found=lambda n: n < 6, retriever=retriever)
    tested = table(
        capsys, half, other, "--answer_recall", "--baseline", "half", "--measures", "answer_recall"
    )[1]
    assert [(one["measure"], one["difference"]) for one in tested["against"]] == [("answer_recall", -0.25)]
    twice = make_run(tmp_path / "twice", [row(QUESTIONS[1], "x", ["p0", "p0", "p1"])], retriever=retriever)
    found = table(capsys, twice, "--answer_recall", "--recall_at", 2)[1]["runs"]["twice"]
    assert (found["answer_recall"], found["recall"]) == (1, 1), "a passage collected twice takes one place"
    stray = make_run(tmp_path / "stray", [row(QUESTIONS[0], "x", ["p99"])], retriever=retriever)
    assert main(["table", str(stray), "--answer_recall"]) == 2
    assert "they have no passage 'p99'" in capsys.readouterr().err


def test_a_table_names_all_its_conditions(tmp_path, capsys, index):
    retriever = {"index": [index], "url": []}
    first = run_of(tmp_path / "first", range(3), retriever=retriever, corpus="mine.jsonl (25 passages)")
    printed, _ = table(capsys, first)
    for part in (
        "Scorer: SQuAD-style", "recall@5", "Questions: q.jsonl (jsonl).", "Model: model (scripted).",
        f"Retriever: {index} (words).", "Corpus: mine.jsonl (25 passages).",
        "prompts: layout v1 0123456789abcdef",
    ):  # fmt: skip
        assert part in printed
    told = run_of(
        tmp_path / "told", range(3), {"retriever": "other", "seed": 2}, corpus="wiki.jsonl (9 passages)"
    )
    printed, _ = table(capsys, first, told)
    assert "corpus: mine.jsonl (25 passages)" in printed and "corpus: wiki.jsonl (9 passages)" in printed
    assert "retriever: indexes/none (other)" in printed and "Model: model (scripted)." in printed
    silent = run_of(tmp_path / "silent", range(3), {"retriever": ""})
    printed, _ = table(capsys, silent)
    assert (
        "Retriever: none (no method searches)." in printed and "Corpus: none (no method searches)." in printed
    )


def test_questions_without_gold_answers_are_said_to_be_unscored(tmp_path, capsys):
    hidden = [row(Question(f"h{n}", "Where?", (), ("p1",)), "x", ["p1"]) for n in range(3)]
    run = make_run(tmp_path / "run", [*hidden, row(QUESTIONS[0], "Town 0", ["p0"])])
    printed, record = table(capsys, run)
    assert (
        record["runs"]["run"]["em"],
        record["runs"]["run"]["recall"],
        record["runs"]["run"]["unscored"],
    ) == (1, 1, 3)
    assert "3 of 4 questions have no gold answers, so EM and F1 leave them out" in printed
    twins = [make_run(tmp_path / name, hidden) for name in ("one", "two")]
    printed, record = table(capsys, *twins, "--baseline", "one", "--disagreements", 3)
    assert [one["measure"] for one in record["against"]] == ["recall"], "which can still be compared"
    assert "disagree on" not in printed and "disagreements" not in record


def test_measures_by_page_say_what_they_are_read_from(tmp_path, capsys):
    fever = Question("7", "Ada was born in Orvale.", ("SUPPORTS",), ("290",), pages=(("290",),))
    rows = [row(fever, "SUPPORTS", ["290-4"])]
    note = "Pages are read from passage ids: right only if these begin with the wikipedia_id"
    runs = {
        form: make_run(tmp_path / form, rows, retriever=searched(tmp_path / f"{form}-bm25", form))
        for form in ("kilt", "jsonl")
    }
    printed, record = table(capsys, runs["kilt"])
    assert record["runs"]["kilt"]["r_precision"] == 1 and note not in printed
    assert note in table(capsys, runs["jsonl"])[0]
    assert note in table(capsys, make_run(tmp_path / "gone", rows))[0], "an index that is not here may be any"
    silent = make_run(tmp_path / "silent", [row(fever, "SUPPORTS")], {"retriever": ""})
    assert note not in table(capsys, silent)[0]
    assert note not in table(capsys, run_of(tmp_path / "other", range(3)))[0], "these questions have no pages"


def test_a_run_is_named_once_however_its_path_is_written(tmp_path, capsys):
    run = run_of(tmp_path / "run", range(3))
    for again in (f"{run}/", str(tmp_path / "x" / ".." / "run")):
        assert main(["table", str(run), again]) == 2
        assert "given twice" in capsys.readouterr().err


def test_a_run_keeps_its_sweeps_name_or_is_given_one(tmp_path, capsys):
    swept = run_of(tmp_path / "corag-best-of-4", range(5), name="corag best of 4")
    plain = run_of(tmp_path / "plain-seed=1", range(3), {"seed": 1})
    for given, name in ((plain, "plain-seed=1"), (f"CoRAG (greedy)={plain}", "CoRAG (greedy)")):
        record = table(capsys, swept, given, "--baseline", plain)[1]
        assert (list(record["runs"]), record["baseline"]) == (["corag best of 4", name], name)


def test_new_runs_write_down_their_corpus(tmp_path, index):
    from eval.datasets.corpora import describe_corpora

    assert describe_corpora([index, index, str(tmp_path / "gone")]) == "mine.jsonl (25 passages)"
    assert describe_corpora(["a-prebuilt-index"]) == ""
    run = make_run(tmp_path / "run", [row(QUESTIONS[0], "x")], corpus=describe_corpora([index]))
    assert Manifest.read(run).last.corpus == "mine.jsonl (25 passages)"


def latex_rows(text):
    """The cells of the rows of a table by their first, without the commands that make them bold or small."""
    body = text[text.index("\\midrule") : text.index("\\bottomrule")]
    plain = re.sub(r"\\(bfseries|scriptsize|midrule|,) ?|[{}$^]", "", body)
    rows = {}
    for line in plain.splitlines():
        cells = [re.sub(r"\\([%&_])", r"\1", cell) for cell in re.split(r"(?<!\\)&", line)]
        name, *figures = (cell.strip(" \\") for cell in cells)
        rows |= {name: figures} if figures else {}
    return rows


def test_a_table_for_a_paper_has_the_figures_of_json(tmp_path, capsys):
    runs = [
        run_of(tmp_path / name, range(right), {"seed": right}, found=lambda n: n % 2)
        for name, right in (("one_step", 4), ("ir & cot", 19), ("corag_50%", 21))
    ]
    options = [*map(str, runs), "--baseline", "one_step", "--measures", "em,f1,recall"]
    _, record = table(capsys, *options)
    assert main(["table", *options, "--to", "latex"]) == 0
    text = capsys.readouterr().out
    assert "\\usepackage{booktabs,siunitx}" in text and "\\caption{EM, F1, recall@5 in percent" in text
    assert "% Model: model (scripted)." in text and "corag\\_50\\%" in text and "ir \\& cot" in text
    rows = latex_rows(text)
    against = {(one["run"], one["measure"]): one for one in record["against"]}
    for name, figures in record["runs"].items():
        *cells, tokens = rows[name]
        assert float(tokens) == round(figures["tokens_per_question"])
        for number, measure in enumerate(("em", "f1", "recall")):
            mean, interval, difference, p = cells[4 * number : 4 * number + 4]
            assert float(mean) == pytest.approx(100 * figures[measure], abs=0.06)
            low, high = map(float, interval.removeprefix("approx").strip("[]").split(", "))
            ends = [100 * end for end in figures[f"{measure}_interval"]]
            assert [low, high] == pytest.approx(ends, abs=0.06)
            test = against.get((name, measure))
            assert (difference == "--") == (p == "--") == (test is None)
            if test:
                assert float(difference) == pytest.approx(100 * test["difference"], abs=0.06)
                assert p == ("<0.001" if test["p_value_holm"] < 0.001 else f"{test['p_value_holm']:.3f}")
    assert text.count("\\bfseries") == 2, "the best EM and F1, but no recall, in which all are alike"
    assert sum("\\approx" in line for line in text.splitlines() if line.startswith("    {}ir")) == 1
    compile_latex(text, tmp_path)


def test_one_measure_fits_a_page_with_the_interval_of_the_difference(tmp_path, capsys):
    runs = [
        run_of(tmp_path / name, range(right), {"seed": right})
        for name, right in (("one_step", 4), ("ircot", 21))
    ]
    compared = Results({each.name: each for each in runs}).compare("one_step", measures=["EM"])
    (test,) = compared.to_json()["against"]
    assert test["measure"] == "em", "by the heading of the table"
    assert "Holm's rule over 1 test," in str(compared), "as below the table"
    latex = compared.to_latex()
    mean, _, difference, between, p, _ = latex_rows(latex)["ircot"]
    assert (mean, difference, p) == ("87.5", "+70.8", "<0.001")
    ends = [100 * end for end in test["difference_interval"]]
    assert list(map(float, between.strip("[]").split(", "))) == pytest.approx(ends, abs=0.06)
    assert f" +70.8 {between} |" in compared.to_markdown()
    log = compile_latex(latex, tmp_path)
    assert "Overfull" not in log
    options = list(map(str, runs))
    assert main(["table", *options, "--measures", "recall@5"]) == 0, "no baseline is needed"
    printed = capsys.readouterr().out
    assert "recall@5" in printed and "F1" not in printed


def compile_latex(text, folder):
    """Compile a table, where LaTeX is installed, and return what LaTeX said."""
    if not shutil.which("pdflatex"):
        return ""
    head = "\\documentclass{article}\\usepackage{booktabs,siunitx}\\begin{document}"
    (folder / "paper.tex").write_text(f"{head}\n{text}\n\\end{{document}}")
    command = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "paper.tex"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300, check=False)
    assert (done.returncode, "Output written on paper.pdf (1 page" in done.stdout) == (0, True), done.stdout
    return done.stdout


def test_names_in_brackets_and_with_stars_are_no_arguments_in_latex(tmp_path):
    names = ("[2019] good", "*starred", "[bold]")
    runs = {name: run_of(tmp_path / name, range(4), {"seed": n}) for n, name in enumerate(names)}
    text = Results(runs).table().to_latex()
    assert all(f"    {{}}{name} & " in text for name in names)
    compile_latex(text, tmp_path)


def test_every_form_says_what_failed_and_what_was_not_scored(tmp_path):
    rows = [
        row(replace(each, answers=()) if n < 3 else each, None if n > 19 else "Town 4", [f"p{n}"])
        for n, each in enumerate(QUESTIONS)
    ]
    other = {"model": "another", "seed": 1}
    runs = {"whole": run_of(tmp_path / "whole", range(24)), "weak": make_run(tmp_path / "weak", rows, other)}
    compared = Results(runs).compare("whole")
    markdown, latex = compared.to_markdown(), compared.to_latex()
    caption = latex[latex.index("\\caption") :]
    for text in (markdown, caption):
        assert "weak: 4 of 24 questions failed, which counts as wrong." in text
        assert "24 questions" in text
    for sentence in (
        "weak: model: model (another)",
        "Scorer: ",
        "weak: 4 of 24 questions failed",
        "Questions: q.jsonl",
    ):
        assert f"\n- {sentence}" in markdown and f"\n% {sentence}" in latex
    assert "another" not in caption
    part = Results({"weak": runs["weak"]}).table()
    assert "weak: 3 of 24 questions have no gold answers" in part.to_markdown()
    (line,) = csv.DictReader(io.StringIO(part.to_csv()))
    assert (line["em_n"], line["recall_n"], line["estimated"], line["unasked"]) == ("21", "24", "False", "0")


def test_a_table_says_which_runs_would_differ_if_they_were_made_again(tmp_path, capsys):
    models = {"plain": "vllm:x:bfloat16", "exact": "vllm:x:bfloat16:deterministic", "own": "python:x"}
    runs = [run_of(tmp_path / name, range(6), {"model": model}) for name, model in models.items()]
    printed, record = table(capsys, *runs)
    note = next(each for each in record["notes"] if each.startswith("Not deterministic (plain): "))
    assert note in printed and "model.deterministic=true" in note


def test_runs_that_differ_in_nothing_that_is_known_are_no_repeats_of_each_other(tmp_path):
    closures = {f"k{n}": run_of(tmp_path / f"k{n}", range(6 * n), {"method": "mine"}) for n in (1, 4)}
    assert "significantly above" in make_report(score_view(closures, PLAIN_VIEW)).sections
    with raises_message(ConfigError):
        Results(closures).table(over="seeds")


def test_runs_that_settings_do_not_tell_apart_are_paired_by_name():
    x, seed = {"method": "mine"}, {"method": "mine", "seed": 1}
    assert find_points({"good": x, "bad": x, "bad seed=1": seed})["bad"] == ["bad", "bad seed=1"]
    crossed = find_points({"x": x, "y": x, "y seed=1": seed, "x seed=1": seed})
    assert crossed == {"x": ["x", "x seed=1"], "y": ["y", "y seed=1"]}


def test_demonstrations_of_one_run_are_not_those_of_all(tmp_path):
    some = {"options": {"demonstrations": "demos.txt"}, "demonstrations": {"demos.txt": "0123456789"}}
    folders = [run_of(tmp_path / "few", range(4), some), run_of(tmp_path / "none", range(4), {})]
    conditions = Results({each.name: each for each in folders}).table().figures.conditions
    assert not any("Demonstrations" in line for line in conditions.common_lines)
    assert "demonstrations: demos.txt" in conditions.lines_by_run["few"]
    assert "demonstrations: none" in conditions.lines_by_run["none"]


def test_means_stand_in_every_form_and_disagreements_are_refused_where_they_do_not(tmp_path, capsys):
    runs = [run_of(tmp_path / f"seed{n}", range(6 + 6 * n), {"seed": n}) for n in range(3)]
    means = Results({each.name: each for each in runs}).table(over="seeds")
    assert "| seed0, mean of 3 | 50.0 ± 25.0 [" in means.to_markdown()
    latex = means.to_latex()
    assert latex_rows(latex)["seed0, mean of 3"][0] == "50.0" and "25.0 [" in latex
    assert "runs that differ in their seeds only." in latex
    compile_latex(latex, tmp_path)
    first, second, _ = csv.DictReader(io.StringIO(means.to_csv()))
    fields = [f"em_{name}_over_seeds" for name in ("mean", "deviation", "runs")]
    assert [first[name] for name in fields] == ["0.5", "0.25", "3"] and second[fields[0]] == ""
    options = [*map(str, runs[:2]), "--baseline", "seed0", "--disagreements", "3"]
    assert main(["table", *options, "--to", "latex"]) == 2
    assert "disagreements are listed in text and JSON only" in capsys.readouterr().err
    listed = Results({each.name: each for each in runs}).compare("seed0", disagreements=3)
    for write in (listed.to_csv, listed.to_latex, listed.to_markdown, listed.to_pandas):
        with raises_message(ConfigError):
            write()


def test_repeats_count_as_their_mean_wherever_runs_are_compared(tmp_path):
    folders = [run_of(tmp_path / f"seed{n}", range(4 + 10 * n), {"seed": n}) for n in range(3)]
    folders.append(run_of(tmp_path / "other", range(15), {"seed": 0, "method": "ircot"}))
    runs = {each.name: each for each in folders}
    rows = Results(runs, over="seeds").compare("other").to_markdown().splitlines()
    (first,) = (each for each in rows if each.startswith("| seed0 |"))
    (mean,) = (each for each in rows if each.startswith("| seed0, mean of 3 |"))
    (best,) = (each for each in rows if each.startswith("| other |"))
    assert "-4.2 [" in mean and "-4.2" not in first, "the difference is the mean's"
    assert "**62.5**" in best and not any("**24" in each or "**100" in each for each in rows)
    report = make_report(score_view(runs, PLAIN_VIEW))
    assert "other has the highest F1, 62.5" in report.sections, "no seed is a method of its own"
    assert re.findall("Tests against (\\w+)<", report.sections) == ["seed0", "other"]


def test_a_table_as_csv_and_markdown(tmp_path, capsys):
    runs = [run_of(tmp_path / name, range(right), {"seed": right}) for name, right in (("a", 4), ("b|b", 21))]
    options = [*map(str, runs), "--baseline", "a", "--measures", "em"]
    _, record = table(capsys, *options)
    assert main(["table", *options, "--to", "csv"]) == 0
    first, second = csv.DictReader(io.StringIO(capsys.readouterr().out))
    for line, name in ((first, "a"), (second, "b|b")):
        figures = record["runs"][name]
        assert line["run"] == name and float(line["em"]) == figures["em"] and int(line["n"]) == 24
        assert [float(line["em_low"]), float(line["em_high"])] == figures["em_interval"]
        assert not {"f1", "f1_low", "f1_n", "recall", "recall_interval"} & line.keys(), "EM alone is shown"
    (test,) = record["against"]
    assert float(second["em_difference"]) == test["difference"] and first["em_difference"] == ""
    assert (float(second["em_p_holm"]), float(second["em_mde"])) == (test["p_value_holm"], test["detectable"])
    frame = Results({"a": runs[0], "b|b": runs[1]}).compare("a", measures=["em"]).to_pandas()
    assert frame.em_difference.tolist()[1] == test["difference"] and frame.run.tolist() == ["a", "b|b"]
    assert main(["table", *options, "--to", "markdown"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "| method | EM | Δ EM | p | tokens |" and lines[3].startswith("| b\\|b | **87.5**")
    assert main(["table", *options, "--to", "json"]) == 0
    assert json.loads(capsys.readouterr().out) == record


def test_a_verdict_and_a_caption_count_the_questions_with_gold(tmp_path, capsys):
    """Of questions without any, nothing is tested."""
    asked = [replace(each, answers=each.answers if n < 6 else ()) for n, each in enumerate(QUESTIONS)]
    runs = [
        make_run(tmp_path / name, [row(each, "Town 1", ["p1"]) for each in asked], {"seed": seed})
        for seed, name in enumerate(("a", "b"))
    ]
    _, record = table(capsys, *runs)
    assert record["verdict"].endswith(" on 6 questions.")
    caption = "EM (6 questions), F1 (6 questions), recall@5 (24 questions) in percent, 95% intervals; tokens"
    assert caption in Results(dict(zip("ab", runs, strict=True))).table().to_markdown().replace("\\", "")


def test_a_table_fits_a_narrow_terminal(tmp_path, capsys, monkeypatch):
    long = "corag strategy=best_of_n chains=4 max_hops=3"
    runs = {name: run_of(tmp_path / name, range(9), {"seed": n}) for n, name in enumerate(("one_step", long))}
    for columns in (70, 80, 100, 120):
        monkeypatch.setenv("COLUMNS", str(columns))
        compared = Results(runs).compare("one_step")
        figures = [line for line in str(compared).splitlines() if line[:1] in "┏┃┡│└"]
        assert len(figures) > 8 and max(map(len, figures)) <= columns
        text = " ".join(str(compared).split())
        assert "…" not in text and re.search(r"one_step [│┃] +(24 │ )?", text)
        assert "37.5" in text and "[21.2, 57.3]" in text and "recall@5" in text and "MDE" in text
        assert "Left out for want of room: steps" in text
    monkeypatch.setenv("COLUMNS", "160")
    assert "Left out" not in str(Results(runs).table())
    monkeypatch.delenv("COLUMNS")
    assert "Left out" not in str(Results(runs).table())


def test_brackets_in_names_are_no_markup(tmp_path, capsys):
    run = run_of(
        tmp_path / "a[bold]b", range(9), {"seed": 1}, questions="old [2019].jsonl", corpus="x [/red] :no:"
    )
    base = run_of(tmp_path / "base [link=x]", range(4))
    printed, record = table(capsys, run, base, "--baseline", "base [link=x]", "--disagreements", 3)
    for name in ("a[bold]b", "old [2019].jsonl", "x [/red] :no:", "minus base [link=x]"):
        assert name in printed
    assert record["runs"].keys() == {"a[bold]b", "base [link=x]"}


def test_runs_of_a_service_stand_side_by_side(tmp_path, capsys):
    served = {"questions": {"source": SERVICE_SOURCE, "dataset": "jsonl", "split": "", "subset": ""}}
    runs = [
        make_run(tmp_path / name, [row(replace(each, answers=()), "x", ["p1"]) for each in part], served)
        for name, part in (("quick", QUESTIONS[:5]), ("best", QUESTIONS[5:8]))
    ]
    printed, record = table(capsys, *runs)
    assert [each["n"] for each in record["runs"].values()] == [5, 3] and "verdict" not in record
    assert "questions of its own, by a service: they stand side by side, and nothing is tested." in printed
    unasked = make_run(tmp_path / "unasked", [], served)
    printed, record = table(capsys, unasked, *runs)
    assert record["runs"].keys() == {"quick", "best"} and "Left out, asked nothing yet: unasked." in printed
    assert main(["table", *map(str, runs), "--baseline", "quick"]) == 2
    assert "a baseline needs runs on the same questions" in capsys.readouterr().err
    plain = [make_run(tmp_path / name, [row(QUESTIONS[n], "x")]) for n, name in enumerate("ab")]
    assert main(["table", *map(str, plain)]) == 2, "of a question file that is a mistake"


def test_a_mean_over_seeds_of_which_two_failed_is_not_tested(tmp_path):
    folders = [run_of(tmp_path / "seed0", range(8), {"seed": 0})]
    failed = [row(question, None) for question in QUESTIONS]
    folders += [make_run(tmp_path / f"seed{n}", failed, {"seed": n}) for n in (1, 2)]
    folders.append(run_of(tmp_path / "other", range(8), {"method": "ircot"}))
    tests = Results({each.name: each for each in folders}, over="seeds").compare("other").to_json()["against"]
    assert {(each["failed"], each["p_value"]) for each in tests if each["measure"] == "em"} == {(24, None)}


def test_a_name_that_was_given_is_no_other_runs(tmp_path):
    runs = [run_of(tmp_path / name, range(4), {"method": name}) for name in ("tree", "CoRAG")]
    with raises_message(ConfigError):
        Runs(runs=[f"CoRAG={runs[0]}", str(runs[1])]).by_name()
    named = Runs(runs=[f"CoRAG={runs[0]}", f"other={runs[1]}"]).by_name()
    assert {name: folder.name for name, folder in named.items()} == {"CoRAG": "tree", "other": "CoRAG"}


def test_the_figure_is_of_the_first_measure_that_was_asked_for(tmp_path):
    runs = {name: run_of(tmp_path / name, range(4), {"method": name}) for name in ("a", "b")}
    for measures, title in ((["recall", "em"], "recall@5"), ([], "F1")):
        table = table_of_runs(runs, TableView(measures=measures))
        assert draw_figure(table, tmp_path / "figure.svg") == title


def test_the_figure_has_one_point_for_the_seeds_of_a_method(tmp_path):
    rights = {"seed0": range(8), "seed1": range(2), "seed2": range(5)}
    runs = {name: run_of(tmp_path / name, right, {"seed": name}) for name, right in rights.items()}
    runs["other"] = run_of(tmp_path / "other", range(7), {"method": "ircot"})
    draw_figure(table_of_runs(runs, TableView(over="seeds")), file := tmp_path / "figure.svg")
    drawn = file.read_text()
    assert "seed0" in drawn and "seed1" not in drawn and "seed2" not in drawn
