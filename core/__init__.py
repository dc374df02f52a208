"""The words that everyone speaks: questions, passages, answers, and what a method is handed for a question.

A method gets :class:`Tools` and reaches any :class:`Generator` and :class:`Retriever` through them. Prompts
are values (``prompting``), a run is a folder (``runs``), errors are sentences (``errors``). Nothing here
knows a method, a dataset or an engine by name, and nothing imports any other room.
"""

from core.lazy import lazy_exports

__all__, __getattr__, __dir__ = lazy_exports(
    __name__,
    {
        "core.types": "Answer CandidateAnswer GoldHop Hit Passage Question TokenUsage passage_id",
        "core.errors": (
            "BackendError BudgetExhaustedError ConfigError CoragError DataError IndexMismatchError "
            "RequestRefusedError SearchFailedError"
        ),
        "core.protocols": (
            "Completion GenerateRequest Generation Generator Retriever Sampling Score ScoreRequest"
        ),
        "core.method": "MethodConfig",
        "core.passage_pool": "PassagePool",
        "core.reader": "ReaderConfig read",
        "core.tools": "Tools",
        "core.runner": "answer_all answer_question",
    },
)
