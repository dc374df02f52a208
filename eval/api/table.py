"""A results table, from Python: printed as 'corag table' prints it, or taken along in other forms."""

from __future__ import annotations

import html
from dataclasses import dataclass
from typing import Any

from corag.core.system.installation import require
from eval.tables.formats import to_latex, to_markdown
from eval.tables.printing import print_results, render_text
from eval.tables.records import table_records, to_csv
from eval.tables.results import ResultsTable


@dataclass(frozen=True, repr=False)
class Table:
    """A results table.

    ``print`` shows it as 'corag table' does, with all that must be known beside the figures. ``to_pandas``
    and ``to_csv`` have a line per run, with the tests if there is a baseline; ``to_latex`` and
    ``to_markdown`` are for papers.

    A table that lists disagreements is printed, or taken by ``to_json``: the others raise
    :class:`ConfigError`, which have no place for them.
    """

    figures: ResultsTable

    def __str__(self) -> str:
        return render_text(lambda console: print_results(self.figures, console))

    def __repr__(self) -> str:
        return f"<Table of {', '.join(self.figures.runs)}: print it, or see .figures>"

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(str(self))}</pre>"

    def to_json(self) -> dict[str, Any]:
        """Return the figures as a JSON object: fractions, intervals as [low, high]."""
        return self.figures.to_json()

    def to_pandas(self) -> Any:
        """Return a data frame with a line per run: figures with intervals (fractions), costs, tests."""
        require("to_pandas()", "pandas")
        import pandas

        return pandas.DataFrame(table_records(self.figures))

    def to_csv(self) -> str:
        """Return the same as CSV."""
        return to_csv(self.figures)

    def to_latex(self) -> str:
        """Return the table as LaTeX (booktabs, siunitx): the best in bold, what may be as good marked."""
        return to_latex(self.figures)

    def to_markdown(self) -> str:
        """Return the table as Markdown."""
        return to_markdown(self.figures)
