"""What the product does, through its public doors, written down: one function for each part of the record.

The imports below are all that must follow when modules move. Every part works in the current folder, which
is a temporary one, by relative names, so that no path of this machine gets into a file.
"""

from __future__ import annotations

import base64
import contextlib
import gzip
import hashlib
import io
import os
import re
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields
from itertools import product
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

import orjson

from corag import (
    CoragError,
    Passage,
    RowsConfig,
    SampleConfig,
    ask,
    load_questions,
    make_rows,
    open_index,
    open_model,
    report,
    run,
    sample_chains,
    sweep,
)  # fmt: skip
from corag.cli.commands import COMMANDS
from corag.cli.main import main
from eval.api import judge
from eval.datasets import DATASETS
from eval.experiment.registry import METHODS
from eval.exporting import FORMATS as EXPORTS
from eval.tables.formats import FORMS
from eval.tables.records import records_csv
from retrieval.corpora.formats import read_corpus
from retrieval.corpora.sifting import CorpusReport
from tests.fakes import ScriptedGenerator, WordRetriever
from tests.record.world import MODEL, PASSAGES, questions, scripted_model, write_reply
from tests.record.writing import REPOSITORY, prompt_lines, write
from tests.retrieval.document_files import docx_bytes, pdf_bytes
from training.row_tasks import ROW_TASKS

STRATEGIES: list[dict[str, Any]] = [
    *({"strategy": name} for name in ("greedy", "best_of_n", "tree")),
    {"strategy": "adaptive", "rank_by": "vote"},
]
CROSSED: list[dict[str, Any]] = [  # with each strategy of CoRAG
    *({"rank_by": name} for name in ("probability", "refusals", "vote", "probability+refusal")),
    *({"stop": name} for name in ("check", "settled", "learned")),
    *({"context": name} for name in ("chain", "fused", "evidence")),
    {"compare": "rules"},
    {"measure": ["refusal", "probability"]},
    *({"preset": name} for name in ("small_model", "lean", "released_code")),
]
BUDGETS = (400, 1500)  # tokens a question: for one or two requests, and for some steps
WINDOW = 450  # tokens of a model that cannot read all that methods show
FAILING = "Fenwick"  # searches for it fail in the runs of tables
CASES = Path(os.environ.get("CORAG_CASES") or REPOSITORY.parent / "shared" / "cases")
COMPARED = {
    "one_step": ("one_step", {}),
    "react": ("react", {}),
    "greedy": ("corag", {"max_hops": 3}),
    "best of 4": ("corag", {"strategy": "best_of_n", "chains": 4, "max_hops": 3, "measure": ["refusal"]}),
}
VIEWS = {
    "baseline": ["--baseline", "one_step"],
    "disagreements": ["--baseline", "one_step", "--disagreements", "5"],
    "kinds": ["--kinds", "comparison"],
    "hops": ["--min_hops", "3"],
}
SEARCHES = {
    "plain": ["bm25"],
    "links": ["bm25", "--retriever.links", "titles"],
    "parameters": ["bm25", "--retriever.k1", "1.2", "--retriever.b", "0.75"],
    "fused": ["bm25,notes"],
}
REQUIRED = {  # what a command wants before it prints its options
    "sweep": ["--questions", "q.jsonl", "--grid", "{method: one_step}"],
    "rows": ["chains/a", "--out", "rows/a", "--index", "i"],
    "pairs": ["chains/a", "--out", "pairs/a", "--index", "i"],
    "train": ["--rows", "rows/a", "--out", "adapters/a"],
    "train distill": ["--rows", "rows/a", "--out", "adapters/a"],
    "train encoder": ["--pairs", "pairs/a", "--out", "encoders/a"],
    "train reranker": ["--pairs", "pairs/a", "--out", "rerankers/a"],
    "rounds": ["--questions", "q.jsonl", "--out", "rounds/a", "--index", "i"],
    "merge": ["adapters/a", "--out", "models/a"],
    "export": ["runs/a", "--to", "trec", "--out", "a.trec"],
    "push": ["runs/a", "owner/name"],
    "index": ["corpus.jsonl", "--out", "indexes/a"],
    "search": ["indexes/a", "words"],
    "serve": ["indexes/a"],
    "world": ["world"],
    **{name: ["--questions", "q.jsonl"] for name in ("run", "sample")},
    **{name: ["runs/a"] for name in ("table", "show")},
}


