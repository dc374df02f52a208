"""Vectors that were made elsewhere: arrays and FAISS files, read block by block through memory maps."""

from __future__ import annotations

import glob
import pickle
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from corag.core.errors import DataError, IndexMismatchError, reason

_BLOCK = 1 << 14  # vectors that are in memory at once: 64 MB of 1,024 dimensions
_UNIT = 1e-2  # how far a length may be from 1 for a vector that was made in half precision
FORMATS = ".npy, .pt, .safetensors, .memmap (float32), or any other ending for a FAISS index"


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
        block: how many are read at once.
        kept: the FAISS index that is taken over as it is, None where the vectors are put into a new one.
    """

    parts: tuple[VectorFile, ...]
    start: int
    stop: int
    block: int
    faiss_index: Any = None

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
        read = []
        for part, (first, end) in zip(self.parts, self._bounds(), strict=True):
            if first < stop and start < end:
                read.append(part.read(max(start, first) - first, min(stop, end) - first))
        vectors = np.concatenate(read) if len(read) > 1 else read[0]
        if not np.isfinite(vectors).all():
            row = start + int(np.flatnonzero(~np.isfinite(vectors).all(axis=1))[0])
            raise DataError(f"the vector of row {row:,} in {self.names} is not finite: make it again.")
        return vectors

    def __iter__(self) -> Iterator[NDArray[np.float32]]:
        return (self.read(first, first + self.block) for first in range(0, self.rows, self.block))

    def sample(self, count: int) -> NDArray[np.float32]:
        """Return about ``count`` vectors spread evenly over the corpus."""
        step = max(1, self.rows // count)
        return np.concatenate([self.read(row, row + 1) for row in range(0, self.rows, step)])

    def _bounds(self) -> Iterator[tuple[int, int]]:
        return pairwise(accumulate((part.rows for part in self.parts), initial=0))


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
        IndexMismatchError: for vectors of another dimension, or a FAISS index beside other files that it
            cannot be joined with.
    """
    parts, faiss_index = [], None
    for file in files:
        part, index = _OPEN.get(file.suffix, _open_faiss)(file, dimension)
        parts.append(part)
        faiss_index = index or faiss_index
    if faiss_index is not None and len(parts) > 1:
        raise IndexMismatchError(
            "of several files of vectors each has to be an array or a flat FAISS index, since a compressed "
            "one or a graph is taken over as it is: name that one alone."
        )
    for part in parts:
        if part.dimension != dimension:
            raise IndexMismatchError(
                f"the vectors of '{part.file}' have {part.dimension} dimensions, but the encoder '{encoder}' "
                f"makes vectors of {dimension}: name by 'encoder' the one that made them."
            )
    return ReadyVectors(tuple(parts), 0, sum(part.rows for part in parts), _BLOCK, faiss_index)


def _open_numpy(file: Path, _: int) -> tuple[VectorFile, None]:
    try:
        array = np.load(file, mmap_mode="r")
    except (ValueError, OSError, EOFError) as error:
        raise DataError(f"'{file}' cannot be read as a NumPy array: {reason(error)}") from None
    _require_matrix(file, array.shape, array.dtype.kind == "f", str(array.dtype))
    return _part(file, array.shape, lambda start, stop: np.asarray(array[start:stop], np.float32)), None


