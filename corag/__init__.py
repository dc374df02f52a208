"""CoRAG and its baselines: what most programs need, imported by ``from corag import ...``.

    from corag import CoRAGConfig, ask, corag, ircot, open_index, open_model, run

    model, index = open_model("default", adapter="default"), open_index("quickstart/bm25")
    answer = ask("Who directed ...?", corag, model, index, CoRAGConfig(strategy="best_of_n", chains=4))
    print(answer)  # the chains with what they found, the answer, its sources, tokens, seconds
    results = run("questions.jsonl", [corag, ircot], model, index, out="runs/mine")  # the same call resumes
    print(results.compare(baseline="corag"))

These functions wait for their result; ``aask`` is ``ask`` to await. In a script they stand
below ``if __name__ == "__main__":``, since vLLM starts processes that import the script again.

Every name is loaded when it is first used, so importing this loads nothing. What is not here is imported from
the module that defines it, such as ``from corag.core.types import Hit``; a method may be given by its name,
too (``ask(question, "react", ...)``). Only this module may name packages above ``corag.core``, and none of
ours imports through it.
"""

from corag.core.lazy import lazy_exports
from corag.packages import check_packages

check_packages()

__all__, __getattr__, __dir__ = lazy_exports(
    __name__,
    {
        "corag.version": "__version__",
        "corag.core.errors": "ConfigError CoragError",
        "corag.core.method": "Method MethodConfig",
        "corag.core.tools": "Tools",
        "corag.core.types": "Answer Passage Question",
        "corag.baselines.auto_rag": "AutoRAGConfig auto_rag",
        "corag.baselines.closed_book": "ClosedBookConfig closed_book",
        "corag.baselines.drag": "DRAGConfig drag",
        "corag.baselines.flare": "FLAREConfig flare",
        "corag.baselines.iter_retgen": "IterRetGenConfig iter_retgen",
        "corag.baselines.iterdrag": "IterDRAGConfig iterdrag",
        "corag.baselines.longrag": "LongRAGConfig longrag",
        "corag.baselines.one_step": "OneStepConfig one_step",
        "corag.baselines.react": "ReActConfig react",
        "corag.baselines.recursive.method": "RecursiveConfig recursive",
        "corag.baselines.search_o1": "SearchO1Config search_o1",
        "corag.baselines.search_r1": "SearchR1Config search_r1",
        "corag.baselines.self_ask": "SelfAskConfig self_ask",
        "corag.baselines.self_rag": "SelfRAGConfig self_rag",
        "corag.chains.config": "CoRAGConfig",
        "corag.chains.method": "corag",
        "ircot.method": "IRCoTConfig ircot",
        "corag.generation.config": "ModelConfig",
        "eval.api.ask": "aask ask",
        "eval.api.building": "build_index",
        "eval.api.opened": "open_index open_model",
        "eval.api.results": "report run table",
        "eval.api.sweep_results": "sweep",
        "eval.datasets": "load_questions",
        "eval.datasets.world": "write_world",
        "eval.experiment.extensions": "IndexConfig RetrieverConfig",
        "eval.experiment.run": "RunConfig",
        "eval.experiment.workers.config": "WorkersConfig",
        "training": "RowsConfig SampleConfig SftConfig",
        "training.environment": "SearchEnvironment",
        "training.results": "make_rows sample_chains train",
    },
)
