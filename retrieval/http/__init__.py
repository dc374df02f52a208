"""Search over HTTP: server, client and what crosses between them."""
