"""Options of methods and commands for the site, from the same classes that make the command line."""

from __future__ import annotations

import html
from collections.abc import Iterator
from typing import get_type_hints

from corag.cli.commands import COMMANDS, load_command
from corag.core.options.help import Section, sections_to_show
from eval.experiment.registry import METHODS


def options_of_method(name: str) -> str:
    """Return a method's presets and options as Markdown."""
    config = METHODS[name].config
    presets = []
    for preset, values in config.PRESETS.items():
        preset_options = " ".join(f"`{each}={value}`" for each, value in values.items())
        presets.append(f"| `{preset}` | {preset_options or 'the defaults'} |")
    table = ["| preset | stands for |", "| --- | --- |", *presets, ""] if presets else []
    section = Section(f"{name}.", config, values=config())
    return "\n".join([*table, *_options(section)])


def commands(_: str) -> str:
    """Return every command with its own options, then the sections that several share, as Markdown."""
    lines: list[str] = []
    shared_sections: dict[str, Section] = {}
    for name, command in COMMANDS.items():
        hints = get_type_hints(load_command(name).main)
        (kind,) = (each for at, each in hints.items() if at != "return")
        command_section, *sections = sections_to_show(kind)
        lines += [f"## corag {name}", "", f"{command.summary[0].upper()}{command.summary[1:]}.", ""]
        lines += _options(command_section)
        others = [each for each in sections if each.name not in METHODS and list(each.options())]
        shared_sections |= {each.name: each for each in others if each.name not in shared_sections}
        names = ", ".join(f"[`--{each.name}.*`](#{_anchor(each)})" for each in others)
        lines += [f"Further options: {names}.", ""] if names else []
    for section in shared_sections.values():
        about = f"{section.about[0].upper()}{section.about[1:].rstrip('.')}." if section.about else ""
        lines += [
            f"## --{section.name}.* {{ #{_anchor(section)} }}",
            "",
            _plain(about),
            "",
            *_options(section),
        ]
    return "\n".join(lines)


def _options(section: Section) -> Iterator[str]:
    """Yield the lines of a table of a section's options."""
    yield from ("| option | default | what |", "| --- | --- | --- |")
    for name, default, text in section.rows():
        short = default if len(default) <= 60 else f"{default[:59]}…"
        yield f"| `{name}` | {f'`{_plain(short)}`' if short else ''} | {_plain(text)} |"
    yield ""


def _anchor(section: Section) -> str:
    return f"options-{section.name.replace('.', '-')}"


def _plain(text: str) -> str:
    """Return text that Markdown's tables leave as it is."""
    html_text = html.escape(text, quote=False) if "`" not in text else text
    return html_text.replace("|", "&#124;").replace("*", "\\*").replace("_", "\\_").replace("[", "\\[")
