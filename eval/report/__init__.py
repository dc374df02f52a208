"""Runs as one self-contained HTML page: tables, charts and every question's trace, without server or network.

``sections`` writes the figures down as HTML, with the pictures of ``chart``; ``traces`` has the single
questions, ``packing`` makes them small, ``page`` puts all into one file. The scripts and styles in
``assets/`` show the questions; they are written into the file.
"""

from eval.report.page import Report, TextBlocks, html_page, make_report, text_blocks

__all__ = ["Report", "TextBlocks", "html_page", "make_report", "text_blocks"]
