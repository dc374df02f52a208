"""Documents of one's own: text, Markdown, HTML, PDF, Office and other files, read and cut into passages.

``files`` finds them, a reader for each kind turns one into a :class:`Document` (a title, and blocks of text
under their headings), ``passages`` cuts it, and ``reading`` does all that for a whole folder, takes over what
an earlier index had read, and reports what could not be read. To read another kind: a row in ``readers``.
"""
