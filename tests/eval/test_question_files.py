"""Question files as people have them: read, or left out record by record with a count."""

import csv
import gzip
import io
import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from corag.core.errors import ConfigError, DataError
from corag.core.types import Question
from eval.api.arguments import question_file
from eval.datasets import DATASETS, load_questions
from eval.datasets.report import QuestionReport
from eval.experiment.questions import QuestionFile
from tests.messages import raises_message

GOOD = {"id": "a", "question": "Who wrote Emma?", "answers": ["Jane Austen"]}


@pytest.fixture
def read(tmp_path):
    """Write a file, read it, and return (text, answers) of its questions and the report."""

    def read_file(name, content, dataset="jsonl", **options):
        path = tmp_path / name
        if isinstance(content, list | dict):
            content = (
                "".join(json.dumps(each, ensure_ascii=False) + "\n" for each in content)
                if name.endswith("jsonl")
                else json.dumps(content, ensure_ascii=False)
            )
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        report = QuestionReport(str(path))
        questions = load_questions(str(path), dataset, report=report, **options)
        return questions, report

    return read_file


@pytest.mark.parametrize(
    ("value", "maker"),
    [("notes-bot 2", "notes-bot 2"), (True, "yes"), (False, ""), ("no", ""), (None, ""), (" GPT ", "GPT")],
)
def test_who_made_a_question_is_kept_as_it_stands(read, value, maker):
    (question,), _ = read("a.jsonl", [{"question": "Who?", "answer": "Ada", "synthetic": value}])
    assert question.synthetic == maker


def texts(questions):
    return [(question.text, *question.answers) for question in questions]


@pytest.mark.parametrize(
    ("change", "answers", "remark"),
    [
        ({"answer": "Jane Austen", "answers": None}, ["Jane Austen"], ""),
        ({"golden_answers": ["Jane Austen"], "answers": None}, ["Jane Austen"], ""),
        ({"answers": "Jane Austen"}, ["Jane Austen"], ""),
        ({"answers": 1815}, ["1815"], ""),
        ({"answers": True}, ["yes"], ""),
        ({"answers": [1815.0, None, " "]}, ["1815"], ""),
        ({"answers": "[Redacted]"}, ["[Redacted]"], ""),
        ({"answers": "['Austen', 'J. Austen']"}, ["Austen", "J. Austen"], ""),
        ({"id": None}, ["Jane Austen"], "no id: one is made"),
        ({"note": "x"}, ["Jane Austen"], "fields that are not read: note"),
        ({"context": "x"}, ["Jane Austen"], "not read: context; passages belong in an index"),
        ({"answers": None}, [], "no gold answer: answered, but not scored"),
        ({"hops": "2"}, ["Jane Austen"], ""),
    ],
)
def test_a_record_of_another_writer_is_read(read, change, answers, remark):
    (question,), report = read("q.jsonl", [GOOD | change])
    assert (question.text, list(question.answers)) == ("Who wrote Emma?", answers)
    assert question.id and report.question_count == 1 and not report.drops
    assert any(remark in line for line in report.remarks) if remark else not report.remarks
    if remark:
        with pytest.raises(DataError):
            read("q.jsonl", [GOOD | change], strict=True)


@pytest.mark.parametrize(
    "change",
    [
        {"answers": {"text": ["Austen"], "answer_start": [1]}},
        {"hops": "two"},
        {"decomposition": ["Who?"]},
        {"decomposition": [{"question": "Who?"}]},
        {"wikipedia_ids": [{"a": 1}]},
        {"question": " "},
    ],
)
def test_a_record_that_cannot_be_used_is_left_out_and_named(read, change):
    questions, report = read("q.jsonl", [GOOD | change, GOOD | {"id": "b"}])
    assert [each.id for each in questions] == ["b"] and report.left_out == 1
    with raises_message(DataError):
        read("q.jsonl", [GOOD | change], strict=True)


def test_one_odd_record_costs_no_other(read):
    bad = [{"question": None}, {"question": " "}, {"a": 1, "b": 2}]
    questions, report = read("q.jsonl", [GOOD, *bad, GOOD | {"id": "b", "question": "Who?"}])
    assert [each.id for each in questions] == ["a", "b"]
    assert (report.question_count, report.left_out) == (2, 3)
    lines = "\n".join(report.lines())
    assert "2 of 5 records are read, 3 left out (strict refuses such a file):" in lines
    assert "the record has 'a', 'b': name its fields with columns" in lines and "line 4" in lines


