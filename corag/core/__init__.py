"""The types and protocols that all layers share, and what a method gets for a question.

A method gets :class:`Tools` and reaches any :class:`Generator` and :class:`Retriever` through them. Prompts
are values (``prompting``), a run is a folder (``runs``), errors are sentences (``errors``). Nothing here
knows a method, a dataset or an engine by name, and nothing imports another package of the project.
"""
