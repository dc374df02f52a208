"""The help of a command, written from the sentences under its options.

The short one, a screenful, has a line for each option of the command itself, for those of a section that
are needed often, and for those of the sections that were chosen. The long one has all of a section, or
everything.
"""

from __future__ import annotations

import ast
import inspect
import shutil
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import MISSING, Field, dataclass, fields, is_dataclass
from functools import cached_property, lru_cache
from itertools import pairwise
from textwrap import dedent, fill, wrap
from typing import Any, NamedTuple, cast

from corag.core.errors import ConfigError, nearest
from corag.core.method import MethodConfig
from corag.core.option_names import Mark, choices_of, kinds_of, marked_options

LINES = 59
COLUMNS = 110
EVERYTHING = "all"
_FEWEST = 3  # options of a section, below which it is better not begun
_NAME, _DEFAULT = 32, 14  # columns at most; a longer name pushes its line to the right, a default is cut


class HelpLine(NamedTuple):
    """A line of the short help: an option, its default, and what it does."""

    name: str
    default: str
    description: str


@dataclass(frozen=True)
class Section:
    """The options of one dataclass, to be shown under one heading.

    Attributes:
        prefix: what their names begin with, dot included; "" for the command's own.
        kind: the dataclass.
        about: what stands under its field in the class above.
        values: an instance with the defaults; None where some have none.
    """

    prefix: str
    kind: type[Any]
    about: str = ""
    values: Any = None

    @property
    def name(self) -> str:
        """The prefix without its dot."""
        return self.prefix.removesuffix(".")

    @cached_property
    def texts(self) -> dict[str, str]:
        """What stands under the fields."""
        return dict(descriptions(self.kind))

    def options(self) -> list[Field[Any]]:
        """The fields that are no sections: the class's own first, then those of its bases."""
        kinds = kinds_of(cast("Any", self.kind))
        options = [each for each in fields(self.kind) if not is_dataclass(kinds[each.name])]
        class_annotations = inspect.get_annotations(self.kind)
        return (
            sorted(options, key=lambda each: each.name not in class_annotations) if self.prefix else options
        )

    def default(self, option: Field[Any]) -> str:
        """Write an option's default, "" if there is none."""
        if self.values is not None:
            value = getattr(self.values, option.name)
        elif option.default_factory is not MISSING:
            value = option.default_factory()
        else:
            value = "" if option.default is MISSING else option.default
        if isinstance(value, list | tuple):
            return ",".join(map(str, value))
        if isinstance(value, bool):
            return str(value).lower()
        return " ".join(str(value).split()) if value not in (None, {}) else ""

    def rows(self, names: Collection[str] = ()) -> list[HelpLine]:
        """Return a line for each option, or for those that are wanted."""
        return [
            HelpLine(f"--{self.prefix}{each.name}", self.default(each), self.texts.get(each.name, ""))
            for each in self.options()
            if not names or each.name in names
        ]

    def in_full(self) -> Iterator[str]:
        """Yield all there is to say of each option: default, choices, other names, and what it does."""
        for each in self.options():
            others = [
                f"--{self.prefix}{alias}"
                for alias, option in self.kind.ALIASES.items()
                if option == each.name
            ]
            choices = ", ".join(map(str, choices_of(each.name, self.kind)))
            notes = [f"one of {choices}"] * bool(choices) + [f"also {', '.join(others)}"] * bool(others)
            yield f"  --{self.prefix}{each.name} {_clip(self.default(each), 60)}".rstrip()
            for text in (self.texts.get(each.name, ""), "; ".join(notes)):
                if text:
                    indent = " " * 8
                    yield fill(text, _columns() - 2, initial_indent=indent, subsequent_indent=indent)


def help_text(
    config: type[Any],
    prog: str,
    summary: str,
    positional: str,
    topic: str,
    left_out: Collection[str],
    flags: Mapping[str, str],
) -> str:
    """Return the help of a command.

    Args:
        config: the dataclass of its options.
        prog: its name.
        summary: what it does, in a line.
        positional: the option that a bare argument sets.
        topic: "" for the short help, "all" for everything, or a section's name.
        left_out: sections that the short help passes over, since others were chosen.
        flags: what the program takes off the command line itself, and what it does.

    Raises:
        ConfigError: for a section that is none.
    """
    main_section, *sections = sections_to_show(config)
    if topic and topic != EVERYTHING:
        by_name = {section.name: section for section in sections}
        if topic not in by_name:
            raise ConfigError(f"there is no help on '{topic}': {nearest(topic, [*by_name, EVERYTHING])}")
        return "\n".join([_heading(by_name[topic]), *by_name[topic].in_full()])
    bare = "".join(f" [{name.upper()}]" for name in positional.split())
    head = [f"usage: {prog}{bare} [--option value ...] [--config FILE.yaml ...]", f"{_sentence(summary)}", ""]
    flag_lines = [HelpLine(f"--{name}", "", text) for name, text in flags.items()]
    if topic == EVERYTHING:
        parts = [line for section in sections for line in ("", _heading(section), *section.in_full())]
        return "\n".join([*head, *main_section.in_full(), *_write_rows(flag_lines), *parts])
    foot = ["", *_next_steps(config, prog, sections, left_out)]
    lines: list[str | HelpLine] = [*head, *main_section.rows(), *flag_lines]
    for section in _frequent_sections(sections):
        lines += ["", _heading(section), *section.rows(marked_options(section.kind, Mark.OFTEN))]
    in_full = _sections_in_full(config, sections, left_out)
    for number, section in enumerate(in_full):
        room = (LINES - len(lines) - len(foot)) // (len(in_full) - number)
        lines += _fit(section, room, prog)
    return "\n".join(_write_rows([*lines, *foot]))


