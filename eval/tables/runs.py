"""Finished runs on the same questions: each is read once, checked, and scored once."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from corag.core.errors import ConfigError
from corag.core.hub_files import PREFIX, local_folder
from corag.core.option_names import NameOrPath
from corag.core.options import Options
from corag.core.own_objects import is_user_object
from corag.core.runs.folder import read_rows
from corag.core.runs.manifest import CHAINS, VERDICTS, Manifest
from corag.core.runs.provenance import Provenance
from corag.core.runs.rows import SavedRow
from corag.core.types import Question
from eval.datasets.answers import write_answers
from eval.datasets.corpora import index_aliases
from eval.datasets.pages import judged_pages
from eval.datasets.trec import Judgements
from eval.scoring.rankings import find_ranking_measures, score_rankings
from eval.scoring.rows import Measures, PassageTexts, ScoredRow, group_by_measure, score_rows
from eval.scoring.scorers import Scorer, choose_scorer, scorer_title, script_note

if TYPE_CHECKING:
    from ir_measures import Measure

NO_TEXTS: Mapping[str, PassageTexts] = {}
SIDE_BY_SIDE = (
    "Each run was asked questions of its own, by a service: they stand side by side, and nothing is tested."
)
"""What a table says of runs that have no question in common since a service asked them."""


@dataclass(frozen=True)
class Runs(Options):
    """What a command on finished runs is given."""

    runs: list[NameOrPath] = field(default_factory=list)
    """one or more run folders, or shared ones (hub:OWNER/NAME)."""

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
        """Return the folders, each by the part of its path that tells it from the others."""
        names = name_folders([Path(run.removeprefix(PREFIX)) for run in self.runs])
        return dict(zip(names, map(local_folder, self.runs), strict=True))


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
        has_answers: whether its questions were answered; a TREC run has rankings only.
    """

    name: str
    folder: Path
    manifest: Manifest
    rows: Mapping[str, SavedRow]
    scored_rows: Sequence[ScoredRow] = ()
    has_answers: bool = True

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

    def with_judgements(self, judgements: Judgements) -> Run:
        """Return the run with judgements in the place of its questions' gold passages, or gold pages."""
        rows, by_page = {}, any(row.question.pages for row in self.rows.values())
        for name, row in self.rows.items():
            relevant = tuple(each for each, grade in judgements.get(name, {}).items() if grade > 0)
            pages = judged_pages(relevant, row.question.pages) if by_page else ()
            rows[name] = replace(row, question=replace(row.question, supporting=relevant, pages=pages))
        return replace(self, rows=rows, scored_rows=())

    def score(
        self,
        scorer: Scorer,
        recall_at: int,
        texts: PassageTexts | None = None,
        rankings: Collection[Measure] = (),
        judgements: Judgements | None = None,
    ) -> Run:
        """Return the run with the scores of its rows; there is no recall if its method does not search.

        ``texts``: returns the passages' texts, to look for gold answers in them. ``rankings``: measures of
        the passages' order, by the grades of ``judgements`` if there are any. A question that these do not
        judge has no recall, whatever the scorer wants.
        """
        if judgements is not None:
            scorer = replace(scorer, wants_pages=False)
        searches, aliases = self.manifest.searches, index_aliases(self.manifest.last.index)
        rows = self.rows.values()
        scored_rows = score_rows(rows, scorer, recall_at, searches=searches, texts=texts, aliases=aliases)
        values = score_rankings(rows, rankings, aliases, judgements) if rankings and searches else {}
        return replace(self, scored_rows=[self._with_ranking(each, values) for each in scored_rows])

    def _with_ranking(self, each: ScoredRow, values: Measures) -> ScoredRow:
        further = {**each.scores.further, **values.get(each.row.question.id, {})}
        scores = replace(each.scores, is_scored=each.scores.is_scored and self.has_answers, further=further)
        return each._replace(scores=scores)

    @property
    def failed_ids(self) -> frozenset[str]:
        """The ids of its failed questions."""
        return frozenset(name for name, row in self.rows.items() if row.answer is None)

    @cached_property
    def measures(self) -> Measures:
        """Its scores by measure and question id."""
        return group_by_measure(self.scored_rows)


def read_manifests(folders: Mapping[str, Path]) -> dict[str, Manifest]:
    """Read the manifests of runs by name, and nothing else: before the rows, options are checked.

    Raises :class:`ConfigError` for a folder that holds no answers, and for runs of different question files.
    """
    manifests = {name: read_answers_manifest(folder) for name, folder in folders.items()}
    check_same_file(list(manifests.values()))
    return manifests


def read_runs(folders: Mapping[str, Path], manifests: Mapping[str, Manifest] | None = None) -> list[Run]:
    """Read runs by name. ``manifests``: what :func:`read_manifests` returned, if that was done before.

    Raises :class:`ConfigError` as that does, and :class:`DataError` for rows that cannot be read.
    """
    manifests = read_manifests(folders) if manifests is None else manifests
    return [Run(name, folder, manifests[name], read_rows(folder)) for name, folder in folders.items()]


def read_run(name: str, folder: Path) -> Run:
    """Read one run. Raises :class:`ConfigError` if it holds no answers."""
    return Run(name, folder, read_answers_manifest(folder), read_rows(folder))


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


