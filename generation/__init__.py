"""Language models: vLLM in this process, running servers, or transformers, behind one protocol.

:func:`open_generator` opens what a :class:`ModelConfig` names. Whatever the engine, one renderer turns
prompts into token ids (``rendering``), a continuation is scored by its raw log-probabilities (``forced``),
and what is pure is never computed twice (``cached``). ``models`` and ``adapters`` find weights and say what
identifies them.
"""

from core.lazy import lazy_exports

# Loaded when first asked for: the engines bring torch, vLLM or transformers.
__all__, __getattr__, __dir__ = lazy_exports(
    __name__,
    {
        "generation.cached": "CachedGenerator",
        "generation.config": "ModelConfig",
        "generation.rendering": "Renderer",
        "generation.openai_server": "OpenAIGenerator",
        "generation.server": "ServerGenerator",
        "generation.transformers_engine": "TransformersGenerator",
        "generation.vllm_engine": "VllmGenerator",
        "generation.models": "model_folder",
        "generation.open": "open_generator",
    },
)
