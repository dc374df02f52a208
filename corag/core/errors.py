"""What can go wrong, as sentences: what was given, what was expected, what to do next.

The command line prints a :class:`CoragError` without a traceback and exits with status 2, or with 1 for a
:class:`BackendError`: what was asked for could be done, but was not. Anything else that escapes is a defect
of ours and keeps its traceback.
"""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterable


class CoragError(Exception):
    """Base of every error that a user can cause or can do something about.

    Messages name an option by its path, with its value where there is one: ``model.max_context=4096``. That
    reads alike from the command line, a file, Python, a sweep's cell and the service.
    """


class ConfigError(CoragError):
    """An option, a configuration file or a combination of settings that cannot be used."""


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


def nearest(
    name: str, names: Collection[str], *, prefix: str = "", otherwise: str | None = None, cutoff: float = 0.6
) -> str:
    """Return a hint naming the closest known spelling; if nothing is close ``otherwise``, or all of them.

    ``prefix``: of the names, as the hint has them.

    >>> nearest("irct", ["ircot", "one_step"])
    "did you mean 'ircot'?"
    >>> nearest("k", ["one_step.k", "drag.k", "seed"])
    "did you mean 'drag.k' or 'one_step.k'?"
    """
    known: dict[str, list[str]] = {}
    for option in sorted(set(names)):
        for spelling in {option, option.rpartition(".")[2]}:
            known.setdefault(spelling, []).append(option)
    close = difflib.get_close_matches(name, known, n=1, cutoff=cutoff)
    # Or a word of the name that was meant, such as "budget" of "paragraph_budget".
    for spelling in close or [each for each in known if f"_{name}_" in f"_{each}_"][:1]:
        return f"did you mean {' or '.join(repr(prefix + option) for option in known[spelling][:5])}?"
    return "known: " + ", ".join(sorted(set(names))) if otherwise is None else otherwise


def in_a_row(things: Iterable[object]) -> str:
    """Write some names or numbers one after the other.

    >>> in_a_row(["a"]), in_a_row([1, 2, 3])
    ('a', '1, 2 and 3')
    """
    texts = list(map(str, things))
    return " and ".join(filter(None, [", ".join(texts[:-1]), *texts[-1:]]))


def reason(error: BaseException) -> str:
    r"""Return the first line of what an error says, or its type: for a sentence that names the cause.

    >>> reason(ValueError("no such file\nlook elsewhere"))
    'no such file'
    """
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__
