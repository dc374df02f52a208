"""One file per dataset. Each has a ``DATASETS`` tuple, which :mod:`eval.datasets.registry` collects."""
