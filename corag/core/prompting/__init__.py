"""Prompts as values: versioned files, what is rendered into them, what is left out when they are too long.

A :class:`Template` is a parsed prompt file; filled, it is a :class:`Prompt` of messages made of segments.
Segments say in which order they may go (``shorten``). ``render`` writes passages and worked examples, which
``demonstrations`` reads.
"""
