"""Many settings of one experiment: cells that share engines, weighed by what they score and spend.

``cells`` reads and names them, ``sweep`` answers them, ``findings`` weighs them, ``record`` and ``plots``
write down what came of it. Methods say themselves what tells their runs apart (``Method.grouped_by``).
"""

from corag.core.lazy import lazy_exports

# Loaded when first asked for: findings bring numpy, reading cells every method.
__all__, __getattr__, __dir__ = lazy_exports(
    __name__,
    {
        "eval.sweeps.cells": "Cell read_cells",
        "eval.sweeps.sweep": "Openers SweepConfig answer_cells plan_cells",
        "eval.sweeps.record": "Sweep read_sweep write_sweep",
    },
)
