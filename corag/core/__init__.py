"""The types and protocols that all layers share, and what a method gets for a question.

A method gets :class:`Tools` and reaches any :class:`Generator` and :class:`Retriever` through them. Prompts
are values (``prompting``), a run is a folder (``runs``), errors are sentences (``errors``). Nothing here
knows a method, a dataset or an engine by name, and nothing imports another package of the project.
"""

from corag.core.lazy import lazy_exports

__all__, __getattr__, __dir__ = lazy_exports(
    __name__,
    {
        "corag.core.types": "Answer CandidateAnswer GoldHop Hit Passage Question TokenUsage passage_id",
        "corag.core.errors": (
            "BackendError BudgetExhaustedError ConfigError CoragError DataError IndexMismatchError "
            "RequestRefusedError SearchFailedError"
        ),
        "corag.core.protocols": (
            "Completion GenerateRequest Generation Generator Retriever Sampling Score ScoreRequest"
        ),
        "corag.core.method": "Candidates Method MethodConfig",
        "corag.core.text": "extract_answer",
        "corag.core.passage_pool": "PassagePool",
        "corag.core.reader": "ReaderConfig read",
        "corag.core.tools": "Tools",
        "corag.core.runner": "answer_all answer_question",
    },
)
