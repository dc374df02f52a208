"""API keys, compared in constant time."""

from __future__ import annotations

import hashlib
import hmac
from pathlib import Path

from corag.core.errors import ConfigError
from corag.core.system.files import read_text
from corag.service.log import log_line

SHORTEST = 16


class Keys:
    """The keys that are let in, by the names that logs have for them. Without a file, everybody is.

    A file that has changed is read again at the next request.
    """

    def __init__(self, path: str = "") -> None:
        """Read a file with a line 'NAME KEY' per key. '#' begins a comment.

        Raises :class:`ConfigError` naming the line, never the key.
        """
        self.path = path
        self._state = _state(path)
        self._digests = _read(path) if path else {}

    def reload(self) -> None:
        """Read the file again. One that cannot be used leaves the keys as they were."""
        if not self.path:
            return
        self._state = _state(self.path)
        try:
            self._digests = _read(self.path)
        except ConfigError as error:
            log_line("keys_unusable", error=str(error))
        else:
            log_line("keys_read", keys=len(self._digests))

    def caller(self, authorization: str) -> str | None:
        """Return whose key an Authorization header brings, None for no known one; "" if all are let in."""
        if not self.path:
            return ""
        if _state(self.path) != self._state:
            self.reload()
        scheme, _, key = authorization.partition(" ")
        digest = _digest(key.strip()) if scheme.lower() == "bearer" else b""
        # All are compared, each in constant time: the time tells neither which key it was nor how near.
        callers = [name for stored, name in self._digests.items() if hmac.compare_digest(stored, digest)]
        return callers[0] if callers else None


def _state(path: str) -> tuple[int, int] | None:
    try:
        state = Path(path).stat()
    except OSError:
        return None
    return state.st_mtime_ns, state.st_size


def _read(path: str) -> dict[bytes, str]:
    if not Path(path).is_file():
        raise ConfigError(f"there is no file '{path}' of API keys: write one with a line 'NAME KEY' each.")
    digests: dict[bytes, str] = {}
    for number, line in enumerate(read_text(path).splitlines(), 1):
        words = line.split()
        if not words or words[0].startswith("#"):
            continue
        name, key = words[0], words[-1]
        # A header brings ASCII alone, whatever the file is written in.
        if len(words) != 2 or len(key) < SHORTEST or not key.isascii():
            raise ConfigError(
                f"line {number} of '{path}' is no key: write 'NAME KEY', the key of {SHORTEST} "
                "ASCII characters or more and without spaces."
            )
        digests[_digest(key)] = name
    if not digests:
        raise ConfigError(f"'{path}' holds no API key: write a line 'NAME KEY' each, or leave it out.")
    return digests


def _digest(key: str) -> bytes:
    return hashlib.sha256(key.encode(errors="surrogateescape")).digest()
