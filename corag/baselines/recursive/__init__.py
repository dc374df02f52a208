"""Recursive RAG: four ways of searching more than once, and a choice between them, after a tutorial of 2023.

``method`` chooses and reads; ``rounds`` follows references or asks what is missing; ``replies`` reads what
the model says and passages refer to.
"""
