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
from eval.datasets.fields import flat_ids, flat_texts, unpack
from eval.datasets.report import QuestionReport
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
    (question,), _ = read("a.jsonl", [{"question": "Who?", "gold": "Ada", "synthetic": value}])
    assert question.synthetic == maker


def texts(questions):
    return [(question.text, *question.answers) for question in questions]


@pytest.mark.parametrize(
    ("change", "answers", "remark"),
    [
        ({"answer": "Jane Austen", "answers": None}, ["Jane Austen"], "field 'answer' is read as 'answers'"),
        ({"answers": "Jane Austen"}, ["Jane Austen"], ""),
        ({"answers": 1815}, ["1815"], ""),
        ({"answers": True}, ["yes"], ""),
        ({"answers": [1815.0, None, " "]}, ["1815"], ""),
        ({"answers": {"text": ["Austen", "J. Austen"], "answer_start": [1, 9]}}, ["Austen", "J. Austen"], ""),
        ({"answers": [{"text": "Austen"}, {"text": "Austen"}]}, ["Austen"], ""),
        ({"answers": None, "Answer": {"Value": "Austen", "Aliases": ["J"]}}, ["Austen", "J"], "'Answer' is"),
        ({"answers": "[Redacted]"}, ["[Redacted]"], ""),
        ({"answers": "['Austen' 'J. Austen']"}, ["Austen", "J. Austen"], ""),
        ({"id": 1}, ["Jane Austen"], ""),
        ({"id": None}, ["Jane Austen"], "no id: one is made"),
        ({"note": "x"}, ["Jane Austen"], "fields that are not read: 'note'"),
        ({"answers": None}, [], "no gold answer: answered, but not scored"),
        ({"answers": []}, [], "no gold answer"),
        ({"answers": {"start": 3}}, [], "the gold answers hold no text"),
        ({"hops": "2"}, ["Jane Austen"], ""),
        ({"hops": "two"}, ["Jane Austen"], "hops left out: it must be a whole number"),
        ({"decomposition": ["Who?"]}, ["Jane Austen"], "decomposition left out: "),
        ({"answer": "Bob", "answers": None, "ground_truth": "Austen"}, ["Austen"], "not read: 'answer'"),
    ],
)  # fmt: skip
def test_a_record_of_another_writer_is_read(read, change, answers, remark):
    (question,), report = read("q.jsonl", [GOOD | change])
    assert (question.text, list(question.answers)) == ("Who wrote Emma?", answers)
    assert question.id and report.question_count == 1 and not report.drops
    assert any(remark in line for line in report.remarks) if remark else not report.remarks
    with pytest.raises(DataError):
        read("q.jsonl", [GOOD | change], strict=True)


def test_one_odd_record_costs_nobody_else(read):
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


def test_json_in_the_shapes_that_it_comes_in(read):
    other = GOOD | {"id": "b", "question": "Where?"}
    expected = [("Who wrote Emma?", "Jane Austen"), ("Where?", "Jane Austen")]
    shapes = [
        [GOOD, other],
        {"data": [GOOD, other]},
        {"version": "1", "Examples": [GOOD, other]},
        {"a": GOOD, "b": other},
        {"question": {"0": "Who wrote Emma?", "1": "Where?"},
         "answers": {"0": ["Jane Austen"], "1": "Jane Austen"}},
        {"question": ["Who wrote Emma?", "Where?"], "answer": ["Jane Austen", "Jane Austen"]},
        {"rows": [{"row_idx": 0, "row": GOOD}, {"row_idx": 1, "row": other}]},
    ]  # fmt: skip
    for shape in shapes:
        for name in ("q.json", "q.jsonl"):
            assert texts(read(name, json.dumps(shape))[0]) == expected, shape
    printed = "\n".join(json.dumps(each, indent=2) for each in (GOOD, other))
    assert texts(read("q.jsonl", printed)[0]) == expected
    torn = json.dumps([GOOD, other, GOOD])[:-20]
    questions, report = read("q.json", torn)
    assert texts(questions) == expected and report.left_out == 1
    assert texts(read("one.json", {"question": "Who?", "answer": "Ada"})[0]) == [("Who?", "Ada")]
    with pytest.raises(DataError, match="expected a JSON list of objects"):
        read("q.json", "3")


