"""From a question file to figures that can be trusted.

``datasets`` reads questions, ``experiment`` answers them, ``sweeps`` does so for many settings. ``scoring``
compares answers with gold ones, ``statistics`` says how sure the figures are, ``tables`` and ``report`` show
them.
"""
