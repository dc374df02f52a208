"""Self-RAG: the model decides when to retrieve, and judges what it writes from each passage.

After Asai et al. (ICLR 2024), two methods: ``self_rag`` reads the reflection tokens of a model that was
trained for them, ``self_rag_prompted`` asks any instruction model for the same judgements in prompts.
"""

from corag.baselines.self_rag.method import SelfRAGAnswer, SelfRAGConfig, self_rag
from corag.baselines.self_rag.prompted import SelfRAGPromptedAnswer, SelfRAGPromptedConfig, self_rag_prompted

__all__ = [
    "SelfRAGAnswer",
    "SelfRAGConfig",
    "SelfRAGPromptedAnswer",
    "SelfRAGPromptedConfig",
    "self_rag",
    "self_rag_prompted",
]