def test_a_line_that_is_no_json_is_left_out(read):
    lines = [json.dumps(GOOD), '{"id": "b", "quest', "[1]", json.dumps(GOOD | {"id": "c", "question": "W?"})]
    questions, report = read("q.jsonl", "\n".join(lines))
    assert [each.id for each in questions] == ["a", "c"] and report.left_out == 2
    questions, report = read("q.jsonl", "\n".join(["{torn", *lines]))
    assert [each.id for each in questions] == ["a", "c"] and report.left_out == 3


def test_json_lines_lists_and_lines_of_text(read):
    other = GOOD | {"id": "b", "question": "Where?"}
    expected = [("Who wrote Emma?", "Jane Austen"), ("Where?", "Jane Austen")]
    for name in ("q.json", "q.jsonl"):
        for text in (json.dumps([GOOD, other]), "\n".join(map(json.dumps, (GOOD, other)))):
            assert texts(read(name, text)[0]) == expected
    assert texts(read("q.txt", "Who?\n\n Where? \n")[0]) == [("Who?",), ("Where?",)]
    with raises_message(DataError):
        read("q.txt", json.dumps(GOOD))
    for shape in (
        {"data": [GOOD, other]},
        {"a": GOOD, "b": other},
        {"question": ["Who?"], "answer": ["Ada"]},
    ):
        with raises_message(DataError):
            read("q.json", shape)


def test_tables_with_a_header(read):
    expected = [("Who wrote Emma?", "Jane Austen"), ("Where?", "Bath", "Chawton")]
    comma = 'id,question,answers\n1,Who wrote Emma?,Jane Austen\n2,Where?,"[""Bath"", ""Chawton""]"\n'
    assert texts(read("q.csv", comma)[0]) == expected
    assert texts(read("q.csv.gz", gzip.compress(comma.encode()))[0]) == expected
    marked = "\ufeffquestion;answer\nWho wrote Emma?;Jane Austen\nWhere?;\"['Bath', 'Chawton']\"\n"
    assert texts(read("q.csv", marked, delimiter=";")[0]) == expected
    with raises_message(DataError):
        read("q.csv", marked)
    with raises_message(DataError):
        read("q.csv", "Question,Answer\nWho?,Ada\n")
    named, _ = read("q.csv", "Question,Answer\nWho?,Ada\n", columns=["question=Question", "answers=Answer"])
    other = {"_id": "65f0", "qid": "q1", "question": "Who?", "gold": "", "answer": "not Ada"}
    (named_first,), _ = read("q.jsonl", [other], columns=["id=qid", "answers=gold"])
    assert (named_first.id, named_first.answers) == ("q1", ())
    assert texts(named) == [("Who?", "Ada")]


def test_rows_that_do_not_fit_are_left_out_and_quotes_of_a_tsv_stay(read):
    rows = 'question\tanswers\n"Emma" is by whom?\tJane "J." Austen\nWho?\na "b"\tc\n'
    questions, report = read("q.tsv", rows)
    assert texts(questions) == [('"Emma" is by whom?', 'Jane "J." Austen'), ('a "b"', "c")]
    assert report.left_out == 1
    questions, report = read("q.csv", 'question,answers\nWho, then?,Ada\nWho?,Ada\n,Eve\n"W\nhere?",Ada\n')
    assert texts(questions) == [("Who?", "Ada"), ("W\nhere?", "Ada")] and report.left_out == 2


def test_parquet_is_read_and_excel_gets_a_sentence(read, tmp_path):
    import pyarrow
    import pyarrow.parquet
    from openpyxl import Workbook

    stream = io.BytesIO()
    Workbook().save(stream)
    for name in ("q.xlsx", "q.csv"):  # whatever it is called
        with raises_message(DataError):
            read(name, stream.getvalue())
    table = pyarrow.Table.from_pylist(
        [{"qid": "1", "query": "Who?", "answers": ["Ada"], "supporting": ["p1"]}]
    )
    pyarrow.parquet.write_table(table, tmp_path / "t.parquet")
    (question,), _ = read("qa.parquet", (tmp_path / "t.parquet").read_bytes())
    assert (question.id, question.supporting, *texts([question])) == ("1", ("p1",), ("Who?", "Ada"))


def test_files_of_others_are_read_by_columns(read):
    record = {"content": "Who?", "label": {"text": ["Ada"], "start": [3]}, "ctx": ["p1"], "question": None}
    with pytest.raises(DataError, match=r"(?s)no question could.*'question' must be a non-empty text"):
        read("q.jsonl", [record])
    columns = ["question=content", "answers = label.text", "supporting=ctx"]
    (question,), report = read("q.jsonl", [record | {"key": 7}], columns=[*columns, "id=key"])
    assert (*texts([question]), question.supporting) == (("Who?", "Ada"), ("p1",))
    assert question.id == "7" and not report.remarks
    for wrong in ("question=contents", "questoin=content", "content"):
        with raises_message(ConfigError):
            read("q.jsonl", [record], columns=[wrong])
    with raises_message(ConfigError):
        read("q.jsonl", [record], "hotpotqa", columns=["question=content"])


