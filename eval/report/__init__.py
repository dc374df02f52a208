"""Runs as one self-contained HTML page: tables, charts and every question's trace, without server or network.

``sections`` writes the figures down as HTML, with the pictures of ``chart``; ``traces`` has the single
questions, ``page`` puts all into one file. The scripts and styles in
``assets/`` show the questions; they are written into the file.
"""
