"""The words that everyone speaks: questions, passages, answers, and what a method is handed for a question.

A method gets :class:`Tools` and reaches any :class:`Generator` and :class:`Retriever` through them. Prompts
are values (``prompting``), a run is a folder (``runs``), errors are sentences (``errors``). Nothing here
knows a method, a dataset or an engine by name, and nothing imports any other room.
"""

from core.lazy import lazy_exports

_PLACES = {
    "Answer": "core.types",
    "BackendError": "core.errors",
    "BudgetExhaustedError": "core.errors",
    "Completion": "core.protocols",
    "ConfigError": "core.errors",
    "CoragError": "core.errors",
    "DataError": "core.errors",
    "GenerateRequest": "core.protocols",
    "Generation": "core.protocols",
    "Generator": "core.protocols",
    "GoldHop": "core.types",
    "Hit": "core.types",
    "IndexMismatchError": "core.errors",
    "MethodConfig": "core.method",
    "Passage": "core.types",
    "PassagePool": "core.passage_pool",
    "Question": "core.types",
    "ReaderConfig": "core.reader",
    "RequestRefusedError": "core.errors",
    "Retriever": "core.protocols",
    "Sampling": "core.protocols",
    "Score": "core.protocols",
    "ScoreRequest": "core.protocols",
    "SearchFailedError": "core.errors",
    "TokenUsage": "core.types",
    "Tools": "core.tools",
    "answer_all": "core.runner",
    "answer_question": "core.runner",
    "passage_id": "core.types",
    "read": "core.reader",
}
__all__ = list(_PLACES)
__getattr__, __dir__ = lazy_exports(__name__, _PLACES)
