"""How CoRAG is about to ask a model, beside how that was taught: what a training noted in training.json.

Rows are made of chains, whose options and prompts stand in the manifest of the training. A model that is
asked otherwise answers worse, and nothing else would tell why.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from shlex import join
from typing import Any

from corag.chains.config import CoRAGConfig
from corag.chains.prompting import PromptName

# What a prompt shows. How many hops there are, and how chains are chosen, is free.
_PROMPT_OPTIONS = (
    "passages_per_hop", "prune", "merge", "context", "context_passages", "context_order",
    "max_passage_tokens", "max_prompt_tokens", "refusal",
)  # fmt: skip
_LIMITS = ("max_sub_query_tokens", "max_sub_answer_tokens", "max_answer_tokens")
_PROMPTS: tuple[PromptName, ...] = ("sub_query", "sub_answer", "final_answer")  # the first that chains note


@dataclass(frozen=True)
class Teaching:
    """What a training taught CoRAG.

    Attributes:
        options: of the chains, by name; several trainings on one another may have several values.
        prompts: identities of ``_PROMPTS``, in order, of each folder of chains.
        tasks: the row tasks; empty if they are not known.
        further: it went on from an adapter, which may have been taught more.
    """

    options: Sequence[Mapping[str, Any]]
    prompts: Sequence[Sequence[str]]
    tasks: frozenset[str]
    further: bool

    @classmethod
    def read(cls, settings: Mapping[str, Any]) -> Teaching | None:
        """Read the settings of a training's manifest; None if it taught CoRAG nothing."""
        rows = settings.get("rows", ())
        tasks = {task for each in rows for task in each.get("rows", {}).get("tasks", ())}
        chains = [chain for source in (*rows, settings) for chain in source.get("chains", ())]
        chains = [chain for chain in chains if "corag" in chain.get("options", {})]
        if not chains:
            return None
        return cls(
            [chain["options"]["corag"] for chain in chains],
            [tuple(chain["prompts"][: len(_PROMPTS)]) for chain in chains],
            frozenset(tasks),
            bool(settings.get("options", {}).get("adapter")),
        )

    def differences(self, config: CoRAGConfig) -> Iterator[tuple[str, Any, Any]]:
        """Yield what is asked otherwise than it was taught: (option, as taught, as asked)."""
        if not config.max_hops:
            return  # no chain is asked for
        if self.teaches_no_chain:
            yield "max_hops", 0, config.max_hops
            return
        for name in _PROMPT_OPTIONS:
            values = [options[name] for options in self.options if name in options]
            value = getattr(config, name)
            if values and value not in values:
                yield name, values[-1], value
        for position, name in enumerate(_PROMPTS):
            identity = config.prompt(name).identity
            if all(identity not in prompts for prompts in self.prompts):
                yield f"{name}_prompt", self.prompts[-1][position], identity
        # The other rules are asked for on purpose; "length" is the default.
        if self.teaches_stopping and config.stop == "length":
            yield "stop", "learned", config.stop
        if self.lacks_stopping and config.stop == "learned":
            yield "stop", "length", config.stop

    @property
    def teaches_stopping(self) -> bool:
        """Whether the model was taught to say when a chain is enough."""
        return "stop" in self.tasks

    @property
    def teaches_no_chain(self) -> bool:
        """Whether the model was taught to answer from the question's own passages alone."""
        return self.tasks == {"no_chain"} and not self.further

    @property
    def lacks_stopping(self) -> bool:
        """Whether it is certain that it was not."""
        return bool(self.tasks) and not self.teaches_stopping and not self.further

    def arguments(self) -> list[str]:
        """Return the options of the command line that ask as it was taught."""
        names = (*_PROMPT_OPTIONS, *_LIMITS, *(f"{each}_prompt" for each in _PROMPTS))
        record = self.options[-1]
        arguments = option_arguments("corag", CoRAGConfig, record, names)
        if self.teaches_no_chain:
            return [*arguments, "--corag.max_hops", "0"]
        if self.teaches_stopping:
            return [*arguments, "--corag.stop", "learned"]
        by_preset = CoRAGConfig.PRESETS.get(record.get("preset", ""), {}).get("stop")
        if self.lacks_stopping and by_preset == "learned":
            return [*arguments, "--corag.stop", "length"]
        return arguments


def option_arguments(
    section: str, kind: Callable[..., Any], record: Mapping[str, Any], names: Iterable[str]
) -> list[str]:
    """Return a method's options as arguments of the command line: its preset, and what differs from that.

    Args:
        section: the name that commands have for the options.
        kind: their class.
        record: values by name, as a manifest keeps them. What this version does not have is passed over.
        names: the options that count.
    """
    base = vars(kind(**{name: record[name] for name in ("preset",) if name in record}))
    preset = base.get("preset", "")
    arguments = [f"--{section}.preset", preset] if preset != vars(kind()).get("preset", "") else []
    for name in names:
        if name != "preset" and name in record and record[name] != base.get(name, record[name]):
            value = record[name]
            arguments += [f"--{section}.{name}", ",".join(value) if isinstance(value, list) else str(value)]
    return arguments


def training_difference(config: CoRAGConfig, settings: Mapping[str, Any]) -> str:
    """Return the second half of a sentence on how what was taught differs from what is asked, or ""."""
    teaching = Teaching.read(settings)
    different = list(teaching.differences(config)) if teaching else []
    if teaching is None or not different:
        return ""
    before = ", ".join(f"{name} {value}" for name, value, _ in different)
    now = ", ".join(f"{name} {value}" for name, _, value in different)
    command = join(teaching.arguments())
    return f"was trained for corag with {before}, but is asked with {now}: {command} asks as trained"
