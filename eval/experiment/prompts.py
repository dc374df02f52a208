"""By which prompts questions of people are answered: a benchmark's, or those for documents."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

from corag.core.method import MethodConfig
from corag.generation.config import ModelConfig
from corag.generation.trained_for import trained_for
from eval.datasets.corpora import index_manifest
from eval.experiment.backends import Setup
from retrieval.corpora.formats import DOCUMENTS

Prompts = Literal["auto", "short", "documents"]


@dataclass(frozen=True)
class AskSetup(Setup):
    """What the commands need to know that answer people, one question after the other."""

    model: ModelConfig = field(default_factory=lambda: ModelConfig(backend="auto"))

    prompts: Prompts = "auto"
    """"documents": one_step, ircot and corag answer in sentences that cite passages by number, or say that
    the documents do not answer. "short": a name or a date, as benchmarks want it. "auto" takes the former for
    an index of documents, unless the model was trained for other prompts."""

    def of(self, name: str) -> MethodConfig:
        """Return the options of one method, with the prompts that were chosen."""
        return self.with_prompts(super().of(name))

    def with_prompts(self, options: MethodConfig) -> MethodConfig:
        """Return a method's options with the prompts that were chosen."""
        for_documents = options.for_documents()
        if self.prompts == "auto":
            new = {each.identity for each in for_documents.templates() if each.whole}
            is_wanted = self._are_documents and (not self._taught or bool(new & self._taught))
        else:
            is_wanted = self.prompts == "documents"
        return for_documents if is_wanted else options

    @cached_property
    def _are_documents(self) -> bool:
        """Whether all that is searched is known to be made of documents."""
        manifests = [index_manifest(folder) for folder in self.retriever.index]
        formats = {each.settings.detail("format") if each else "" for each in manifests}
        return formats == {DOCUMENTS}

    @cached_property
    def _taught(self) -> set[str]:
        """The prompts that model and adapter were trained for, by their identities."""
        prompts = trained_for(self.model.adapter, self.model.name)
        return {prompt for each in prompts.values() for prompt in each}
