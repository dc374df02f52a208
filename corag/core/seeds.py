"""Seeds and digests: hashes that are the same in every process, on every machine.

Seeds are derived, never set: question, purpose and place in the chain give one, in any order of work.
"""

from __future__ import annotations

import hashlib


def derive_seed(*parts: str | int) -> int:
    """Hash the parts into an integer in [0, 2**31), stable across processes, machines and versions of Python.

    >>> derive_seed(0, "q1", "sub-query", "chain 3/hop 2")
    799610071
    """
    # Types and a separator: ("1", "2"), ("12",) and (1, 2) shall be different.
    text = "\x1f".join(f"{type(part).__name__}:{part}" for part in parts)
    # Not hash(): Python salts it per process. 31 bits: some engines take seeds as signed 32-bit integers.
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big") % 2**31


def stable_hash(text: str) -> str:
    """Return 16 hexadecimal digits that identify a text, stable like :func:`derive_seed`."""
    return new_digest(text.encode()).hexdigest()


def new_digest(content: bytes = b"") -> hashlib.blake2b:
    """Return a hash of 16 hexadecimal digits, of the bytes so far."""
    return hashlib.blake2b(content, digest_size=8)