def _open_memmap(file: Path, dimension: int) -> tuple[VectorFile, None]:
    """Open bare float32 numbers, as ``numpy.memmap`` writes them: no header says how many make a vector."""
    numbers = file.stat().st_size // 4
    if not numbers or file.stat().st_size % (4 * dimension):
        raise DataError(
            f"'{file}' has {file.stat().st_size:,} bytes, which are no whole number of float32 vectors of "
            f"{dimension} dimensions: name the encoder that made them, or save them as .npy."
        )
    array = np.memmap(file, np.float32, "r", shape=(numbers // dimension, dimension))
    return _part(file, array.shape, lambda start, stop: np.array(array[start:stop])), None


def _open_torch(file: Path, _: int) -> tuple[VectorFile, None]:
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
    return _part(file, tensor.shape, lambda start, stop: tensor[start:stop].float().numpy()), None


def _open_safetensors(file: Path, _: int) -> tuple[VectorFile, None]:
    from safetensors import SafetensorError, safe_open

    try:
        tensors: Any = safe_open(file, framework="pt")
    except (SafetensorError, OSError) as error:
        raise DataError(f"'{file}' cannot be read as safetensors: {reason(error)}") from None
    names = list(tensors.keys())
    if len(names) != 1:
        raise DataError(
            f"'{file}' holds {len(names)} tensors ({', '.join(names[:3])}), and one was expected, [passages, "
            "dimension]: save the vectors alone."
        )
    matrix = tensors.get_slice(names[0])
    kind = matrix.get_dtype()
    _require_matrix(file, tuple(matrix.get_shape()), kind[:1] in ("F", "B") and kind != "BOOL", kind)
    return _part(file, matrix.get_shape(), lambda start, stop: matrix[start:stop].float().numpy()), None


def _part(file: Path, shape: Sequence[int], read: Callable[[int, int], NDArray[np.float32]]) -> VectorFile:
    return VectorFile(file, int(shape[0]), int(shape[1]), read)


def _require_matrix(file: Path, shape: Sequence[int], floats: bool, kind: str) -> None:
    if len(shape) != 2 or not floats or not all(shape):
        raise DataError(
            f"'{file}' holds {kind} of shape {list(shape)}, and floating-point numbers [passages, dimension] "
            "were expected: name a file of vectors."
        )


def _open_faiss(file: Path, _: int) -> tuple[VectorFile, Any]:
    """Open a FAISS index; the second is None for a flat one, whose vectors go into a new index."""
    import faiss

    try:
        index: Any = faiss.read_index(str(file), faiss.IO_FLAG_MMAP_IFC)
    except RuntimeError as error:
        raise DataError(
            f"'{file}' is no file of vectors: FAISS cannot read it ({str(error).splitlines()[-1][-120:]}). "
            f"What is read: {FORMATS}."
        ) from None
    if isinstance(index, faiss.IndexIDMap | faiss.IndexBinary):
        raise DataError(
            f"'{file}' is a FAISS index of the type {type(index).__name__}, whose rows need not be those of "
            "the corpus: write the index within it (index.index) with faiss.write_index, if its rows are."
        )
    if index.metric_type not in (faiss.METRIC_INNER_PRODUCT, faiss.METRIC_L2):
        raise DataError(
            f"'{file}' ranks by FAISS's metric {index.metric_type}, and only inner product and L2 are known "
            "here: build it with one of these."
        )
    part = index_part(file, index)
    if index.metric_type == faiss.METRIC_L2 and keeps_vectors(index):
        _require_unit_length(part)
    return part, None if isinstance(index, faiss.IndexFlat) else index


def index_part(file: Path, index: Any) -> VectorFile:
    """Return the vectors of an open FAISS index that keeps them."""
    shape = (int(index.ntotal), int(index.d))
    return _part(file, shape, lambda start, stop: index.reconstruct_n(start, stop - start))


def keeps_vectors(index: Any) -> bool:
    """Whether a FAISS index holds its vectors as they were given, or nearly so, to be read by row."""
    import faiss

    if isinstance(index, faiss.IndexIVFFlat):
        index.make_direct_map()  # 8 bytes a row
        return True
    return isinstance(index, faiss.IndexFlat | faiss.IndexHNSWFlat | faiss.IndexScalarQuantizer)


def are_unit(lengths: NDArray[np.float32]) -> bool:
    """Whether lengths of vectors are 1 but for half precision; so it is of none."""
    return not len(lengths) or bool(np.abs(lengths - 1).max() <= _UNIT)


def _require_unit_length(part: VectorFile) -> None:
    """Raise :class:`DataError` unless the nearest by L2 are those of the highest inner product."""
    rows = range(0, part.rows, max(1, part.rows // 100))
    lengths = np.array([np.linalg.norm(part.read(row, row + 1)) for row in rows])
    if not are_unit(lengths):
        raise DataError(
            f"the FAISS index '{part.file}' ranks by L2 and its vectors are of lengths from "
            f"{lengths.min():.2f} to {lengths.max():.2f}, but passages are ranked by inner product here, "
            "which agrees with L2 for vectors of length 1 only: build it with faiss.METRIC_INNER_PRODUCT."
        )


_OPEN: dict[str, Callable[[Path, int], tuple[VectorFile, Any]]] = {
    ".npy": _open_numpy,
    ".memmap": _open_memmap,
    ".pt": _open_torch,
    ".pth": _open_torch,
    ".safetensors": _open_safetensors,
}
