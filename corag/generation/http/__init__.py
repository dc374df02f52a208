"""Models behind running servers: one engine for vLLM's servers and all others that speak OpenAI's protocol.

``profiles`` has what servers of either kind understand; ``opening`` finds model, window and profile; ``wire``
has the bodies and reads the replies; ``engine`` is the generator on top.
"""
