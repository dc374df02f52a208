"""API keys, compared in constant time."""

from __future__ import annotations

import hashlib
import hmac
from dataclasses import dataclass
from pathlib import Path

from corag.core.errors import ConfigError
from corag.core.files import read_text

SHORTEST = 16


@dataclass(frozen=True)
class Keys:
    """The keys that are let in, by the names that logs have for them. Without any, everybody is."""

    digests: tuple[tuple[str, bytes], ...] = ()

    @classmethod
    def read(cls, path: str) -> Keys:
        """Read a file with a line per key: 'NAME KEY', or the key alone. '#' begins a comment.

        Raises :class:`ConfigError` naming the line, never the key.
        """
        if not path:
            return cls()
        if not Path(path).is_file():
            raise ConfigError(
                f"there is no file '{path}' of API keys: write one with a line 'NAME KEY' each."
            )
        digests: dict[str, bytes] = {}
        for number, line in enumerate(read_text(path).splitlines(), 1):
            words = line.split()
            if not words or words[0].startswith("#"):
                continue
            name, key = (words[0], words[1]) if len(words) > 1 else (f"key-{number}", words[0])
            # A header brings ASCII alone, whatever the file is written in.
            if len(words) > 2 or len(key) < SHORTEST or not key.isascii():
                raise ConfigError(
                    f"line {number} of '{path}' is no key: write 'NAME KEY', the key of {SHORTEST} "
                    "ASCII characters or more and without spaces."
                )
            if name in digests:
                raise ConfigError(
                    f"line {number} of '{path}' gives '{name}' a second key: name it otherwise."
                )
            digests[name] = _digest(key)
        if not digests:
            raise ConfigError(f"'{path}' holds no API key: write a line 'NAME KEY' each, or leave it out.")
        return cls(tuple(digests.items()))

    def caller(self, authorization: str) -> str | None:
        """Return whose key an Authorization header brings, None if it is nobody's; "" if all are let in."""
        if not self.digests:
            return ""
        scheme, _, key = authorization.partition(" ")
        digest = _digest(key.strip()) if scheme.lower() == "bearer" else b""
        caller = None
        # All are compared, each in constant time: the time tells neither which key it was nor how near.
        for name, stored_digest in self.digests:
            if hmac.compare_digest(stored_digest, digest):
                caller = name
        return caller


def _digest(key: str) -> bytes:
    return hashlib.sha256(key.encode(errors="surrogateescape")).digest()