@pytest.mark.parametrize(
    ("content", "remark"),
    [
        ('id,question,answers\n1,Who wrote Emma?,Jane Austen\n2,Where?,"[""Bath"", ""Chawton""]"\n', ""),
        ("\ufeffquestion;answer\nWho wrote Emma?;Jane Austen\nWhere?;\"['Bath', 'Chawton']\"\n",
         "columns are separated by ';'"),
        (",question,answers\n0,Who wrote Emma?,Jane Austen\n1,Where?,['Bath' 'Chawton']\n", ""),
        ("Question\tAnswers\nWho wrote Emma?\tJane Austen\nWhere?\t['Bath', 'Chawton']\n",
         "separated by '\\t'"),
    ],
)  # fmt: skip
def test_tables_in_our_own_format(read, content, remark):
    questions, report = read("q.csv", content)
    assert texts(questions) == [("Who wrote Emma?", "Jane Austen"), ("Where?", "Bath", "Chawton")]
    assert report.question_count == 2 and any(remark in each for each in [*report.remarks, ""])
    zipped, _ = read("q.csv.gz", gzip.compress(content.encode()))
    assert texts(zipped) == texts(questions)


def test_rows_that_do_not_fit_are_left_out_and_quotes_of_a_tsv_stay(read):
    rows = 'question\tanswers\n"Emma" is by whom?\tJane "J." Austen\nWho?\n\t\n"a ""b"""\tc\n'
    questions, report = read("q.tsv", rows)
    assert report.left_out == 2 and ("Who?",) not in texts(questions)
    questions, report = read("q.tsv", rows.replace("Who?\n\t\n", ""))
    assert texts(questions) == [('"Emma" is by whom?', 'Jane "J." Austen'), ('a "b"', "c")]
    questions, report = read("q.csv", 'question,answers\nWho, then?,Ada\nWho?,Ada\n,\n"W\nhere?",Ada\n')
    assert texts(questions) == [("Who?", "Ada"), ("W\nhere?", "Ada")]
    assert sum(each.count for each in report.drops.values()) == 2


def test_excel_and_parquet(read, tmp_path):
    from datetime import datetime

    import pyarrow
    import pyarrow.parquet
    from openpyxl import Workbook

    book = Workbook()
    book.active.append(["Question", "Answer", "id", None])
    book.active.append(["When?", 1815, 7])
    book.active.append(["Since when?", datetime(1815, 12, 23), 8])
    book.active.append([None, "x", 9])
    book.active.append(["Who?", None, None])
    book.create_sheet("notes").append(["x"])
    stream = io.BytesIO()
    book.save(stream)
    for name in ("q.xlsx", "q.csv"):  # whatever it is called
        questions, report = read(name, stream.getvalue())
        assert texts(questions) == [("When?", "1815"), ("Since when?", "1815-12-23"), ("Who?",)]
        assert [each.id for each in questions][:2] == ["7", "8"] and report.left_out == 1
        assert "the sheet 'Sheet' is read; others are not: 'notes'" in report.remarks
    with pytest.raises(DataError, match="cannot be read as an Excel file"):
        read("q.xlsx", b"PK\x03\x04 torn")
    with pytest.raises(DataError, match=r"older Excel: save it as \.xlsx or \.csv"):
        read("q.xls", b"\xd0\xcf\x11\xe0")
    autorag = {"qid": "1", "query": "Who?", "generation_gt": ["Ada"], "retrieval_gt": [["p1"]]}
    table = pyarrow.Table.from_pylist([autorag])
    pyarrow.parquet.write_table(table, tmp_path / "t.parquet")
    (question,), _ = read("qa.parquet", (tmp_path / "t.parquet").read_bytes())
    assert (question.id, question.supporting, *texts([question])) == ("1", ("p1",), ("Who?", "Ada"))


