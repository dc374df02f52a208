"""Corpora of passages: which ``files``, in which ``formats``, read as ``passages``, and ``sifting`` them."""
