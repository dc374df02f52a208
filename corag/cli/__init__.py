"""The ``corag`` command: it parses, calls one function of a lower layer, and prints."""
