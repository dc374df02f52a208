"""Names that other toolkits' configs have for what is called differently here, as the guide lists them.

docs/guides/option_names.md; names that mean the same in their section are the ``ALIASES`` of that section.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import yaml

from corag.core.method import Method
from corag.core.option_names import kinds_of, resolve_alias

POINTERS = {
    "ircot.max_num_sentences": "write 'ircot.max_steps'.",
    "ircot.valid_qids": "write 'ircot.demonstration_ids', in the order in which the prompt has them.",
    "ircot.answer_extractor_regex": "write 'ircot.stop_rule': 'strict' is the released pattern.",
    "ircot.model_length_limit": "write 'ircot.demonstration_window' for the examples.",
    "ircot.estimated_generation_length": "write 'ircot.max_thought_tokens' and 'ircot.max_answer_tokens'.",
    "one_step.retrieval_topk": "write 'one_step.k': each method has its own.",
    "iter_retgen.iter_num": "write 'iter_retgen.iterations'.",
    "self_ask.max_iter": "write 'self_ask.max_follow_ups'.",
    "self_rag.beam_width": "write 'self_rag.beam'.",
    "model_tokens_limit": "write 'model.max_context'.",
    "gen_model": "write 'model.name'.",
    "generator_model": "write 'model.name'.",
    "engine": "write 'model.name', and 'model.backend' for what runs it.",
    "source_corpus_name": "write 'retriever.index'.",
    "retrieval_pipeline_name": "write 'retriever.index'.",
    "retriever_host": "write 'retriever.url', with the port.",
    "eval_task": "write 'dataset', with 'questions'.",
    "eval_split": "write 'split'.",
    "n": "write --limit for the first so many questions, --corag.chains for so many chains.",
    "dry_run": "write 'limit', the number of questions.",
    "llm": "write 'model.name'.",
    "ircot.batch_size": "write 'batch_size' outside of a section: the questions in flight.",
}

PIPELINE = {"llm": "model.name", "retrieval_pipeline_name": "retriever.index", "batch_size": "batch_size"}
"""What a pipeline of AutoRAG-Research calls the model, the index and the questions in flight."""
IGNORED_KEYS = ("_target_", "name", "description")
"""What a pipeline says of itself: it has no counterpart and needs none."""


def explain_pipeline(data: Mapping[str, Any], methods: Mapping[str, Method]) -> str:
    """Return what to write instead of a pipeline of AutoRAG-Research, a file of ``_target_`` and flat keys.

    "" for any other file.
    """
    target = str(data.get("_target_", ""))
    if not target:
        return ""
    # Modules are called as the methods: autorag_research.pipelines.generation.ircot.IRCoTPipelineConfig.
    target_parts = set(target.lower().split("."))
    name = next((key for key, each in methods.items() if target_parts & {key, *each.also_called}), "")
    if not name:
        return f"configures '{target}', which is none of the methods here: 'corag list' has them."
    options: dict[str, Any] = {"method": [name]}
    unknown_keys = []
    for key, value in data.items():
        if option := _translate(key, name, methods[name]):
            section, _, last = option.rpartition(".")
            (options.setdefault(section, {}) if section else options)[last] = _number(value)
        elif key not in IGNORED_KEYS:
            unknown_keys.append(key)
    notes = ["'retriever.index' is a folder that 'corag index' made."] if "retriever" in options else []
    notes += [f"Without a counterpart here: {', '.join(unknown_keys)}."] if unknown_keys else []
    text = yaml.safe_dump(options, sort_keys=False)
    return "\n".join(
        ["configures AutoRAG-Research. For 'corag run --questions FILE' write:", "", text, *notes]
    )


def _translate(key: str, name: str, method: Method) -> str:
    """Return the dotted option that a key of a pipeline means, "" if there is none."""
    option = resolve_alias(key, method.config)
    return PIPELINE.get(key, f"{name}.{option}" if option in kinds_of(method.config) else "")


def _number(text: Any) -> Any:
    """Return the number that a text is, which YAML would write in quotes; anything else as it is."""
    value = yaml.safe_load(text) if isinstance(text, str) and text[:1].isdigit() else text
    return value if isinstance(value, int | float) else text
