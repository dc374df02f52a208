"""From retrieval chains to fine-tuned models: sampling, rows, fine-tuning, rounds.

``sampling`` is the paper's procedure for one question, ``sample`` runs it over a file of questions and
``chains`` reads the result back. ``data`` turns a chain into what decoding would have asked and the replies
to it, ``rows`` writes that as a dataset. ``sft`` trains on it, by accelerate in as many processes as there
are devices. ``rounds`` performs everything, stage by stage. ``pairs`` makes preferences of the candidates, on
which ``dpo`` trains; ``grpo`` samples sub-queries itself and is told by ``reward`` what they brought. What
these programs share is ``tuning``.
"""

from core.lazy import lazy_exports

# Loaded when first asked for: training brings torch, TRL and datasets.
__all__, __getattr__, __dir__ = lazy_exports(
    __name__,
    {
        "training.config": "DpoConfig GrpoConfig LoraOptions SftConfig TuningOptions",
        "training.pairs": "MakePairsConfig PairsConfig make_pairs",
        "training.rows": "MakeRowsConfig make_rows read_report",
        "training.rounds": "RoundsConfig perform_rounds",
        "training.data": "RowsConfig",
        "training.sampling": "SampleConfig sample_chains",
        "training.sample": "SampleRunConfig sample_dataset",
        "training.chains": "describe read_chains",
    },
)
