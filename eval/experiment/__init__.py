"""What runs an experiment: the methods by name, the back ends, the questions, the loop into run folders.

``run`` answers a dataset with some methods and resumes; ``registry`` is the one list of methods, to which
``own_methods`` adds those of a user's file; ``backends`` and ``questions`` are the options that all commands
of this kind share. ``judging`` and ``exporting`` work on finished runs. ``progress`` and ``drawing`` show a
person how far a run is, and what happens to one question.
"""

from core.lazy import lazy_exports

# Loaded when first asked for: all methods and what opens back ends take half a second.
__all__, __getattr__, __dir__ = lazy_exports(
    __name__,
    {
        "eval.experiment.exporting": "ExportConfig export_run",
        "eval.experiment.judging": "JudgingConfig judge_runs",
        "eval.experiment.registry": "METHODS MethodOptions",
        "eval.experiment.questions": "QuestionFile",
        "eval.experiment.run": "RunConfig answer_dataset answer_run",
        "eval.experiment.backends": "Setup open_backends",
    },
)
