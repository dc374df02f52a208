"""CoRAG, and the front door of the house: ``from corag import ...`` hands out the public names of all rooms.

    from corag import CoRAGConfig, ask, corag, ircot, open_index, open_model, run

    model, index = open_model("default", adapter="default"), open_index("quickstart/bm25")
    answer = ask("Who directed ...?", corag, model, index, CoRAGConfig(strategy="best_of_n", chains=4))
    print(answer)  # the chains with what they found, the answer, its sources, tokens, seconds
    results = run("questions.jsonl", [corag, ircot], model, index, out="runs/mine")  # the same call resumes
    print(results.compare(baseline="corag"))

These functions wait for their result; each has a twin to await, such as ``aask``. In a script they stand
below ``if __name__ == "__main__":``, since vLLM starts processes that import the script again.

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
            "Answer BackendError BudgetExhaustedError CandidateAnswer Completion ConfigError CoragError "
            "DataError GenerateRequest Generation Generator Hit IndexMismatchError MethodConfig Passage "
            "Question ReaderConfig Retriever Sampling Score ScoreRequest SearchFailedError TokenUsage Tools "
            "answer_all answer_question passage_id"
        ),
        "core.prompting": "Prompt Template load_layout load_prompt parse_template render_passages",
        "core.text": "extract_answer",
        "core.runs": "Manifest RunFolder SavedRow Stamp read_rows",
        "generation": "CachedGenerator ModelConfig open_generator",
        "retrieval": "Bm25 open_retriever register_bm25 register_format",
        "eval.experiment.extensions": "IndexConfig RetrieverConfig read_corpus",
        "eval.datasets": "DATASETS load_questions",
        "eval.datasets.world": "write_world",
        "eval.experiment.opened": "Index Model aopen_index aopen_model open_index open_model",
        "eval.experiment.building": "BuiltIndex abuild_index build_index",
        "eval.experiment.ask": "Answered aask ask",
        "eval.experiment.results": "Results Table areport arun report run",
        "eval.experiment.run": "RunConfig answer_dataset",
        "eval.tables": "ResultsTable compare_runs read_ledger table_of_runs",
        "eval.scoring": "SCORERS Scorer scorer",
        "eval.statistics": "Comparison Interval bootstrap_mean compare_paired",
        "eval.workers.config": "WorkersConfig ray_workers",
        "eval.sweeps": "SweepConfig read_sweep",
        "eval.sweeps.results": "SweepResults asweep sweep",
        "eval.report": "html_page make_report",
        "training": "RowsConfig SampleConfig SftConfig perform_rounds sample_dataset",
        "training.results": "ChainSet RowSet amake_rows asample_chains make_rows sample_chains",
    },
)