def check_same_file(manifests: Sequence[Manifest]) -> None:
    """Raise :class:`ConfigError` unless the runs of these manifests answered the same question file."""
    first, *others = (Provenance({"questions": manifest.questions}) for manifest in manifests)
    for other in others:
        if changes := first.differences(other):
            raise ConfigError(
                f"the runs answered different question files ({'; '.join(changes)}): give runs on the same "
                "file."
            )


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
            those the scorer was not made for, and which runs never found a gold passage that nobody could
            look up.
        left_out: how many questions some run lacks.
        is_paired: whether all runs have the same questions; without, nothing can be tested.
    """

    runs: Sequence[Run]
    questions: Sequence[Question]
    scorer: Scorer
    scoring: str
    recall_at: int
    notes: Sequence[str] = ()
    left_out: int = 0
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
    texts: Mapping[str, PassageTexts] = NO_TEXTS,
    *,
    stored_gold: bool = True,
    measures: Sequence[str] = (),
    judgements: Judgements | None = None,
) -> ScoredRuns:
    """Score runs on the questions that all of them have, by the first run's gold answers.

    Runs of a service stand side by side, each on the questions that it was asked.

    Args:
        runs: the runs, at least one.
        scorer: how answers are scored; "auto" takes that of the first run's last start.
        recall_at: recall is measured over so many passages; 0 takes that of the same start.
        texts: returns passages' texts, for some runs by name.
        stored_gold: whether gold answers are those that the runs keep, which may differ and then are noted.
        measures: names, of which those of rankings are computed.
        judgements: take the place of the questions' gold passages.

    Raises:
        ConfigError: if the runs have no question in common, and for a measure that cannot be computed.
    """
    is_paired = len(runs) < 2 or not all(run.manifest.is_served for run in runs)
    # A service has a folder for each preset, asked or not, and new ones after its index has changed.
    unasked_runs = [] if is_paired else [run.name for run in runs if not run.rows]
    runs = [run for run in runs if run.name not in unasked_runs] or runs
    questions = common_questions(runs) if is_paired else every_question(runs)
    start = runs[0].manifest.last
    rule = choose_scorer(start.scorer if scorer == "auto" else scorer, runs[0].manifest.dataset)
    depth = recall_at or start.recall_at
    rankings = find_ranking_measures(measures, depth).values()
    selected_runs = [run.on(questions) for run in runs]
    if judgements is not None:
        selected_runs = [run.with_judgements(judgements) for run in selected_runs]
    scored_runs = [run.score(rule, depth, texts.get(run.name), rankings, judgements) for run in selected_runs]
    title = scorer_title(rule, questions, start.aliases)
    gold = gold_note(runs) if stored_gold else ""
    notes = [
        unfinished_note(runs, questions) if is_paired else SIDE_BY_SIDE,
        unasked_note(unasked_runs),
        gold,
    ]
    notes += [
        script_note(rule, questions),
        *map(unfound_gold_note, scored_runs),
        *map(lines_note, scored_runs),
    ]
    notes = list(filter(None, notes))
    left_out = len({name for run in runs for name in run.rows}) - len(questions)
    return ScoredRuns(scored_runs, questions, rule, title, depth, notes, left_out, is_paired)


def every_question(runs: Sequence[Run]) -> list[Question]:
    """Return the questions of all runs. Raises :class:`ConfigError` if one has none."""
    _require_rows(runs)
    return list({name: row.question for run in runs for name, row in run.rows.items()}.values())


def _require_rows(runs: Sequence[Run]) -> None:
    if empty := [run.name for run in runs if not run.rows]:
        raise ConfigError(f"the run '{empty[0]}' has no finished question yet: wait for it, or leave it out.")


def common_questions(runs: Sequence[Run]) -> list[Question]:
    """Return the questions that every run has answered or failed at, as the first run has them.

    Raises :class:`ConfigError` if there are none.
    """
    _require_rows(runs)
    first, *others = runs
    questions = [
        row.question for name, row in first.rows.items() if all(name in other.rows for other in others)
    ]
    if not questions:
        raise ConfigError("the runs have no question in common: answer the same questions with each.")
    return questions


def unfinished_note(runs: Sequence[Run], questions: Sequence[Question]) -> str:
    """Return how many questions are left out since some run has not answered them; "" if none are."""
    every = {name for run in runs for name in run.rows}
    lacking = [
        f"'{run.name}' lacks {len(every) - len(run.rows):,}" for run in runs if len(run.rows) < len(every)
    ]
    left_out = len(every) - len(questions)
    return (
        f"{left_out:,} of {len(every):,} questions are left out: {', '.join(lacking)} of them."
        if left_out
        else ""
    )


def unasked_note(names: Sequence[str]) -> str:
    """Return that runs of a service are left out since nobody has asked them anything; "" for none."""
    return f"Asked nothing yet, so left out: {', '.join(names)}." if names else ""


def unfound_gold_note(run: Run) -> str:
    """Return that a run with a retriever of the user's own never found a gold passage; "" if it did.

    Which ids such a retriever has nobody can look up, so they may be others than the question file's. So of
    a TREC run.
    """
    recall = run.measures.get("recall", {})
    example = next((row.passage_ids[0] for row in run.rows.values() if row.passage_ids), "")
    retriever_names = (
        ", ".join(filter(is_user_object, run.manifest.last.index)) if run.has_answers else str(run.folder)
    )
    if not retriever_names or not example or not recall or any(recall.values()):
        return ""  # it is no such retriever, nothing was collected or measured, or gold was found
    gold = next((row.question.supporting[0] for row in run.rows.values() if row.question.supporting), "")
    return (
        f"'{run.name}' found no gold passage at all, such as '{gold}'; what it found has ids such as "
        f"'{example}'. Recall compares 'supporting' with the ids, titles and files of what {retriever_names} "
        "returns."
    )


def lines_note(run: Run) -> str:
    """Return how many questions a TREC run has no line for; "" for none, and for other runs."""
    missing = 0 if run.has_answers else sum(not row.passage_ids for row in run.rows.values())
    questions = f"{missing:,} of {len(run.rows):,} questions"
    return f"'{run.name}' has no line for {questions}: it found nothing for them." if missing else ""


def gold_note(runs: Sequence[Run]) -> str:
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
