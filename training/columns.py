"""Columns of token lists, read in blocks as Arrow holds them: row by row in Python they take half an hour.

That is for the 2.5 billion tokens of a large training, and every process would take it before its first step.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

_ROWS_AT_ONCE = 10_000


def lengths(rows: Any) -> NDArray[np.int64]:
    """Return how many tokens each row of a ``datasets.Dataset`` has."""
    counts = [np.diff(ends) for (_, ends) in _blocks(rows, ["input_ids"])]
    return np.concatenate(counts or [np.zeros(0, np.int64)])


def learned(rows: Any) -> NDArray[np.int64]:
    """Return how many tokens of each row the loss is of."""
    sums = [
        np.diff(np.append(0, np.cumsum(mask))[ends]) for (mask, ends) in _blocks(rows, ["completion_mask"])
    ]
    return np.concatenate(sums or [np.zeros(0, np.int64)])


def with_labels(rows: Any) -> Any:
    """Return rows with a column of labels, which are the tokens, and -100 where nothing is learned.

    TRL makes it row by row where it is not there.
    """
    import datasets
    import pyarrow

    chunks = [
        pyarrow.ListArray.from_arrays(ends.astype(np.int32), np.where(mask != 0, ids, np.int32(-100)))
        for (ids, mask, ends) in _blocks(rows, ["input_ids", "completion_mask"])
    ]
    table = pyarrow.table({"labels": pyarrow.chunked_array(chunks, pyarrow.list_(pyarrow.int32()))})
    labels = datasets.Dataset(datasets.table.InMemoryTable(table))
    return datasets.concatenate_datasets([rows, labels], axis=1)


def _blocks(rows: Any, columns: Sequence[str]) -> Iterator[tuple[NDArray[Any], ...]]:
    """Yield the values of some columns of lists, end to end, and where the lists end, with a 0 before."""
    for table in rows.select_columns(list(columns)).with_format("arrow").iter(_ROWS_AT_ONCE):
        arrays = [table[column].combine_chunks() for column in columns]
        ends = arrays[0].value_lengths().to_numpy(zero_copy_only=False).cumsum()
        yield *(each.flatten().to_numpy(zero_copy_only=False) for each in arrays), np.append(0, ends)
