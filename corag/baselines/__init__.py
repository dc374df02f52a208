"""The published methods that CoRAG and IRCoT are measured against.

Each is a function of question, tools and options. A method is one file, in the order of its paper: options,
result, the algorithm, prompts, reading replies, and last its ``METHOD``, by which the registry finds it. The
two large ones are folders. ``shared`` and ``transcripts`` hold what several share, ``prompts`` their texts.
Nothing heavy is loaded here.
"""
