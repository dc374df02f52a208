"""What can go wrong, as sentences: what was given, what was expected, what to do next.

The command line prints a :class:`CoragError` without a traceback and exits with status 2, or with 1 for a
:class:`BackendError`: what was asked for could be done, but was not. Anything else that escapes is a defect
of ours and keeps its traceback.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class CoragError(Exception):
    """Base of every error that a user can cause or can do something about.

    Messages are written with the options of the command line; ``str`` of an error has them as whoever called
    needs them (:mod:`corag.core.callers`).
    """

    def __str__(self) -> str:
        from corag.core.callers import for_caller  # which knows the options, above this

        return for_caller(super().__str__())


class ConfigError(CoragError):
    """An option, a configuration file or a combination of settings that cannot be used."""


class ConfigFileError(ConfigError):
    """A configuration file that cannot be used. Its options are named as it has them, whoever called."""

    def __str__(self) -> str:
        return Exception.__str__(self)


class DataError(CoragError):
    """A corpus, question or prompt file that cannot be read as what it should be."""


class IndexMismatchError(CoragError):
    """An index folder that is missing, incomplete, or was built for something else."""


class BackendError(CoragError):
    """The engine, server or index behind a whole run has failed: going on would fail every question."""


class SearchFailedError(CoragError):
    """One search failed.

    This is not an empty result: the question is recorded as failed and retried on resume.
    """


class RequestRefusedError(CoragError):
    """One request for text, scores or a vector can never be served: its prompt cannot fit the window, say."""


class BudgetExhaustedError(CoragError):
    """A question's token budget is spent. Methods catch it and answer with what they have."""


def nearest(name: str, names: Iterable[str]) -> str:
    """Return a hint naming the closest known spelling, or all of them when nothing is close.

    >>> nearest("irct", ["ircot", "one_step"])
    "did you mean 'ircot'?"
    >>> nearest("k", ["one_step.k", "drag.k", "seed"])
    "did you mean 'drag.k' or 'one_step.k'?"
    """
    options = sorted(names)
    if sections := [option for option in options if option.endswith(f".{name}")]:
        return f"did you mean {' or '.join(repr(option) for option in sections[:5])}?"
    close = difflib.get_close_matches(name, options, n=1, cutoff=0.5)
    if close:
        return f"did you mean '{close[0]}'?"
    return "known: " + ", ".join(options)


def reason(error: BaseException) -> str:
    r"""Return the first line of what an error says, or its type: for a sentence that names the cause.

    >>> reason(ValueError("no such file\nlook elsewhere"))
    'no such file'
    """
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__
