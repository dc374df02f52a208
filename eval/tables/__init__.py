"""From finished runs to tables: figures with intervals, tests, means over seeds, and where the tokens went.

``runs`` checks that folders can stand in one table and reads them; ``table`` makes one line of a run's rows,
``results`` the whole table, ``pairs`` sets two runs against each other, ``ledger`` adds up tokens and
seconds. ``conditions`` says what a reader must know beside the figures. Nothing here prints.
"""

from core.lazy import lazy_exports

# Loaded when first asked for: figures bring numpy and scipy.
_EXPORTS = {
    "Ledger": "eval.tables.ledger",
    "PairedRuns": "eval.tables.pairs",
    "ResultsTable": "eval.tables.results",
    "Summary": "eval.tables.table",
    "TableView": "eval.tables.results",
    "compare_runs": "eval.tables.pairs",
    "read_ledger": "eval.tables.ledger",
    "summarise": "eval.tables.table",
    "table_of_answers": "eval.tables.results",
    "table_of_runs": "eval.tables.results",
}
__all__ = list(_EXPORTS)
__getattr__, __dir__ = lazy_exports(__name__, _EXPORTS)
