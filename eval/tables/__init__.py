"""From finished runs to tables: figures with intervals, tests, means over seeds, and where the tokens went.

``runs`` checks that folders can stand in one table and reads them; ``table`` makes one line of a run's rows,
``results`` the whole table, ``pairs`` sets two runs against each other, ``ledger`` adds up tokens and
seconds. ``conditions`` says what a reader must know beside the figures. Nothing here prints.
"""

from core.lazy import lazy_exports

# Loaded when first asked for: figures bring numpy and scipy.
__all__, __getattr__, __dir__ = lazy_exports(
    __name__,
    {
        "eval.tables.ledger": "Ledger read_ledger",
        "eval.tables.pairs": "PairedRuns compare_runs",
        "eval.tables.results": "ResultsTable TableView table_of_new_runs table_of_runs",
        "eval.tables.table": "Summary summarise",
    },
)