# Shapes of question files as the documentation of their makers has them.
SHAPES = {
    "ragas": {"user_input": "Who?", "reference": "Ada", "reference_contexts": ["x"], "response": "Bob"},
    "ragas before 0.2": {"question": "Who?", "answer": "Bob", "contexts": ["x"], "ground_truth": "Ada"},
    "dspy": {"question": "Who?", "answer": "Ada", "dspy_uuid": "1", "dspy_split": "train"},
    "llama_index": {"examples": [{"query": "Who?", "reference_answer": "Ada", "reference_contexts": ["x"],
                                  "query_by": {"model_name": "m", "type": "ai"}}]},
    "langsmith": {"inputs": {"question": "Who?"}, "outputs": {"answer": "Ada"}, "metadata": {}},
    "autorag": {"qid": "q", "query": "Who?", "retrieval_gt": [["p1"], ["p2"]], "generation_gt": ["Ada"]},
    "flashrag": {"id": "q", "question": "Who?", "golden_answers": ["Ada"], "metadata": {"type": "x"}},
    "squad": {"version": "1.1", "data": [{"title": "t", "paragraphs": [{"context": "c", "qas": [
        {"id": "q", "question": "Who?", "answers": [{"text": "Ada", "answer_start": 3}]}]}]}]},
    "squad of the hub": {"id": "q", "title": "t", "context": "c", "question": "Who?",
                         "answers": {"text": ["Ada"], "answer_start": [3]}},
    "nq_open": {"question": "Who?", "answer": ["Ada"]},
    "trivia_qa": {"Data": [{"Question": "Who?", "QuestionId": "q", "EntityPages": [], "Answer": {
        "Value": "Ada", "Aliases": ["Ada"], "NormalizedAliases": ["ada"], "Type": "x"}}], "Version": 1},
    "corag/multihopqa": {"query_id": "q", "query": "Who?", "answers": ["Ada"], "context_doc_ids": ["7"],
                         "subqueries": ["a"], "subanswers": ["b"]},
    "kilt": {"id": "q", "input": "Who?", "output": [{"answer": "Ada", "provenance": []}, {"provenance": []}]},
    "langfuse": {"input": {"question": "Who?"}, "expected_output": {"answer": "Ada"}},
}  # fmt: skip


@pytest.mark.parametrize("shape", SHAPES)
def test_shapes_that_other_projects_write(read, shape):
    contents = SHAPES[shape], [SHAPES[shape]]
    for content in contents[: 1 if shape in ("llama_index", "squad", "trivia_qa") else 2]:
        for name in ("q.json", "q.jsonl"):
            (question,), report = read(name, json.dumps(content))
            assert texts([question]) == [("Who?", "Ada")] and not report.drops


def test_gold_passages_of_other_projects():
    assert flat_ids([["p1"], ["p2"]]) == ["p1", "p2"] == flat_ids({"p1": 1, "p3": 0, "p2": 2})
    assert flat_ids([{"passage_id": 3, "title": "t"}]) == ["3"] and flat_ids("p1") == ["p1"]
    with pytest.raises(DataError, match="a choice of passages"):
        flat_ids([["p1", "p2"]])
    assert unpack("['a, b' \"c\"\n 'd']", "x", "y") == ["a, b", "c", "d"] and flat_texts(None) == []


def test_a_shape_that_nobody_knows_is_read_by_columns(read):
    record = {"content": "Who?", "label": ["Ada"], "ctx": ["p1"], "question": None}
    with pytest.raises(DataError, match=r"(?s)no question could.*its fields with columns") as caught:
        read("q.jsonl", [record])
    assert "'content', 'label', 'ctx'" in str(caught.value)
    columns = ["question=content", "answers = label", "supporting=ctx"]
    (question,), _ = read("q.jsonl", [record], columns=columns)
    assert (*texts([question]), question.supporting) == (("Who?", "Ada"), ("p1",))
    for wrong, message in (
        ("question=contents", "columns names 'contents', which no record has: did you mean 'content'"),
        ("questoin=content", "a question has no field 'questoin': did you mean 'question'"),
        ("content", "pairs such as 'question=prompt,answers=gold', but one is 'content'"),
    ):
        with pytest.raises(ConfigError, match=message):
            read("q.jsonl", [record], columns=[wrong])
    with pytest.raises(ConfigError, match="the dataset is hotpotqa: leave them out"):
        read("q.jsonl", [record], "hotpotqa", columns=columns)


def test_ids_that_were_used_before(read):
    again = [GOOD, GOOD, GOOD | {"question": "Where?"}, GOOD | {"question": "When?"}]
    questions, report = read("q.jsonl", again)
    assert [each.id for each in questions] == ["a", "a#2", "a#3"] and report.left_out == 1
    assert "a repeat of an earlier question of the same id" in report.drops
    assert any("line 3 and line 1" in tally.locations for tally in report.remarks.values())
    unnamed = [{"question": "Who?", "answer": "Ada"}, {"question": "Where?", "answer": "Ada"}]
    ids = [[each.id for each in read("q.jsonl", order)[0]] for order in (unnamed, unnamed[::-1])]
    assert ids[0] == ids[1][::-1] and len(set(ids[0])) == 2


