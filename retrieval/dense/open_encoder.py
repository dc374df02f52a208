"""An encoder by its name: a model in this process, or a server's."""

from __future__ import annotations

import threading
from weakref import WeakValueDictionary

from corag.core.web.servers import is_address
from retrieval.dense.encoder import Encoder, TextEncoder
from retrieval.dense.placement import ANYWHERE, Placement
from retrieval.http.models import ServedEncoder


def packages_of(name: str) -> tuple[str, ...]:
    """Return the packages that an encoder or a re-ranker wants in this process: none if it is a server's."""
    return () if is_address(name) else ("sentence_transformers",)


def load_encoder(name: str, max_tokens: int = 0, placement: Placement = ANYWHERE) -> TextEncoder:
    """Load an encoder: a model in this process, or for an address (http://host:port/v1#MODEL) a server's.

    Raises as :class:`Encoder` and :class:`retrieval.http.models.ServedEncoder` do.
    """
    if not is_address(name):
        return Encoder(name, max_tokens, placement)
    return ServedEncoder(name, placement)


_open: WeakValueDictionary[tuple[str, int, Placement], TextEncoder] = WeakValueDictionary()
_opening = threading.Lock()


def open_encoder(
    name: str,
    max_tokens: int,
    fingerprint: str,
    placement: Placement = ANYWHERE,
) -> TextEncoder:
    """Load an encoder, or return the one of these weights that another open index has in the same place.

    A service that goes over to a new index would else need memory for two. ``fingerprint``: what is wanted;
    what is opened may have another.
    """
    with _opening:
        encoder = _open.get((name, max_tokens, placement))
        if encoder is None or encoder.fingerprint != fingerprint:
            encoder = load_encoder(name, max_tokens, placement)
            _open[name, max_tokens, placement] = encoder
        return encoder
