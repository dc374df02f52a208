"""Language models: vLLM in this process, running servers, or transformers, behind one protocol.

:func:`open_generator` opens what a :class:`ModelConfig` names. Whatever the engine, one renderer turns
prompts into token ids (``rendering``), a continuation is scored by its raw log-probabilities (``forced``),
and what is pure is never computed twice (``cached``). ``models`` and ``adapters`` find weights and say what
identifies them.
"""

from corag.core.lazy import lazy_exports

# Loaded when first asked for: the engines bring torch, vLLM or transformers.
__all__, __getattr__, __dir__ = lazy_exports(
    __name__,
    {
        "corag.generation.cached": "CachedGenerator",
        "corag.generation.config": "ModelConfig",
        "corag.generation.rendering": "Renderer",
        "corag.generation.http.engine": "HttpGenerator",
        "corag.generation.transformers_engine": "TransformersGenerator",
        "corag.generation.vllm_engine": "VllmGenerator",
        "corag.generation.models": "model_folder",
        "corag.generation.open": "open_generator",
    },
)
