"""CoRAG, and the front door of the house: ``from corag import ...`` hands out the public names of all rooms.

    from corag import CoRAGConfig, Question, Tools, corag
    from corag import ModelConfig, RetrieverConfig, open_generator, open_retriever

    model = await open_generator(ModelConfig())
    index = await open_retriever(RetrieverConfig(index=["indexes/mine-bm25"]))
    question = Question("q1", "Who directed the film that ...?")
    answer = await corag(question, Tools(question, model, index), CoRAGConfig(strategy="best_of_n"))

Every name is loaded when it is first asked for, so importing this loads nothing. It is a door, not a room: it
alone may name upper floors, and no module of ours imports through it. The room behind it is the method of
Wang et al. (NeurIPS 2025, arXiv 2501.14342); open ``method.py`` first.
"""

from core.lazy import lazy_exports

__all__, __getattr__, __dir__ = lazy_exports(
    __name__,
    {
        "corag.method": "CoRAGAnswer corag",
        "corag.config": "CoRAGConfig",
        "ircot": "IRCoTAnswer IRCoTConfig ircot",
        "baselines": (
            "AutoRAGConfig ClosedBookConfig DRAGConfig FLAREConfig IterDRAGConfig IterRetGenConfig "
            "LongRAGConfig OneStepConfig ReActConfig RecursiveConfig SearchO1Config SelfAskConfig "
            "SelfRAGConfig SelfRAGPromptedConfig auto_rag closed_book drag flare iter_retgen iterdrag "
            "longrag one_step react recursive search_o1 self_ask self_rag self_rag_prompted"
        ),
        "core": (
            "Answer BackendError BudgetExhaustedError Completion ConfigError CoragError DataError "
            "GenerateRequest Generation Generator Hit IndexMismatchError MethodConfig Passage Question "
            "ReaderConfig Retriever Sampling Score ScoreRequest SearchFailedError TokenUsage Tools "
            "answer_all answer_question passage_id"
        ),
        "core.prompting": "Prompt Template load_prompt parse_template",
        "core.runs": "Manifest RunFolder SavedRow Stamp read_rows",
        "generation": "CachedGenerator ModelConfig open_generator",
        "retrieval": "Bm25 build_index open_retriever register_bm25 register_format",
        "eval.experiment.extensions": "IndexConfig RetrieverConfig read_corpus",
        "eval.datasets": "DATASETS load_questions",
        "eval.datasets.world": "write_world",
        "eval.experiment.run": "RunConfig answer_dataset",
        "eval.tables": "ResultsTable compare_runs read_ledger table_of_runs",
        "eval.scoring": "SCORERS Scorer scorer",
        "eval.statistics": "Comparison Interval bootstrap_mean compare_paired",
        "eval.sweeps": "SweepConfig read_sweep",
        "eval.report": "html_page make_report",
        "training": "RowsConfig SampleConfig SftConfig make_rows perform_rounds sample_dataset",
    },
)
