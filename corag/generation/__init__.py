"""Language models: vLLM in this process, running servers, or transformers, behind one protocol.

:func:`open_generator` opens what a :class:`ModelConfig` names. Whatever the engine, one renderer turns
prompts into token ids (``rendering``), a continuation is scored by its raw log-probabilities (``forced``),
and what is pure is never computed twice (``cached``). ``models`` and ``adapters`` find weights and say what
identifies them.
"""
