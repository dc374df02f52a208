"""From retrieval chains to fine-tuned models: sampling, rows, fine-tuning, rounds.

``sampling`` is the paper's procedure for one question, ``sample`` runs it over a file of questions and
``chains`` reads the result back. ``data`` turns a chain into what decoding would have asked and the replies
to it, ``rows`` writes that as a dataset. ``sft`` trains on it, by accelerate in as many processes as there
are devices. ``rounds`` performs everything, stage by stage.
"""

from core.lazy import lazy_exports

# Loaded when first asked for: training brings torch, TRL and datasets.
_EXPORTS = {
    "LoraOptions": "training.config",
    "MakeRowsConfig": "training.rows",
    "RoundsConfig": "training.rounds",
    "RowsConfig": "training.data",
    "SampleConfig": "training.sampling",
    "SampleRunConfig": "training.sample",
    "SftConfig": "training.config",
    "TuningOptions": "training.config",
    "describe": "training.chains",
    "make_rows": "training.rows",
    "perform_rounds": "training.rounds",
    "read_chains": "training.chains",
    "read_report": "training.rows",
    "sample_dataset": "training.sample",
    "sample_chains": "training.sampling",
}
__all__ = list(_EXPORTS)
__getattr__, __dir__ = lazy_exports(__name__, _EXPORTS)