# ---- methods


def record_methods(out: Path, names: Sequence[str] = tuple(METHODS)) -> None:
    """Record each preset and budget on all questions, and each single choice on two of them."""
    for name in names:
        kind, refused = METHODS[name].config, {}
        for title, options in presets(kind):
            refused[title] = record_run(out / name / title, name, options)
        for budget, options in product(BUDGETS, STRATEGIES if name == "corag" else [{}]):
            title = " ".join([f"budget={budget}", *options.values()])
            refused[title] = record_run(out / name / title, name, options, budget=budget)
        refused["window"] = record_window(out / name / "window.txt", name)
        for options in choices(kind):
            title = " ".join(f"{option}={value}" for option, value in options.items())
            refused[title] = record_run(out / name / "choices" / title, name, options, count=2)
        write(out / name / "refused.json", {title: reason for title, reason in refused.items() if reason})


def presets(config: type[Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield each preset by its name, and the same with the shipped demonstrations where there are some."""
    names = {each.name for each in fields(config)}
    for preset in config.PRESETS or ("",):
        options = {"preset": preset} if preset else {}
        yield preset or "defaults", options
        if "demonstrations" in names:
            yield f"{preset or 'defaults'} few-shot", options | {"demonstrations": "default"}


def choices(config: type[Any]) -> Iterator[dict[str, Any]]:
    """Yield each option's other choices, one at a time; CoRAG's strategies with what they differ in, too."""
    kinds, defaults = get_type_hints(config), config()
    for name in (each.name for each in fields(config) if each.name != "preset"):
        yield from ({name: value} for value in values_of(kinds[name]) if value != getattr(defaults, name))
    if hasattr(defaults, "strategy"):
        yield from (strategy | crossed for strategy, crossed in product(STRATEGIES, CROSSED))


def values_of(kind: Any) -> tuple[Any, ...]:
    """Return the values that an option may have, () if any of a type."""
    return (False, True) if kind is bool else get_args(kind) if get_origin(kind) is Literal else ()


def record_run(out: Path, method: str, options: Mapping[str, Any], count: int = 4, **run_options: Any) -> str:
    """Answer questions and record all of it; return the sentence that refuses the options, if one does."""
    model, folder = scripted_model(), Path("runs", hashlib.sha256(str(out).encode()).hexdigest()[:12])
    given = (method, dict(options))
    try:
        with contextlib.redirect_stderr(io.StringIO()) as said:
            run(
                questions(count), {"run": given}, model, WordRetriever(PASSAGES), out=folder,
                keep_prompts=True, batch_size=1, **run_options,
            )  # fmt: skip
    except CoragError as error:
        return str(error)
    manifest = orjson.loads((folder / "run/manifest.json").read_bytes())
    write(out / "rows.json", read_rows(folder / "run"))
    write(out / "settings.json", manifest["settings"])
    write(out / "prompts.txt", "\n".join(prompt_lines(requests_of(model))))
    notes = notes_in(said.getvalue())
    if count > 2:
        answered = ask(
            questions(1)[0]["question"], method, scripted_model(), WordRetriever(PASSAGES), options
        )
        notes.append(str(answered))
    write(out / "shown.txt", "\n".join(notes))
    return ""


def record_window(out: Path, method: str) -> str:
    """Record the prompts that a function gets as a model of a small window; return the refusal, as above."""
    wanted: list[tuple[str, str]] = []

    def model(prompt: str, max_tokens: int, temperature: float, seed: int | None = None) -> str:
        wanted.append((prompt, f"max_tokens={max_tokens} temperature={temperature}"))
        return write_reply(prompt, seed)

    try:
        opened = open_model(model, max_context=WINDOW)
        shown = [str(ask(each["question"], method, opened, WordRetriever(PASSAGES))) for each in questions(2)]
    except CoragError as error:
        return str(error)
    write(out, "\n".join([*shown, *prompt_lines(wanted)]))
    return ""


def read_rows(run_folder: Path) -> list[dict[str, Any]]:
    """Return a run's rows by id, without their questions, which stand in world.json."""
    lines = [line for file in run_folder.glob("*.jsonl") for line in file.read_bytes().splitlines()]
    rows = sorted(map(orjson.loads, lines), key=lambda row: row["id"])
    return [{name: value for name, value in row.items() if name != "question"} for row in rows]


def notes_in(said: str) -> list[str]:
    """Return what was printed to a reader, but for progress."""
    return [line for line in said.splitlines() if line.startswith("corag:") and " is open (" not in line]


def requests_of(model: ScriptedGenerator) -> list[tuple[str, str]]:
    """Return the prompts that a model was given, each with its turns and what was wanted of it."""
    wanted = []
    for each in (*model.requests, *model.scored):
        sampling = getattr(each, "sampling", None)
        how = changed(sampling) if sampling else f"score {each.target!r}"
        prompt = each.prompt
        turns = "text" if prompt.plain else ", ".join(message.role for message in prompt.messages)
        wanted.append((prompt.text, f"{how} ({turns}, begun: {prompt.prefix[-40:]!r})"))
    return wanted


def changed(options: Any) -> str:
    """Return an object's fields that are not as its class has them."""
    values = {
        each.name: getattr(options, each.name)
        for each in fields(options)
        if getattr(options, each.name) != each.default
    }
    return "generate " + ", ".join(f"{name}={value!r}" for name, value in values.items())


# ---- finished runs


def record_command(out: Path, *argv: str) -> None:
    """Call the command line and record what it prints and returns."""
    printed, said = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(said):
        try:
            status = main(argv)
        except SystemExit as end:
            status = int(end.code or 0)
    notes = notes_in(said.getvalue())
    write(out, "\n".join([f"$ corag {' '.join(argv)}", printed.getvalue(), *notes, f"status {status}"]))


def record_tables(out: Path) -> None:
    """Record tables of a few runs in every form and view, and all else that reads finished runs."""
    index = WordRetriever(PASSAGES, failing=FAILING)
    options: Any = {"max_failed": 99, "repeats": 2, "batch_size": 1}
    results = run(questions(20), COMPARED, scripted_model(), index, out="compared", **options)
    set_times(Path("compared"))
    write(out / "results.csv", records_csv(results.records()))
    runs = [f"compared/{folder.name}" for folder in sorted(Path("compared").iterdir()) if folder.is_dir()]
    first = [each for each in runs if "seed" not in each]
    for form in FORMS | {"text": None, "json": None}:
        record_command(out / f"table.{form}.txt", "table", *first, "--baseline", "one_step", "--to", form)
    for name, view in VIEWS.items():
        record_command(out / f"table {name}.txt", "table", *first, *view)
    record_command(out / "table seeds.txt", "table", *runs, "--over", "seeds")
    record_command(out / "ledger.txt", "table", *first, "--ledger")
    record_command(out / "ceiling.txt", "table", first[0], "--ceiling")
    for name in first:
        record_command(out / "show" / f"{Path(name).name}.txt", "show", name)
        record_command(out / "show" / f"{Path(name).name} q1.txt", "show", name, "q1")
    record_opening(out, first)
    record_exports(out, first[0])
    record_report(out, results)


def record_opening(out: Path, runs: Sequence[str]) -> None:
    """Record what opens a model and an index: run, ask and judge."""
    Path("own.py").write_text("from tests.record.world import INDEX, MODEL\n")
    model, index = ["--model", "own.py:MODEL"], ["--index", "own.py:INDEX"]
    options = ["--questions", "compared/questions.jsonl", "--out", "again", "--answers_to", "answers.csv"]
    for _ in range(2):  # the second time all is answered, and times are set
        record_command(
            out / "run.txt", "run", *options, "--method", "one_step,ircot", *model, *index, "--json"
        )  # fmt: skip
        set_times(Path("again"))
    write(out / "answers.csv", Path("answers.csv").read_text(encoding="utf-8"))
    asked = questions(1)[0]["question"]
    record_command(out / "ask.txt", "ask", asked, "--method", "corag", *model, *index)
    verdicts = judge(runs, MODEL)
    write(out / "judge.json", {name: each.to_json() for name, each in verdicts.items()})


def set_times(folder: Path) -> None:
    """Let all rows under a folder have taken a second each, in place: tables then are equal each time."""
    for file in folder.rglob("*.jsonl"):
        file.write_bytes(
            re.sub(rb'("(?:seconds|begun|opened|started)":)[\d.e-]+', rb"\g<1>1.0", file.read_bytes())
        )


def record_exports(out: Path, folder: str) -> None:
    """Record a run in the formats of other tools."""
    for form in EXPORTS:
        record_command(out / f"export {form}.txt", "export", folder, "--to", form, "--out", f"export.{form}")
    for file in (file for path in Path().glob("export.*") for file in (path, *path.rglob("*"))):
        if file.is_file():
            write(out / "exported" / file, file.read_text(encoding="utf-8"))


def record_report(out: Path, results: Any) -> None:
    """Record a report's page: what needs no script, and its data, plain JSON or JSON that is zipped."""
    page = report(results, "report.html", WordRetriever(PASSAGES), baseline="one_step").read_text(
        encoding="utf-8"
    )
    shown = page.partition("<main>")[2].partition('<section id="questions"')[0]
    write(out / "report" / "page.html", shown.replace("><", ">\n<"))
    for name, data in re.findall(
        r'<script type="application/[\w-]+" id="([\w-]+)">(.*?)</script>', page, re.DOTALL
    ):
        text = data if data.lstrip().startswith("{") else gzip.decompress(base64.b64decode(data))
        write(out / "report" / f"{name}.json", orjson.loads(text))


def record_sweep(out: Path) -> None:
    """Record a sweep of cells and a grid with questions to choose by, budgets and all its text files."""
    cells = {name: given for name, given in COMPARED.items() if name != "react"}
    asked, dev = questions(20)[:12], questions(20)[12:]
    for _ in range(2):  # the second only reads, after times are set
        result = sweep(
            asked, cells, scripted_model(), WordRetriever(PASSAGES), out="swept", dev=dev,
            budgets=[400, 4000], batch_size=1, grid={"method": "corag", "corag.max_hops": [1, 2, 4, 5]},
        )  # fmt: skip
        set_times(Path("swept"))
    write(out / "printed.txt", str(result))
    write(out / "sweep.json", orjson.loads(Path("swept/sweep.json").read_bytes()))
    write(out / "sweep.csv", Path("swept/sweep.csv").read_text(encoding="utf-8"))
    write(out / "files.txt", "\n".join(sorted(str(file) for file in Path("swept").glob("*"))))


# ---- training data


def record_chains(out: Path) -> None:
    """Record chains of every source, and the rows of all tasks that are made of them: text and token ids."""
    index = open_index(WordRetriever(PASSAGES))
    for source in get_args(get_type_hints(SampleConfig)["source"]):
        model, folder = scripted_model(), Path("chains", source)
        config = SampleConfig(source=source, chains=4, max_hops=3)
        chains = sample_chains(
            questions(8), open_model(model), index, out=folder, config=config, batch_size=1
        )  # fmt: skip
        write(out / source / "chains.json", read_rows(folder))
        write(out / source / "prompts.txt", "\n".join(prompt_lines(requests_of(model))))
        record_command(out / source / "show.txt", "show", str(folder), "q1")
        tasks = tuple(
            name
            for name, task in ROW_TASKS.items()
            if task.of_thoughts == (source == "thoughts") and (source == "decomposition" or name != "refusal")
        )
        made = RowsConfig(tasks=tasks, ratio=1.0, validation=0.3)
        rows = make_rows(chains, index, out=f"rows/{source}", model="default", config=made)
        write(out / source / "rows.txt", str(rows))
        write(out / source / "rows.json", {split: list(each) for split, each in rows.load().items()})
        record_command(out / source / "show rows.txt", "show", f"rows/{source}", "q1")


# ---- indexes


def record_index(out: Path) -> None:
    """Record a BM25 index of the world and one of a document, and what they find, alone and fused."""
    records = [{"id": each.id, "title": each.title, "text": each.text} for each in PASSAGES]
    Path("corpus.jsonl").write_bytes(b"\n".join(map(orjson.dumps, records)))
    Path("notes.md").write_text("# Rivers\n\nThe Issel floods in May.\n\n# Towns\n\nFenwick has a bridge.\n")
    for source, folder in (("corpus.jsonl", "bm25"), ("notes.md", "notes")):
        record_command(out / f"index {folder}.txt", "index", source, "--out", folder)
        manifest = orjson.loads(Path(folder, "corag_index.json").read_bytes())
        write(out / f"{folder}.json", {name: manifest[name] for name in ("settings", "passages", "notes")})
    for name, options in SEARCHES.items():
        for record in questions(4):
            file = out / name / f"{record['id']}.txt"
            record_command(file, "search", options[0], record["question"], "--k", "5", *options[1:])


# ---- documents, questions and commands


def record_cases(out: Path) -> None:
    """Record the passages of the shared cases and of two small documents, and the questions among them."""
    table = [["Grade", "Days"], ["junior", "25"]]
    Path("own.docx").write_bytes(docx_bytes([("Heading 1", "Leave"), ("Normal", "Thirty days.")], table))
    Path("own.pdf").write_bytes(pdf_bytes([["Thirty days", "of leave."], ["And one."]], title="Leave"))
    if CASES.is_dir():
        shutil.copytree(CASES, "cases")
    else:
        write(out / "absent.txt", "there is no folder of shared cases: name it in $CORAG_CASES")
    for file in sorted(file for file in Path().rglob("*") if file.is_file()):
        if file.name == "comparisons.jsonl":
            compared = map(compare, map(orjson.loads, file.read_bytes().splitlines()))
            write(out / "comparisons.txt", "\n".join(compared))
        elif file.parent.name in ("questions", "qrels"):
            write(out / f"{file}.txt", questions_of(file))
        elif file.suffix not in (".md", ".jinja", ".json"):
            for form in ("auto", "dpr") if file.suffix == ".tsv" else ("auto",):
                write(out / f"{file}.{form}.txt", passages_of(file, form))


def passages_of(file: Path, form: str) -> str:
    """Return a corpus file's passages in lines: id, title, place, a digest of the text and its beginning."""
    report, lines = CorpusReport(), list[str]()
    try:
        for each in read_corpus([file], form, report):
            digest = hashlib.sha256(each.text.encode()).hexdigest()[:12]
            lines.append(" | ".join((each.id, each.title, each.origin, digest, repr(each.text[:80]))))
    except CoragError as error:
        lines.append(str(error))
    return "\n".join([*lines, *(each.note for each in report.files)])


def questions_of(file: Path) -> str:
    """Return the questions of a file in lines, and what is said of it."""
    dataset = "beir" if file.parent.name == "qrels" else "jsonl"
    try:
        with contextlib.redirect_stderr(io.StringIO()) as said:
            read = load_questions(str(file), dataset=dataset)
    except CoragError as error:
        return str(error)
    return "\n".join([*(repr(each)[:400] for each in read), said.getvalue()])


def compare(case: dict[str, Any]) -> str:
    """Return what CoRAG's rules make of a comparison whose chain is given; "MODEL" if nothing."""
    queries, answers = (iter([hop[place] for hop in case["hops"]]) for place in (0, 1))

    def reply(request: Any) -> list[str]:
        if request.prompt.prefix.strip() == "Next question:":
            return [next(queries, "What else?")]
        return ["MODEL" if "Main question:" in request.prompt.text else next(answers, "unknown")]

    options = {"compare": "rules", "max_hops": len(case["hops"])}
    index = WordRetriever([Passage("1", "", "how did in is was what when where which who many")])
    answered = ask(case["question"], "corag", ScriptedGenerator(reply), index, options)
    chain = answered.metadata["chains"][0]
    hops = [(hop["sub_query"], hop["sub_answer"]) for hop in chain["hops"]]
    return f"{case['question']} {hops} -> {answered.text or answered.error}"


def record_commands(out: Path) -> None:
    """Record the help and the options of every command, and every list."""
    record_command(out / "help.txt", "--help")
    for name in COMMANDS:
        words = name.split()
        record_command(out / name / "help.txt", *words, "--help")
        record_command(out / name / "help all.txt", *words, "--help", "all")
        record_command(out / name / "options.yaml", *words, *REQUIRED.get(name, []), "--print_config")
    for name in ("", *METHODS, *DATASETS):
        record_command(out / "list" / f"{name or 'all'}.txt", "list", *([name] if name else []))


PARTS: dict[str, Callable[[Path], None]] = {
    "methods": record_methods,
    "tables": record_tables,
    "sweep": record_sweep,
    "chains": record_chains,
    "index": record_index,
    "cases": record_cases,
    "commands": record_commands,
}
