"""Many settings of one experiment: cells that share engines, weighed by what they score and spend.

``cells`` reads and names them, ``sweep`` answers them, ``findings`` weighs them, ``record`` and ``plots``
write down what came of it. Methods say themselves what tells their runs apart (``Method.grouped_by``).
"""
