"""Demonstration files in IRCoT's format, parsed and rebuilt without loss.

Demonstrations are separated by two blank lines. Each has a comment line with JSON metadata, paragraphs
("Wikipedia Title: T", then the text) separated by one blank line, a "Q:" line and an "A:" line.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from corag.core.errors import DataError, nearest
from corag.core.language.text import extract_answer, stated_answer
from corag.core.method import MethodConfig
from corag.core.options.names import NameOrPath
from corag.core.prompting.shorten import count_to_drop
from corag.core.system.files import keep_read, read_text

_METADATA = re.compile(r"^# METADATA: (.*)$")
SEPARATOR = "\n\n\n"
DEFAULT = "default"  # names the shipped demonstrations in place of a file
BESIDE = "beside"  # names the file of bare answers that lies beside the one with chains of thought
CHAIN_OF_THOUGHT = Path(__file__).parent / "shipped/demonstrations/chain_of_thought.txt"


@dataclass(frozen=True, slots=True)
class Demonstration:
    """One worked example.

    ``context`` is everything between the comment line and "Q:", separators included ("" if none).
    """

    qid: str
    context: str
    question: str
    answer: str
    comment: str = ""

    @property
    def text(self) -> str:
        """The example as it stands in a prompt, without its comment line."""
        return f"{self.context}Q: {self.question}\nA: {self.answer}"

    @property
    def states_answer(self) -> bool:
        """Whether a line of the answer says "So the answer is: X"."""
        return any(stated_answer(line) is not None for line in self.answer.splitlines())

    def direct(self) -> Demonstration:
        """The same example with the bare answer in place of the chain of thought."""
        return replace(self, answer=extract_answer(self.answer))

    def with_prefix(self, prefix: str, other_prefixes: Sequence[str]) -> Demonstration:
        """Return the example with a line before its question, in place of any of the other prefixes."""
        question = self.question
        for other in filter(None, other_prefixes if prefix else ()):
            question = question.removeprefix(f"{other}\n")
        return replace(self, question=add_prefix(question, prefix))


def add_prefix(question: str, prefix: str) -> str:
    r"""Return a question with a line before it; without one if that is "".

    >>> add_prefix("Who wrote Emma?", "Answer briefly.")
    'Answer briefly.\nWho wrote Emma?'
    """
    return f"{prefix}\n{question}" if prefix else question


def fit_demonstrations(
    demonstrations: Sequence[Demonstration], window: int, reply: int, count: Callable[[str], int]
) -> tuple[Demonstration, ...]:
    """Leave out the last demonstrations until the rest fit ``window`` tokens (IRCoT, released code).

    Room is kept for the question's own part, as long as the longest demonstration, and for ``reply`` tokens.
    A single demonstration stays. ``window`` 0 is no limit. ``count``: of a text's tokens.
    """
    if not window or len(demonstrations) == 1:
        return tuple(demonstrations)
    sizes = [count(each.text) for each in demonstrations]

    def excess(number: int) -> int:
        rest = sizes[: len(sizes) - number]
        return sum(rest) + max(rest, default=0) + reply - window

    return tuple(demonstrations[: len(sizes) - count_to_drop(excess, sizes[::-1])])


def demonstration_file(source: str, shipped_file: Path) -> str:
    """Return the file that an option means: "default" is the shipped one, any other the user's own."""
    return str(shipped_file) if source == DEFAULT else source


def parse_demonstrations(text: str, name: str) -> tuple[Demonstration, ...]:
    """Parse a file's text.

    Raises :class:`DataError` naming the demonstration that has no question or no answer.
    """
    demonstrations = []
    for number, block in enumerate(text.strip("\n").split(SEPARATOR), 1):
        comment, _, rest = (
            block.rpartition("\n# METADATA: ") if "\n# METADATA: " in block else ("", "", block)
        )
        first, _, body = rest.partition("\n")
        metadata = _METADATA.match(first)
        if metadata is None:
            first, body = "", block
        # The last "Q: " line: a paragraph may hold one too.
        head, question_mark, tail = ("\n" + body).rpartition("\nQ: ")
        question, answer_mark, answer = tail.partition("\nA: ")
        if not question_mark or not answer_mark or comment:
            raise DataError(
                f"{name}, demonstration {number}: expected paragraphs, then a line 'Q: ...' and a line 'A: "
                "...'."
            )
        context = head.removeprefix("\n") + "\n" if head.strip() else ""
        qid = _qid(metadata.group(1)) if metadata else str(number)
        demonstrations.append(Demonstration(qid, context, question, answer, first))
    return tuple(demonstrations)


