"""Building an index folder: ``build`` makes it, ``manifest`` says what it is, ``store`` has its passages."""
