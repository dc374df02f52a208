"""Models behind running servers: one engine for vLLM's servers and all others that speak OpenAI's protocol.

``endpoints`` sends requests, to another server when one fails; ``wire`` has the bodies and reads the replies;
``features`` says what a server supports and ``feature_probes`` finds it out, when ``opening`` has found its
model and context length; ``engine`` is the generator on top.
"""
