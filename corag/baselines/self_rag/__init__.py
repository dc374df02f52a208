"""Self-RAG: the model decides when to retrieve, and judges what it writes from each passage.

After Asai et al. (ICLR 2024), two methods: ``self_rag`` reads the reflection tokens of a model that was
trained for them, ``self_rag_prompted`` asks any instruction model for the same judgements in prompts.
"""