def test_ids_that_were_used_before(read):
    again = [GOOD, GOOD, GOOD | {"question": "Where?"}, GOOD | {"question": "When?"}] * 2
    questions, report = read("q.jsonl", again)
    assert [each.id for each in questions] == ["a", "a#2", "a#3"] and report.left_out == 5
    assert "a repeat of an earlier question of the same id" in report.drops
    assert any("line 3 and line 1" in tally.locations for tally in report.remarks.values())
    unnamed = [{"question": "Who?", "answer": "Ada"}, {"question": "Where?", "answer": "Ada"}]
    ids = [[each.id for each in read("q.jsonl", order)[0]] for order in (unnamed, unnamed[::-1])]
    assert ids[0] == ids[1][::-1] and len(set(ids[0])) == 2


def test_official_sets_lose_a_record_and_not_themselves(read):
    some = [
        {"id": "1", "question": "Who?", "golden_answers": ["Ada"]},
        {"id": "2", "question": "Where?", "golden_answers": []},
        {"id": 3, "question": "When?", "golden_answers": 1815},
        {"question": "Which?", "golden_answers": [0], "choices": ["a"]},
    ]
    questions, report = read("nq.jsonl", some, "flashrag")
    assert texts(questions) == [("Who?", "Ada"), ("Where?",), ("When?", "1815")]
    assert list(report.drops) == [
        "this is a multiple-choice question, which no scorer here compares: use a set with text answers"
    ]


def test_2wikis_release_in_columns(read):
    rows = [{"_1": "w1", "id": 7, "question": "Who?", "answer": "Ada", "supporting_facts": "[['A', 0]]",
             "context": "[['A', ['Ada was.']]]"},
            {"_1": "w2", "id": 8, "question": "Where?", "answer": None, "supporting_facts": "[]",
             "context": "[['A', ['Ada was.']]]"}]  # fmt: skip
    columns = {name: {str(n): row[name] for n, row in enumerate(rows)} for name in rows[0]}
    questions, _ = read("dev.json", columns, "2wikimultihopqa")
    assert [each.id for each in questions] == ["w1", "w2"] and texts(questions)[0] == ("Who?", "Ada")
    assert questions[0].titles == ("A",)
    with raises_message(DataError):
        read("dev.json", columns | {"answer": {"0": "Ada"}}, "2wikimultihopqa")


@pytest.mark.parametrize(
    ("qrels", "supporting", "left_out"),
    [
        ("query-id\tcorpus-id\tscore\nq1\td1\t1\nPLAIN-2\td3\t1\n", {"q1": ("d1",)}, 1),
        ("q1\t0\td1\t1\nq2\t0\td3\t1.0\nq2\t0\td4\t0\n", {"q1": ("d1",), "q2": ("d3",)}, 0),
        ("q1 0 d1 1\nq2 Q0 d3 2\n", {"q1": ("d1",), "q2": ("d3",)}, 0),
        ("qid docid rel\nq1 d1 1.0\nq1 d2 -1\n", {"q1": ("d1",)}, 0),
        ("q1\td1\t1\nq1\td2\nq2\td2\tmany\nq2\td2\t1\n", {"q1": ("d1",), "q2": ("d2",)}, 2),
    ],
)
def test_judgements_in_the_forms_that_they_come_in(tmp_path, qrels, supporting, left_out):
    queries = '{"_id": "q1", "text": "Who?"}\n{"_id": "q2", "text": "Where?"}\n'
    (tmp_path / "queries.jsonl").write_text(queries)
    (tmp_path / "test.tsv").write_text(qrels)
    report = QuestionReport(str(tmp_path / "test.tsv"))
    questions = load_questions(str(tmp_path / "test.tsv"), "beir", report=report)
    assert {each.id: each.supporting for each in questions} == supporting and report.left_out == left_out
    assert any("grades above 1 count as 1" in text for text in report.remarks) is ("Q0 d3 2" in qrels)
    (tmp_path / "queries.jsonl").unlink()
    (tmp_path / "queries.tsv").write_text("q1\tWho?\nq2\tWhere?\n")
    assert load_questions(str(tmp_path / "test.tsv"), "beir")[0].text == "Who?"


