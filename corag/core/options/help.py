"""The help of a command, written from the sentences under its options.

The short one has a line for each option of the command itself and for those of its sections that are needed
often. That on a section has all of it, as that on "all" has of everything.
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
from textwrap import dedent, fill, shorten, wrap
from typing import Any, cast

from corag.core.errors import ConfigError, nearest
from corag.core.options.names import Mark, choices_of, kinds_of, marked_options

COLUMNS = 110
EVERYTHING = "all"
_DEFAULT = 14  # columns of a default
Row = tuple[str, str, str]
"""An option's name, its default, and what it does."""


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
        """The fields that are no sections: those of the class itself first, which are more its own."""
        kinds, own = kinds_of(cast("Any", self.kind)), inspect.get_annotations(self.kind)
        options = [each for each in fields(self.kind) if not is_dataclass(kinds[each.name])]
        return sorted(options, key=lambda each: bool(self.prefix) and each.name not in own)

    def default(self, option: Field[Any]) -> str:
        """Write an option's default, "" if there is none."""
        value = option.default if option.default_factory is MISSING else option.default_factory()
        value = value if self.values is None else getattr(self.values, option.name)
        if isinstance(value, list | tuple):
            return ",".join(map(str, value))
        if isinstance(value, bool):
            return str(value).lower()
        return "" if value in (None, {}, MISSING) else " ".join(str(value).split())

    def rows(self, names: Collection[str] = (), *, in_full: bool = False) -> list[Row]:
        """Return a row for each option, or for those wanted; in full with choices and other names."""
        return [
            (f"--{self.prefix}{each.name}", self.default(each), self._describe(each.name, in_full))
            for each in self.options()
            if not names or each.name in names
        ]

    def _describe(self, option: str, in_full: bool) -> str:
        text = self.texts.get(option, "")
        choices = ", ".join(map(str, choices_of(option, self.kind)))
        others = ", ".join(alias for alias, name in self.kind.ALIASES.items() if name == option)
        notes = (f"One of {choices}." if choices else "", f"Also: {others}." if others else "")
        return " ".join(filter(None, (text, *notes))) if in_full else text


def help_text(config: type[Any], prog: str, summary: str, positional: str, topic: str) -> str:
    """Return the help of a command.

    Args:
        config: the dataclass of its options.
        prog: its name.
        summary: what it does, in a line.
        positional: the options that bare arguments set.
        topic: a section's name, "all", or "" for the short help.

    Raises:
        ConfigError: for a section that is none.
    """
    main_section, *sections = sections_to_show(config)
    by_name = {section.name: section for section in sections}
    if topic and topic not in (*by_name, EVERYTHING):
        raise ConfigError(f"there is no help on '{topic}': {nearest(topic, [*by_name, EVERYTHING])}")
    if topic:
        chosen = [main_section, *sections] if topic == EVERYTHING else [by_name[topic]]
        return _render({_heading(each): each.rows(in_full=True) for each in chosen}, in_full=True)
    bare = "".join(f" [{name.upper()}]" for name in positional.split())
    usage = f"usage: {prog}{bare} [--option value ...] [--config FILE.yaml ...]"
    blocks = {f"{usage}\n{summary[:1].upper()}{summary[1:]}.\n": main_section.rows()}
    for section in sections:
        if (names := marked_options(section.kind, Mark.OFTEN)) and "." not in section.name:
            blocks[f"\n{_heading(section)}"] = section.rows(names)
    topics = ", ".join(each for each in by_name if "." not in each)
    section_help = fill(f"All of a section: {prog} --help SECTION ({topics}, all)", _columns())
    yaml_help = f"All as YAML, to be read back with --config: {prog} --print_config"
    return "\n".join([_render(blocks), "", *[section_help] * bool(topics), yaml_help])


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


def _heading(section: Section) -> str:
    about = f": {section.about}" if section.about else ""
    return shorten(f"{section.name}{about}", _columns(), placeholder="…")


def _columns() -> int:
    """A terminal's columns, and no more than reads well."""
    return min(COLUMNS, shutil.get_terminal_size().columns) if sys.stdout.isatty() else COLUMNS


def _render(blocks: Mapping[str, Sequence[Row]], *, in_full: bool = False) -> str:
    """Write rows in columns under headings: descriptions in full, or as much of each as fits on its line."""
    wide = max((len(name) for rows in blocks.values() for name, *_ in rows), default=0)
    lines = []
    for heading, rows in blocks.items():
        lines.append(heading)
        for name, default, text in rows:
            short_default = default if len(default) <= _DEFAULT else f"{default[: _DEFAULT - 1]}…"
            start = f"  {name:<{wide}}  {short_default:<{_DEFAULT}}  "
            room = _columns() - len(start)
            parts = wrap(text, room) if in_full else [shorten(text, room, placeholder="…")]
            lines += [
                f"{start if n == 0 else ' ' * len(start)}{part}" for n, part in enumerate(parts or [""])
            ]
    return "\n".join(line.rstrip() for line in lines)
