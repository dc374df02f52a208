"""Finished runs on the same questions: each is read once, checked, and scored once."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from corag.core.errors import ConfigError, CoragError, DataError, reason
from corag.core.options.classes import Options
from corag.core.options.names import NameOrPath
from corag.core.own_objects import is_user_object
from corag.core.runs.folder import read_rows
from corag.core.runs.manifest import CHAINS, MANIFEST, VERDICTS, Manifest
from corag.core.runs.provenance import Provenance
from corag.core.runs.rows import SavedRow
from corag.core.types import Passage, Question
from corag.core.web.hub_files import PREFIX, local_folder
from eval.datasets.answers import write_answers
from eval.datasets.corpora import index_aliases
from eval.scoring.rankings import find_ranking_measures, score_rankings
from eval.scoring.rows import Measures, PassageTexts, ScoredRow, group_by_measure, score_rows
from eval.scoring.scorers import Scorer, choose_scorer, scorer_title, script_note
from retrieval.search.places import open_passages
from retrieval.search.stage import PassageSource

if TYPE_CHECKING:
    from ir_measures import Measure


@dataclass(frozen=True)
class Runs(Options):
    """What a command on finished runs is given."""

    runs: list[NameOrPath] = field(default_factory=list)
    """one or more run folders, or shared ones (hub:OWNER/NAME); "NAME=FOLDER" says what to call a run."""

    def __post_init__(self) -> None:
        if not self.runs:
            raise ConfigError(f"no run was given: write {self.usage()}")
        # Two paths to one folder would be one row under one name, or two under two.
        if len({Path(run).resolve() for run in self.runs}) < len(self.runs):
            raise ConfigError("a run was given twice: name each once.")

    def usage(self) -> str:
        """The command line to write, for the message about missing runs."""
        return "RUN RUN ..."

    def by_name(self) -> dict[str, Path]:
        """Return the folders, each by the name that was given, that its sweep gave it, or by its path."""
        pairs = list(map(_split_name, self.runs))
        given = [name for name, _ in pairs if name]
        if repeated := [name for name in given if given.count(name) > 1]:
            raise ConfigError(f"several runs are given the name '{repeated[0]}': give each its own.")
        folders = [local_folder(path) for _, path in pairs]
        by_path = name_folders([Path(path.removeprefix(PREFIX)) for _, path in pairs])
        names = [name or recorded_name(folder) for (name, _), folder in zip(pairs, folders, strict=True)]
        names = [name or other for name, other in zip(names, by_path, strict=True)]
        if len({*names}) < len(names):  # what was given stays
            names = [name or other for (name, _), other in zip(pairs, by_path, strict=True)]
        if repeated := [name for name in names if names.count(name) > 1]:
            raise ConfigError(f"another run is called '{repeated[0]}': give it another name, or both.")
        return dict(zip(names, folders, strict=True))


def _split_name(run: str) -> tuple[str, str]:
    """Return the name that a run is given as NAME=FOLDER, "" for none, and its folder."""
    name, _, folder = run.partition("=")
    return (name, folder) if folder and Path(folder).exists() and not Path(run).exists() else ("", run)


def recorded_name(folder: Path) -> str:
    """Return what a run was called by its sweep, "" if its folder is called so, or it is of no sweep."""
    file = folder / MANIFEST
    return str(Manifest.read(folder).last.record.get("name", "")) if file.is_file() else ""


def name_folders(folders: Sequence[Path]) -> list[str]:
    """Call each folder by the part of its path that tells it from the others.

    >>> name_folders([Path("out/untuned/test/corag"), Path("out/round-1/test/corag")])
    ['untuned', 'round-1']
    >>> name_folders([Path("out/one_step"), Path("out/round-1/test/corag")])
    ['one_step', 'round-1/test/corag']
    """
    paths = [list(folder.parts) for folder in folders]
    if len(paths) == 1:
        return [folders[0].name]
    while len({path[0] for path in paths}) == 1 and min(map(len, paths)) > 1:
        paths = [path[1:] for path in paths]
    while len({path[-1] for path in paths}) == 1 and min(map(len, paths)) > 1:
        paths = [path[:-1] for path in paths]
    return ["/".join(path) for path in paths]


@dataclass(frozen=True)
class Run:
    """A finished run: read from disk once, then passed on.

    Attributes:
        name: what tables call it.
        folder: where it lies.
        manifest: its settings and starts.
        rows: by question id.
        scored_rows: its rows with their scores; none before :meth:`score`.
    """

    name: str
    folder: Path
    manifest: Manifest
    rows: Mapping[str, SavedRow]
    scored_rows: Sequence[ScoredRow] = ()

    def on(self, questions: Sequence[Question]) -> Run:
        """Return the run with its rows of these questions, in their order and with their gold answers."""
        # The folder may hold more, if it was made with a larger limit; and aliases may have been added to the
        # question file since. Gold passages are the row's own: those that the index had that was searched.
        rows = {
            each.id: replace(row, question=replace(each, supporting=row.question.supporting))
            for each in questions
            if (row := self.rows.get(each.id)) is not None
        }
        return replace(self, rows=rows, scored_rows=())

    def score(
        self,
        scorer: Scorer,
        recall_at: int,
        texts: PassageTexts | None = None,
        rankings: Collection[Measure] = (),
    ) -> Run:
        """Return the run with the scores of its rows; there is no recall if its method does not search.

        ``texts``: returns the passages' texts, to look for gold answers in them. ``rankings``: measures of
        the passages' order.
        """
        searches, aliases = self.manifest.searches, index_aliases(self.manifest.last)
        rows = self.rows.values()
        scored_rows = score_rows(rows, scorer, recall_at, searches=searches, texts=texts, aliases=aliases)
        values = score_rankings(rows, rankings, aliases) if rankings and searches else {}
        return replace(self, scored_rows=[_with_rankings(each, values) for each in scored_rows])

    @property
    def failed_ids(self) -> frozenset[str]:
        """The ids of its failed questions."""
        return frozenset(name for name, row in self.rows.items() if row.answer is None)

    @cached_property
    def measures(self) -> Measures:
        """Its scores by measure and question id."""
        return group_by_measure(self.scored_rows)


def _with_rankings(each: ScoredRow, values: Measures) -> ScoredRow:
    further = {**each.scores.further, **values.get(each.row.question.id, {})}
    return each._replace(scores=replace(each.scores, further=further))


def read_runs(folders: Mapping[str, Path]) -> list[Run]:
    """Read runs by name.

    Raises :class:`ConfigError` for a folder that holds no answers, and for runs of different question files,
    before any row is read; :class:`DataError` for rows that cannot be read.
    """
    manifests = {name: read_answers_manifest(folder) for name, folder in folders.items()}
    first, *others = (Provenance({"questions": manifest.questions}) for manifest in manifests.values())
    for other in others:
        if changes := first.differences(other):
            raise ConfigError(
                f"the runs answered different question files ({'; '.join(changes)}): give runs on the same "
                "file."
            )
    return [Run(name, folder, manifests[name], read_rows(folder)) for name, folder in folders.items()]


def read_run(name: str, folder: Path) -> Run:
    """Read one run. Raises :class:`ConfigError` if it holds no answers."""
    return read_runs({name: folder})[0]


def write_run_answers(
    runs: Mapping[str, Path], file: str | Path, questions: Sequence[Question] | None = None
) -> int:
    """Write the answers of finished runs, by name, to a .jsonl or .csv file; return how many there are.

    ``questions``: those to keep to, in their order; without, all of the runs' own. Raises as
    :func:`eval.datasets.answers.write_answers` does.
    """
    loaded_runs = {name: read_run(name, Path(folder)) for name, folder in runs.items()}
    if questions is not None:
        loaded_runs = {name: run.on(questions) for name, run in loaded_runs.items()}
    return write_answers({name: run.rows for name, run in loaded_runs.items()}, file)


def read_answers_manifest(run: Path) -> Manifest:
    """Read a run's manifest.

    Raises :class:`ConfigError` if it holds chains for training or a judge's verdicts, not answers.
    """
    manifest = Manifest.read(run)
    if manifest.method == CHAINS:
        raise ConfigError(f"'{run}' holds sampled chains, which have no answers: give runs of 'corag run'.")
    if manifest.method == VERDICTS:
        raise ConfigError(f"'{run}' holds a judge's verdicts on the run '{run.parent}': give that one.")
    return manifest


@dataclass(frozen=True)
class ScoredRuns:
    """Runs on the questions that all of them have, scored alike; of a service each has its own questions.

    Attributes:
        runs: in the order given, each with its rows of the ``questions`` and their scores.
        questions: in the order of the first run.
        scorer: what answers were scored by.
        scoring: what to call it in a sentence, with the files that it needed.
        recall_at: recall was measured over so many passages.
        notes: which questions are left out, whose gold answers count where the runs keep others, how many of
            those the scorer was not made for, and which runs never found a gold passage that they could not
            look up.
        is_paired: whether all runs have the same questions; without, nothing can be tested.
    """

    runs: Sequence[Run]
    questions: Sequence[Question]
    scorer: Scorer
    scoring: str
    recall_at: int
    notes: Sequence[str] = ()
    is_paired: bool = True

    @property
    def measures(self) -> dict[str, Measures]:
        """The scores by run, measure and question id."""
        return {run.name: run.measures for run in self.runs}

    @property
    def failed_ids(self) -> dict[str, frozenset[str]]:
        """The ids of the failed questions by run."""
        return {run.name: run.failed_ids for run in self.runs}


def score_runs(
    runs: Sequence[Run],
    scorer: str = "auto",
    recall_at: int = 0,
    *,
    stored_gold: bool = True,
    aliases: str | None = None,
    answer_recall: bool = False,
    measures: Sequence[str] = (),
) -> ScoredRuns:
    """Score runs on the questions that all of them have, by the first run's gold answers.

    Runs of a service stand side by side, each on the questions that it was asked.

    Args:
        runs: the runs, at least one.
        scorer: how answers are scored; "auto" takes that of the first run's last start.
        recall_at: recall is measured over so many passages; 0 takes that of the same start.
        stored_gold: whether gold answers are those that the runs keep, which may differ and then are noted.
        aliases: of gold answers that are not, the hash of their file of aliases, "" for none, None unknown.
        answer_recall: whether gold answers are looked for in the passages' texts, too.
        measures: names, of which those of rankings are computed.

    Raises:
        ConfigError: if the runs have no question in common, and for a measure that cannot be computed.
    """
    is_paired = len(runs) < 2 or not all(run.manifest.is_served for run in runs)
    # A service has a folder for each preset, asked or not, and new ones after its index has changed.
    unasked_runs = [] if is_paired else [run.name for run in runs if not run.rows]
    runs = [run for run in runs if run.name not in unasked_runs] or runs
    questions = common_questions(runs) if is_paired else _every_question(runs)
    start = runs[0].manifest.last
    rule = choose_scorer(start.scorer if scorer == "auto" else scorer, runs[0].manifest.dataset)
    depth = recall_at or start.recall_at
    rankings = find_ranking_measures(measures, depth).values()
    scored_runs = []
    for run in (run.on(questions) for run in runs):
        texts = passage_texts(run) if answer_recall and run.manifest.searches else None
        scored_runs.append(run.score(rule, depth, texts, rankings))
    notes = [
        _unfinished_note(runs, questions) if is_paired else _side_by_side_note(unasked_runs),
        _gold_note(runs) if stored_gold else "",
        script_note(rule, questions),
        *map(_unfound_gold_note, scored_runs),
    ]
    if stored_gold:  # of starts with different ones the rows tell
        aliases = start.aliases if len({each.aliases for each in runs[0].manifest.starts}) == 1 else ""
    title = scorer_title(rule, questions, aliases)
    return ScoredRuns(scored_runs, questions, rule, title, depth, list(filter(None, notes)), is_paired)


def passage_texts(run: Run) -> PassageTexts:
    """Return a reader of the texts of the passages that a run searched in its last start.

    It reads the store beside the index, which needs no search engine; of plain Lucene indexes and of
    Pyserini's prebuilt ones, the index itself. Raises :class:`ConfigError` if no index of the run has its
    texts here; the reader raises :class:`DataError` for an id that it lacks.
    """
    sources: list[PassageSource] = []
    failures = []
    for index in run.manifest.last.index:
        try:
            sources += filter(None, [open_passages(index)])
        except CoragError as error:
            failures.append(f" ({reason(error).rstrip('.')})")
    if not sources:
        raise ConfigError(
            f"the texts of the passages of '{run.name}' are not at hand: "
            f"{run.manifest.last.searched_sources} is neither the folder of an index made by 'corag index' "
            f"nor a Lucene index with its texts{''.join(failures[:1])}. Leave 'answer_recall' out."
        )

    def read_texts(ids: Sequence[str]) -> list[str]:
        passages: dict[str, Passage] = {}
        for source in sources:
            passages |= source.passages([name for name in ids if name not in passages])
        if missing := [name for name in ids if name not in passages]:
            raise DataError(
                f"the indexes of '{run.name}' were built anew: they have no passage '{missing[0]}'."
            )
        return [passages[name].contents for name in ids]

    return read_texts


def _side_by_side_note(unasked_runs: Sequence[str]) -> str:
    left_out = f" Left out, asked nothing yet: {', '.join(unasked_runs)}." if unasked_runs else ""
    return (
        "Each run was asked questions of its own, by a service: they stand side by side, and nothing is "
        f"tested.{left_out}"
    )


def _every_question(runs: Sequence[Run]) -> list[Question]:
    """Return the questions of all runs. Raises :class:`ConfigError` if one has none."""
    if empty := [run.name for run in runs if not run.rows]:
        raise ConfigError(f"the run '{empty[0]}' has no finished question yet: wait for it, or leave it out.")
    return list({name: row.question for run in runs for name, row in run.rows.items()}.values())


def common_questions(runs: Sequence[Run]) -> list[Question]:
    """Return the questions that every run has answered or failed at, as the first run has them.

    Raises :class:`ConfigError` if there are none.
    """
    _every_question(runs)
    shared = set.intersection(*(set(run.rows) for run in runs))
    if not shared:
        raise ConfigError("the runs have no question in common: answer the same questions with each.")
    return [row.question for name, row in runs[0].rows.items() if name in shared]


def _unfinished_note(runs: Sequence[Run], questions: Sequence[Question]) -> str:
    """Return how many questions are left out since some run has not answered them; "" if none are."""
    count = len({name for run in runs for name in run.rows})
    lacking = [f"'{run.name}' lacks {count - len(run.rows):,}" for run in runs if len(run.rows) < count]
    left_out = f"{count - len(questions):,} of {count:,} questions are left out"
    return f"{left_out}: {', '.join(lacking)} of them." if lacking else ""


def _unfound_gold_note(run: Run) -> str:
    """Return that a run with a retriever of the user's own never found a gold passage; "" if it did.

    The ids of such a retriever cannot be looked up, so they may be others than the question file's.
    """
    recall = run.measures.get("recall", {})
    found = next((row.passage_ids[0] for row in run.rows.values() if row.passage_ids), "")
    if (
        not any(map(is_user_object, run.manifest.last.index))
        or not found
        or not recall
        or any(recall.values())
    ):
        return ""
    gold = next((row.question.supporting[0] for row in run.rows.values() if row.question.supporting), "")
    return (
        f"'{run.name}' found no gold passage at all, such as '{gold}'; what it found has ids such as "
        f"'{found}'. Recall compares 'supporting' with the ids, titles and files of passages."
    )


def _gold_note(runs: Sequence[Run]) -> str:
    """Return where the gold answers that runs keep differ, as after a change of --aliases; "" if nowhere."""
    first, *others = runs
    parts = []
    for run in others:
        pairs = [
            (row.question, first.rows[key].question) for key, row in run.rows.items() if key in first.rows
        ]
        if change_count := sum(one.answers != other.answers for one, other in pairs):
            parts.append(
                f"'{run.name}' keeps others than '{first.name}' for {change_count:,} of {len(pairs):,} "
                "questions"
            )
    for run in runs:
        if len({start.aliases for start in run.manifest.starts if start.aliases is not None}) > 1:
            parts.append(f"the starts of '{run.name}' had different aliases")
    return (
        f"Stored gold answers differ: {'; '.join(parts)}. All runs are scored by those of '{first.name}'."
        if parts
        else ""
    )