def test_what_was_left_out_is_printed(tmp_path, capsys):
    file = tmp_path / "q.jsonl"
    file.write_text(json.dumps(GOOD) + "\n{}\n")
    load_questions(str(file))
    printed = capsys.readouterr()
    assert "1 of 2 records are read, 1 left out" in printed.err and not printed.out
    file.write_text(json.dumps(GOOD) + "\n")
    load_questions(str(file))
    assert capsys.readouterr().err == ""


def test_questions_from_python_in_the_forms_that_they_come_in(tmp_path):
    forms = [
        [GOOD | {"id": 1}],
        [("Who wrote Emma?", "Jane Austen")],
        [{"query": "Who wrote Emma?", "golden_answers": ["Jane Austen"]}],
    ]
    for number, form in enumerate(forms):
        file, options = question_file(form, tmp_path / str(number), {})
        (question,) = load_questions(file, strict=True)
        assert texts([question]) == [("Who wrote Emma?", "Jane Austen")] and options["columns"] == []
    file, _ = question_file(["Who wrote Emma?"], tmp_path / "text", {})
    assert texts(load_questions(file)) == [("Who wrote Emma?",)]
    file, _ = question_file([{"q": "Who?"}], tmp_path / "named", {"columns": ["question=q"]})
    assert texts(load_questions(file)) == [("Who?",)]
    with pytest.raises(ConfigError, match="7 is no question: give Question objects"):
        question_file([7], tmp_path / "seven", {})


def test_a_saved_dataset_is_known_by_what_it_holds(tmp_path):
    import datasets

    def source(folder, text):
        datasets.Dataset.from_list([{"question": text}]).save_to_disk(folder)
        return QuestionFile(questions=str(folder)).source

    first, again, other = (
        source(tmp_path / name, text) for name, text in (("1", "Who?"), ("2", "Who?"), ("3", "What?"))
    )
    assert first == again != other


def test_tables_of_other_libraries_from_python(tmp_path):
    import datasets
    import pandas

    rows = [{"id": 7, "question": "Who wrote Emma?", "answers": ["Jane Austen"]}]
    forms = [
        datasets.Dataset.from_list(rows),
        datasets.Dataset.from_list(rows).to_iterable_dataset(),
        pandas.DataFrame(rows).to_dict("records"),
        (each for each in rows),
    ]
    for number, form in enumerate(forms):
        file, _ = question_file(form, tmp_path / str(number), {})
        assert [(each.id, each.answers) for each in load_questions(file)] == [("7", ("Jane Austen",))]
    with pytest.raises(ConfigError, match="A data frame has records"):
        question_file(pandas.DataFrame(rows), tmp_path / "frame", {})
    file, _ = question_file(pandas.Series(["Who?", "What?"]), tmp_path / "series", {})
    assert texts(load_questions(file)) == [("Who?",), ("What?",)]
    with raises_message(ConfigError):
        question_file(datasets.DatasetDict({"dev": forms[0]}), tmp_path / "splits", {})
    with raises_message(ConfigError):
        question_file(3, tmp_path / "three", {})


@pytest.mark.parametrize(
    ("dataset", "record", "kind"),
    [
        (
            "flashrag",
            {"id": "a", "question": "Who?", "golden_answers": ["Ada"], "metadata": {"type": "b"}},
            "b",
        ),
        ("hotpotqa", {"_id": "a", "question": "Who?", "answer": "Ada", "type": "b", "context": []}, "b"),
        ("kilt_nq", {"id": "a", "input": "Who?", "output": [{"answer": "Ada"}]}, ""),
        ("hotpotqa", {"id": "a", "question": "Who?", "answers": ["Ada"], "type": "b"}, "b"),
        ("hotpotqa", Question("a", "Who?", ("Ada",), kind="b"), "b"),
        ("", {"id": "a", "question": "Who?", "golden_answers": ["Ada"]}, ""),
    ],
)
def test_records_of_a_dataset_from_python(tmp_path, dataset, record, kind):
    file, options = question_file([record], tmp_path, {"dataset": dataset} if dataset else {})
    assert load_questions(file, strict=True) == [Question("a", "Who?", ("Ada",), kind=kind)]
    assert options.get("scorer", "") == (DATASETS[dataset].scorer if dataset else "")


