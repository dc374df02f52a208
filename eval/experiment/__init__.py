"""What runs an experiment: the methods by name, the back ends, the questions, the loop into run folders.

``run`` answers a dataset with some methods and resumes; ``registry`` is the one list of methods, to which
``own_methods`` adds those of a user's file; ``backends`` and ``questions`` are the options that all commands
of this kind share. ``judging`` and ``exporting`` work on finished runs. ``progress`` and ``drawing`` show a
person how far a run is, and what happens to one question.
"""

from core.lazy import lazy_exports

# Loaded when first asked for: all methods and what opens back ends take half a second.
_EXPORTS = {
    "ExportConfig": "eval.experiment.exporting",
    "JudgingConfig": "eval.experiment.judging",
    "METHODS": "eval.experiment.registry",
    "MethodOptions": "eval.experiment.registry",
    "QuestionFile": "eval.experiment.questions",
    "RunConfig": "eval.experiment.run",
    "Setup": "eval.experiment.backends",
    "answer_dataset": "eval.experiment.run",
    "answer_run": "eval.experiment.run",
    "export_run": "eval.experiment.exporting",
    "judge_runs": "eval.experiment.judging",
    "open_backends": "eval.experiment.backends",
}
__all__ = list(_EXPORTS)
__getattr__, __dir__ = lazy_exports(__name__, _EXPORTS)
