"""Many settings of one experiment: cells that share engines, weighed by what they score and spend.

``cells`` reads and names them, ``sweep`` answers them, ``findings`` weighs them, ``record`` and ``plots``
write down what came of it. Methods say themselves what tells their runs apart (``MethodConfig.GROUPED_BY``).
"""

from core.lazy import lazy_exports

# Loaded when first asked for: findings bring numpy, reading cells every method.
_EXPORTS = {
    "Cell": "eval.sweeps.cells",
    "Openers": "eval.sweeps.sweep",
    "Sweep": "eval.sweeps.record",
    "SweepConfig": "eval.sweeps.sweep",
    "answer_cells": "eval.sweeps.sweep",
    "planned": "eval.sweeps.sweep",
    "read_cells": "eval.sweeps.cells",
    "read_sweep": "eval.sweeps.record",
    "write_sweep": "eval.sweeps.record",
}
__all__ = list(_EXPORTS)
__getattr__, __dir__ = lazy_exports(__name__, _EXPORTS)