def descriptions(config: type[Any]) -> Iterator[tuple[str, str]]:
    """Yield (option, the sentence under it), from the bases down, so that the last one counts."""
    for part in reversed(config.__mro__):
        yield from _sentences(part)


@lru_cache(maxsize=512)
def _sentences(part: type[Any]) -> list[tuple[str, str]]:
    """Return (field, the text under it) of a class's own fields; none where there is no source to read."""
    try:
        (tree,) = ast.parse(dedent(inspect.getsource(part))).body
    except (OSError, TypeError):  # made at run time, or typed into an interpreter
        return []
    sentences = []
    for pair in pairwise(cast("ast.ClassDef", tree).body):
        match pair:
            case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(text))):
                sentences.append((name, " ".join(text.replace("``", "").split())))
    return sentences


def sections_to_show(
    config: type[Any], prefix: str = "", about: str = "", values: Any = None
) -> Iterator[Section]:
    """Yield a dataclass as a section, then those nested in it."""
    section = Section(prefix, config, about, values)
    yield section
    kinds = kinds_of(cast("Any", config))
    for each in fields(config):
        if is_dataclass(kinds[each.name]):
            default = each.default_factory() if each.default_factory is not MISSING else None
            text = (
                each.metadata["method"].summary
                if "method" in each.metadata
                else section.texts.get(each.name, "")
            )
            yield from sections_to_show(kinds[each.name], f"{prefix}{each.name}.", text, default)


def _write_rows(lines: Sequence[str | HelpLine]) -> list[str]:
    """Write rows in columns: names, defaults, and as much of the descriptions as fits on the line."""
    rows = [line for line in lines if isinstance(line, HelpLine)]
    wide = min(_NAME, max((len(row.name) for row in rows), default=0))
    narrow = min(_DEFAULT, max((len(row.default) for row in rows), default=0))

    def write_row(row: HelpLine) -> str:
        start = f"  {row.name:<{wide}}  {_clip(row.default, narrow):<{narrow}}  "
        return (start + _clip(row.description, max(20, _columns() - len(start)))).rstrip()

    return [write_row(line) if isinstance(line, HelpLine) else line for line in lines]


def _frequent_sections(sections: Sequence[Section]) -> list[Section]:
    """Return the sections that say which of their options are needed often, outermost ones only."""
    return [each for each in sections if marked_options(each.kind, Mark.OFTEN) and "." not in each.name]


def _sections_in_full(
    config: type[Any], sections: Sequence[Section], left_out: Collection[str]
) -> list[Section]:
    """Return the sections to show in full: those chosen, or all that are about this command alone."""
    by_choice = bool(config.CHOICE)
    return [
        each
        for each in sections
        if "." not in each.name
        and each.name not in left_out
        and not marked_options(each.kind, Mark.OFTEN)
        and issubclass(each.kind, MethodConfig) == by_choice
    ]


def _fit(section: Section, room: int, prog: str) -> list[str | HelpLine]:
    """Return a section in so many lines at most; nothing if not even a few of its options fit."""
    rows, room = section.rows(), room - 2
    if len(rows) <= room:
        return ["", _heading(section), *rows]
    line_count = room - 1
    if line_count < _FEWEST:
        return []
    rest = f"  and {len(rows) - line_count} more: {prog} --help {section.name}"
    return ["", _heading(section), *rows[:line_count], rest]


def _next_steps(
    config: type[Any], prog: str, sections: Sequence[Section], left_out: Collection[str]
) -> list[str]:
    """Say how to see the rest."""
    yaml = f"All options as YAML, to be read back with --config: {prog} --print_config"
    names = [each.name for each in sections if each.name not in left_out]
    if not names:
        return [yaml]
    ways = [f"All of a section ({', '.join(names)}): {prog} --help SECTION ('all': everything)"]
    if left_out:
        option = config.CHOICE
        ways.append(f"The options of another {option}: {prog} --{option} {option.upper()} --help")
    return [line for way in ways for line in wrap(way, _columns())] + [yaml]


def _heading(section: Section) -> str:
    return _clip(f"{section.name}: {section.about}" if section.about else section.name, _columns())


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}{'' if text.endswith('.') else '.'}"


def _clip(text: str, columns: int) -> str:
    """Cut a text at the end of a clause, or of a word, so that it fits."""
    if len(text) <= columns:
        return text
    beginning = text[: columns - 1]
    space = beginning.rfind(" ")
    return f"{beginning[: space if space > columns // 2 else None].rstrip(' ,;:(.')}…"


def _columns() -> int:
    """A terminal's columns, and no more than reads well."""
    return min(COLUMNS, shutil.get_terminal_size().columns) if sys.stdout.isatty() else COLUMNS
