"""The vectors of a corpus in files, arrays or FAISS's, read block by block through memory maps."""

from __future__ import annotations

import glob
import pickle
import re
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from corag.core.errors import DataError, IndexMismatchError, reason

_BLOCK = 1 << 14  # vectors that are in memory at once: 64 MB of 1,024 dimensions
FORMATS = ".npy, .pt, .memmap (float32), or any other ending for a FAISS index"


@dataclass(frozen=True)
class VectorFile:
    """The vectors of a file. ``read``: from row (inclusive) to row (exclusive), [rows, dimension]."""

    file: Path
    rows: int
    dimension: int
    read: Callable[[int, int], NDArray[np.float32]]


@dataclass(frozen=True)
class ReadyVectors:
    """The vectors of a corpus, one per record and in its order, as they lie in files.

    Attributes:
        parts: the files in order.
        start: the first row that is meant.
        stop: the row behind the last.
    """

    parts: tuple[VectorFile, ...]
    start: int
    stop: int

    @property
    def rows(self) -> int:
        """How many vectors there are."""
        return self.stop - self.start

    @property
    def dimension(self) -> int:
        """Their length."""
        return self.parts[0].dimension

    @property
    def names(self) -> str:
        """The files, for messages."""
        some = ", ".join(f"'{part.file}'" for part in self.parts[:3])
        return some + (f" and {len(self.parts) - 3:,} more" if len(self.parts) > 3 else "")

    def slice(self, rows: range) -> ReadyVectors:
        """Return the vectors of some rows in a row."""
        return replace(self, start=self.start + rows.start, stop=self.start + rows.stop)

    def read(self, start: int, stop: int) -> NDArray[np.float32]:
        """Return the vectors of these rows, [rows, dimension], as float32."""
        start, stop = self.start + start, min(self.start + stop, self.stop)
        row, number, read = start, bisect_right(self._firsts, start) - 1, []
        while row < stop:
            part, first = self.parts[number], self._firsts[number]
            read.append(part.read(row - first, min(stop - first, part.rows)))
            row, number = first + part.rows, number + 1
        vectors = np.concatenate(read) if len(read) > 1 else read[0]
        if not np.isfinite(vectors).all():
            row = start + int(np.flatnonzero(~np.isfinite(vectors).all(axis=1))[0])
            raise DataError(f"the vector of row {row:,} in {self.names} is not finite: make it again.")
        return vectors

    def __iter__(self) -> Iterator[NDArray[np.float32]]:
        return (self.read(first, first + _BLOCK) for first in range(0, self.rows, _BLOCK))

    def sample(self, count: int) -> NDArray[np.float32]:
        """Return about ``count`` vectors spread evenly over the corpus."""
        step = max(1, self.rows // count)
        return np.concatenate([self.read(row, row + 1) for row in range(0, self.rows, step)])

    @cached_property
    def _firsts(self) -> list[int]:
        """The first row of each file."""
        return list(accumulate((part.rows for part in self.parts), initial=0))


def vector_files(names: Sequence[str]) -> list[Path]:
    """Return the files of some names, in which * stands for anything: part-2 comes before part-10.

    Raises :class:`DataError` if there is none of a name.
    """
    files: list[Path] = []
    for name in names:
        path = Path(name).expanduser()
        some = [path] if path.is_file() else sorted(map(Path, glob.glob(str(path))), key=_natural)
        if not some:
            raise DataError(f"there is no file of vectors '{name}': check the path.")
        files += some
    return files


def _natural(file: Path) -> list[int | str]:
    return [int(word) if word.isdecimal() else word for word in re.split(r"([0-9]+)", str(file))]


def open_vectors(files: Sequence[Path], dimension: int, encoder: str) -> ReadyVectors:
    """Open files of vectors, in this order.

    Args:
        files: see ``FORMATS``.
        dimension: of the vectors of ``encoder``, which will encode the queries.
        encoder: its name.

    Raises:
        DataError: for what cannot be read.
        IndexMismatchError: for vectors of another dimension.
    """
    parts = [_OPEN.get(file.suffix, _open_faiss)(file, dimension) for file in files]
    for part in parts:
        if part.dimension != dimension:
            raise IndexMismatchError(
                f"the vectors of '{part.file}' have {part.dimension} dimensions, but the encoder '{encoder}' "
                f"makes vectors of {dimension}: name by 'encoder' the one that made them."
            )
    return ReadyVectors(tuple(parts), 0, sum(part.rows for part in parts))


def _open_numpy(file: Path, _: int) -> VectorFile:
    try:
        array = np.load(file, mmap_mode="r")
    except (ValueError, OSError, EOFError) as error:
        raise DataError(f"'{file}' cannot be read as a NumPy array: {reason(error)}") from None
    _require_matrix(file, array.shape, array.dtype.kind == "f", str(array.dtype))
    # Mapped when it is read: an encoding has more files than a process may have open.
    return _part(
        file,
        array.shape,
        lambda start, stop: np.asarray(np.load(file, mmap_mode="r")[start:stop], np.float32),
    )


def _open_memmap(file: Path, dimension: int) -> VectorFile:
    """Open bare float32 numbers, as ``numpy.memmap`` writes them: no header says how many make a vector."""
    numbers = file.stat().st_size // 4
    if not numbers or file.stat().st_size % (4 * dimension):
        raise DataError(
            f"'{file}' has {file.stat().st_size:,} bytes, which are no whole number of float32 vectors of "
            f"{dimension} dimensions: name the encoder that made them, or save them as .npy."
        )
    array = np.memmap(file, np.float32, "r", shape=(numbers // dimension, dimension))
    return _part(file, array.shape, lambda start, stop: np.array(array[start:stop]))


def _open_torch(file: Path, _: int) -> VectorFile:
    import torch

    try:
        content = torch.load(file, map_location="cpu", mmap=True, weights_only=True)
    except (RuntimeError, OSError, ValueError, EOFError, pickle.UnpicklingError) as error:
        raise DataError(
            f"'{file}' cannot be read as a tensor through a memory map: {reason(error)}. Load it in Python "
            "and save the tensor alone with torch.save, or as .npy."
        ) from None
    tensors = list(content.values()) if isinstance(content, dict) else [content]
    tensors = [each for each in tensors if isinstance(each, torch.Tensor) and each.ndim == 2]
    if len(tensors) != 1:
        raise DataError(
            f"'{file}' holds {len(tensors)} matrices of numbers, and one was expected, [passages, "
            "dimension]: save the vectors alone."
        )
    tensor = tensors[0]
    _require_matrix(file, tuple(tensor.shape), tensor.is_floating_point(), str(tensor.dtype))
    return _part(file, tensor.shape, lambda start, stop: tensor[start:stop].float().numpy())


def _part(file: Path, shape: Sequence[int], read: Callable[[int, int], NDArray[np.float32]]) -> VectorFile:
    return VectorFile(file, int(shape[0]), int(shape[1]), read)


def _require_matrix(file: Path, shape: Sequence[int], floats: bool, kind: str) -> None:
    if len(shape) != 2 or not floats or not all(shape):
        raise DataError(
            f"'{file}' holds {kind} of shape {list(shape)}, and floating-point numbers [passages, dimension] "
            "were expected: name a file of vectors."
        )


def _open_faiss(file: Path, _: int) -> VectorFile:
    import faiss

    try:
        index: Any = faiss.read_index(str(file), faiss.IO_FLAG_MMAP_IFC)
    except RuntimeError as error:
        raise DataError(
            f"'{file}' is no file of vectors: FAISS cannot read it ({str(error).splitlines()[-1][-120:]}). "
            f"What is read: {FORMATS}."
        ) from None
    if not keeps_vectors(index):
        raise DataError(
            f"'{file}' is a FAISS index of the type {type(index).__name__}, which does not keep its vectors "
            "by row: give those that it was made of."
        )
    shape = (int(index.ntotal), int(index.d))
    return _part(file, shape, lambda start, stop: index.reconstruct_n(start, stop - start))


def keeps_vectors(index: Any) -> bool:
    """Whether a FAISS index holds its vectors as they were given, or nearly so, to be read by row."""
    import faiss

    if isinstance(index, faiss.IndexIVFFlat):
        index.make_direct_map()  # 8 bytes a row
        return True
    return isinstance(index, faiss.IndexFlat | faiss.IndexHNSWFlat | faiss.IndexScalarQuantizer)


_OPEN: dict[str, Callable[[Path, int], VectorFile]] = {
    ".npy": _open_numpy,
    ".memmap": _open_memmap,
    ".pt": _open_torch,
}