def test_official_sets_lose_a_record_or_a_field_and_not_themselves(read):
    some = [
        {"id": "1", "question": "Who?", "golden_answers": ["Ada"]},
        {"id": "2", "question": "Where?", "golden_answers": []},
        {"id": 3, "question": "When?", "golden_answers": 1815, "metadata": "x"},
        {"question": "Which?", "golden_answers": [0], "choices": ["a"]},
    ]
    questions, report = read("nq.jsonl", some, "flashrag")
    assert texts(questions) == [("Who?", "Ada"), ("Where?",), ("When?", "1815")]
    assert list(report.drops) == [
        "this is a multiple-choice question, which no scorer here compares: use a set with text answers"
    ]
    assert "metadata left out: field 'metadata' must be an object, but is 'x'" in report.remarks
    hotpot = {"question": "Who?", "answer": 7, "context": [["Ada", "no list"]], "supporting_facts": []}
    (question,), report = read("h.json", [hotpot], "hotpotqa")
    assert texts([question]) == [("Who?", "7")] and question.id and question.supporting == ()
    assert any(each.startswith("context left out") for each in report.remarks)


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
    import pandas

    forms = [
        [GOOD | {"id": 1}],
        [("Who wrote Emma?", "Jane Austen")],
        [{"query": "Who wrote Emma?", "golden_answers": ["Jane Austen"]}],
        pandas.DataFrame([{"question": "Who wrote Emma?", "answer": "Jane Austen"}]),
        {"question": ["Who wrote Emma?"], "answer": ["Jane Austen"]},
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


def test_tables_of_other_libraries_from_python(tmp_path):
    import datasets
    import pandas
    import pyarrow

    rows = [{"id": 7, "question": "Who wrote Emma?", "answers": ["Jane Austen"]}]
    forms = [
        datasets.Dataset.from_list(rows),
        datasets.Dataset.from_list(rows).to_iterable_dataset(),
        pandas.DataFrame(rows),
        pyarrow.Table.from_pylist(rows),
        (each for each in rows),
    ]
    for number, form in enumerate(forms):
        file, _ = question_file(form, tmp_path / str(number), {})
        assert [(each.id, each.answers) for each in load_questions(file)] == [("7", ("Jane Austen",))]
    frame = tmp_path / "frame.parquet"
    pandas.DataFrame(rows).to_parquet(frame)  # lists come back as arrays of numpy
    file, _ = question_file(pandas.read_parquet(frame), tmp_path / "arrays", {})
    assert load_questions(file, strict=True)[0].answers == ("Jane Austen",)
    file, _ = question_file(pandas.Series(["Who?", "What?"]), tmp_path / "series", {})
    assert texts(load_questions(file)) == [("Who?",), ("What?",)]
    with raises_message(ConfigError):
        question_file(datasets.DatasetDict({"dev": forms[0]}), tmp_path / "splits", {})
    with raises_message(ConfigError):
        question_file("Who wrote Emma?", tmp_path / "bare", {})
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


def test_passages_and_hops_in_a_question_are_told_where_they_belong(read):
    record = {"id": "1", "question": "Who?", "answers": ["Ada"]}
    _, report = read("q.jsonl", [record | {"context": "Ada was ...", "decomposition": ["Who is it?"]}])
    remarks = " ".join(report.remarks)
    assert "'context' (passages belong in an index" in remarks
    assert 'a list of objects, such as [{"question": "...", "answer": "..."}]' in remarks


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
    @given(st.lists(st.lists(cells, min_size=3, max_size=3), min_size=1, max_size=6), st.sampled_from(",;\t"))
    def check(rows, separator):
        stream = io.StringIO()
        writer = csv.writer(stream, delimiter=separator, lineterminator="\n")
        answers = {"jsonl": "answers", "bamboogle": "Answer", "popqa": "possible_answers"}[dataset]
        writer.writerows([["id", "question", answers], *rows])
        file = tmp_path / ("q.tsv" if separator == "\t" else "q.csv")
        file.write_text(stream.getvalue())
        _check_counts(str(file), dataset, len(rows))

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
        assert "no question could be read" in str(error)
    assert len(questions) == report.question_count and report.records == n, report.lines()
    assert len({question.id for question in questions}) == len(questions)
    assert all(reason.strip() for reason in report.drops)
    for question in questions:
        assert question.text.strip() and question.id and all(map(str.strip, question.answers))
