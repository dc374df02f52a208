"""From finished runs to tables: figures with intervals, tests, means over seeds, and where the tokens went.

``runs`` checks that folders can stand in one table, and reads and scores each once; ``columns`` declares the
figures of a run and makes its line, ``results`` the whole table, ``disagreements`` lists the questions that
only one of two runs got right, ``ledger`` adds up tokens and seconds. ``candidates`` are what a method chose
among, ``ceiling`` how well scores choose. ``conditions`` are what the runs were made with, ``cautions`` what
makes them hard to compare. Nothing here prints but ``printing``, which reads nothing from disk.
"""