def _qid(metadata: str) -> str:
    try:
        return str(json.loads(metadata).get("qid", ""))
    # No JSON, a number of thousands of digits, no object, brackets without end.
    except (ValueError, AttributeError, RecursionError):
        return ""


def rebuild(demonstrations: tuple[Demonstration, ...]) -> str:
    """Write demonstrations back in the file's format, the inverse of :func:`parse_demonstrations`."""
    return SEPARATOR.join(
        f"{demo.comment}\n{demo.text}" if demo.comment else demo.text for demo in demonstrations
    )


@keep_read
def read_demonstrations(path: str, count: int = 0, ids: tuple[str, ...] = ()) -> tuple[Demonstration, ...]:
    """Read the first ``count`` demonstrations of a file (0: all), or those with these ``ids``, in this order.

    ``path``: "" gives none. Raises :class:`DataError` for a file that cannot
    be read as such, or lacks an id.
    """
    if not path:
        return ()
    demonstrations = parse_demonstrations(read_text(path), path)
    if not ids:
        return demonstrations[:count] if count else demonstrations
    by_id = {demo.qid: demo for demo in demonstrations}
    if missing := [qid for qid in ids if qid not in by_id]:
        raise DataError(f"{path} has no demonstration '{missing[0]}': {nearest(missing[0], by_id)}")
    return tuple(by_id[qid] for qid in ids)


def bare_answers(
    demonstrations: Sequence[Demonstration], path: str, *, of_thoughts: bool = False
) -> tuple[Demonstration, ...]:
    """Return demonstrations with the answer that each states in place of its chain of thought.

    In a file of bare answers, where none states one, each is whole: even its full stop may belong to it.
    ``of_thoughts``: it is no such file. Raises :class:`DataError` for a chain that states no answer: it would
    be shown as the answer.
    """
    if not of_thoughts and not any(each.states_answer for each in demonstrations):
        return tuple(demonstrations)
    for each in demonstrations:
        if not each.states_answer:
            raise DataError(
                f"{path}, demonstration '{each.qid}': expected a line 'A: ...' that ends in 'So the answer "
                "is: X.', since the answer alone is shown here: write it so (a file that has nothing but "
                "bare answers is one for reader_demonstrations)."
            )
    return tuple(each.direct() for each in demonstrations)


@dataclass(frozen=True)
class DemonstrationConfig(MethodConfig):
    """Options of a method that shows worked examples.

    One whose examples have a form of their own overrides ``shipped_examples``.
    """

    demonstrations: NameOrPath = ""
    """file of few-shot demonstrations in IRCoT's format with chains of thought, "default" for the four
    shipped ones, or ""."""

    demonstration_count: int = 0
    """use the first n demonstrations; 0 for all."""

    demonstration_ids: list[str] = field(default_factory=list)
    """use the demonstrations with these qids instead, in this order (IRCoT's paper draws three sets of
    15)."""

    def shipped_examples(self) -> Path:
        """The file that "default" stands for."""
        return CHAIN_OF_THOUGHT

    def examples(self) -> tuple[Demonstration, ...]:
        """Load the demonstrations."""
        file = demonstration_file(self.demonstrations, self.shipped_examples())
        return read_demonstrations(file, self.demonstration_count, tuple(self.demonstration_ids))

    def few_shot_fields(self) -> tuple[str, ...]:
        """The field that a prompt must have if there are demonstrations: they are shown nowhere else."""
        return ("demonstrations",) if self.demonstrations else ()

    def files(self) -> Mapping[str, str]:
        """The file of demonstrations."""
        source = self.demonstrations
        return {source: demonstration_file(source, self.shipped_examples())} if source else {}

    def check_files(self) -> None:
        """Load prompts and demonstrations."""
        super().check_files()
        self.examples()