def test_aliases_of_a_dataset_from_python(tmp_path):
    aliases = tmp_path / "id_aliases.json"
    known = [{"Q_id": f"Q{n}", "aliases": ["Countess Lovelace"], "demonyms": []} for n in (1, 2)]
    aliases.write_text("".join(json.dumps(each) + "\n" for each in known))
    record = {"_id": "a", "question": "Who?", "answer": "Ada", "answer_id": "Q1", "context": []}
    options = {"dataset": "2wikimultihopqa", "aliases": aliases}
    file, rest = question_file([record], tmp_path / "runs", options)
    assert load_questions(file)[0].answers == ("Ada", "Countess Lovelace") and rest["aliases"] == ""


# Whatever a record holds, it is kept, or left out for a reason that is counted.
_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 9) | st.floats() | st.text(max_size=4)
    | st.sampled_from(["Who?", "[", "['a' 'b']", "[1]", "{}", "a,b", '"', "x"]),
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(st.sampled_from(["text", "title", "answer", "id", "x"]), inner, max_size=3),
    max_leaves=6,
)  # fmt: skip
_NAMES = st.sampled_from(
    ["id", "_id", "question", "Question", "query", "input", "text", "answer", "answers", "golden_answers",
     "possible_answers", "output", "supporting", "hops", "type", "context", "paragraphs", "supporting_facts",
     "decomposition", "question_decomposition", "evidences", "metadata", "title", "wikipedia_ids"]
)  # fmt: skip
_RECORDS = st.lists(st.dictionaries(_NAMES, _VALUES, max_size=7), min_size=1, max_size=8)
_READERS = [*sorted(name for name in DATASETS if name[:4] not in ("beir", "kilt")), "kilt_nq"]
_PROPERTY = settings(
    max_examples=120,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=list(HealthCheck),
)


@pytest.mark.parametrize("dataset", _READERS)
def test_every_record_is_kept_or_left_out_for_a_reason(tmp_path, dataset):
    @_PROPERTY
    @given(_RECORDS, st.sampled_from(["json", "jsonl"]))
    def check(records, form):
        file = tmp_path / f"q.{form}"
        dumped = [json.dumps(record) for record in records]
        file.write_text("\n".join(dumped) if form == "jsonl" else f"[{', '.join(dumped)}]")
        _check_counts(str(file), dataset, len(records))

    check()


@pytest.mark.parametrize("dataset", ["jsonl", "bamboogle", "popqa"])
def test_every_row_is_kept_or_left_out_for_a_reason(tmp_path, dataset):
    cells = st.sampled_from(["", "Who?", "a;b", "x,y", '"', "['a']", "[", "1", "\t", "né"])

    @_PROPERTY
    @given(st.lists(st.lists(cells, min_size=3, max_size=3), min_size=1, max_size=6), st.sampled_from(",\t"))
    def check(rows, separator):
        stream = io.StringIO()
        writer = csv.writer(stream, delimiter=separator, lineterminator="\n")
        answers = {"jsonl": "answers", "bamboogle": "Answer", "popqa": "possible_answers"}[dataset]
        writer.writerows([["id", "question", answers], *rows])
        file = tmp_path / ("q.tsv" if separator == "\t" else "q.csv")
        file.write_text(stream.getvalue())
        _check_counts(str(file), dataset, sum(any(map(str.strip, row)) for row in rows))

    check()


def test_every_judged_query_and_odd_line_is_kept_or_left_out_for_a_reason(tmp_path):
    cells = st.sampled_from(["q1", "q2", "q9", "d1", "d2", "0", "1", "1.0", "-1", "x"])

    @_PROPERTY
    @given(st.lists(st.lists(cells, min_size=1, max_size=5), min_size=1, max_size=8), st.sampled_from(" \t"))
    def check(rows, separator):
        (tmp_path / "queries.jsonl").write_text('{"_id": "q1", "text": "Who?"}\n{"_id": "q2", "text": ""}\n')
        (tmp_path / "test.tsv").write_text("\n".join(separator.join(row) for row in rows))
        right = [row for row in rows if len(row) in (3, 4) and row[-1] in ("0", "1", "1.0", "-1")]
        queries = {row[0] for row in right}
        # A cell by itself has no tab, and is split at spaces, of which there are none.
        _check_counts(str(tmp_path / "test.tsv"), "beir", len(queries) + len(rows) - len(right))

    check()


def _check_counts(file, dataset, n):
    report = QuestionReport(file)
    try:
        questions = load_questions(file, dataset, report=report)
    except DataError as error:
        questions = []
        assert "no question could be read" in str(error) or not n
    assert len(questions) == report.question_count and report.records == n, report.lines()
    assert len({question.id for question in questions}) == len(questions)
    assert all(reason.strip() for reason in report.drops)
    for question in questions:
        assert question.text.strip() and question.id and all(map(str.strip, question.answers))
