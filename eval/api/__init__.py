"""The Python interface: ``ask``, ``run``, ``sweep``, ``open_model``, ``open_index`` and what they return."""

from corag.core.lazy import lazy_exports

__all__, __getattr__, __dir__ = lazy_exports(
    __name__,
    {
        "eval.api.ask": "Answered",
        "eval.api.building": "BuiltIndex",
        "eval.api.opened": "Index Model",
        "eval.api.results": "Results judge",
        "eval.api.sweep_results": "SweepResults",
        "eval.api.table": "Table",
        "eval.experiment.workers.config": "ray_workers",
    },
)
