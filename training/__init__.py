"""From retrieval chains to fine-tuned models: sampling, rows, fine-tuning, rounds.

``sampling`` is the paper's procedure for one question, ``sample`` runs it over a file of questions and
``chains`` reads the result back. ``row_tasks`` is the table of what can be taught: requests of decoding with
the replies to them. ``data`` makes a question's rows of it, ``rows`` writes them as a dataset. ``sft`` trains
on that, by accelerate in as many processes as there are devices. ``rounds`` runs everything, each of its
``stages`` in a process of its own. What training programs share is ``program`` (from the command line to the
manifest), ``model_setup``, ``trainer`` and ``callbacks``.
"""

from corag.core.lazy import lazy_exports

# Loaded when first asked for: training brings torch, TRL and datasets.
__all__, __getattr__, __dir__ = lazy_exports(
    __name__,
    {
        "training.config": "LoraOptions SftConfig TuningOptions",
        "training.rows": "MakeRowsConfig make_rows read_report",
        "training.rounds": "RoundsConfig perform_rounds",
        "training.data": "RowsConfig",
        "training.sampling": "SampleConfig sample_chains",
        "training.sample": "SampleRunConfig sample_dataset",
        "training.results": "ChainSet RowSet",
        "training.chains": "describe read_chains",
    },
)
