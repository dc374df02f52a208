"""Search over HTTP: ``server`` and ``client``, and ``models``, encoders and re-rankers behind a URL."""
