"""Runs as one self-contained HTML page: tables, plots and every question's trace, without server or network.

``overview`` makes the figures, ``traces`` the single questions, ``page`` puts both into one file. The scripts
and styles in ``assets/`` draw it in a browser; they are written into the file.
"""

from eval.report.overview import Overview, ReportRuns, read_report_runs
from eval.report.page import Report, TextBlocks, html_page, make_report, text_blocks

__all__ = [
    "Overview", "Report", "ReportRuns", "TextBlocks", "html_page", "make_report", "read_report_runs",
    "text_blocks",
]  # fmt: skip
