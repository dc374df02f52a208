"""What all commands that answer questions share: options, opening the back ends, and what their files are."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Annotated, ClassVar

from annotated_types import Ge

from corag.core.errors import ConfigError
from corag.core.method import MethodConfig
from corag.core.options.names import NameOrPath
from corag.core.own_objects import identify
from corag.core.protocols import Ability, Generator, Retriever
from corag.core.runs.provenance import Input
from corag.core.system.files import file_digest
from corag.generation.adapters import adapter_folder
from corag.generation.config import ModelConfig
from corag.generation.models import folder_digest
from corag.generation.trained_for import read_trainings
from eval.experiment.executor import RemoteHandle
from eval.experiment.opening import open_index_quietly, open_model_quietly
from eval.experiment.own_methods import short_name
from eval.experiment.progress import print_line
from eval.experiment.registry import METHODS, MethodOptions, canonical_name, check_names, methods_of
from retrieval.config import RetrieverConfig
from retrieval.index.manifest import INDEX_FILE

# What is typed first, at whatever opens a model and an index.
OPENED_ALIASES = {"llm": "model.name", "model": "model.name", "index": "retriever.index"}


@dataclass(frozen=True)
class Setup(MethodOptions):
    """What every command that answers questions needs to know."""

    method: list[NameOrPath] = field(default_factory=lambda: ["ircot"])
    """one or more methods, separated by commas ('corag list' shows them), or FILE.py:FUNCTION for your
    own."""

    model: ModelConfig = field(default_factory=ModelConfig)
    """the language model and its engine."""

    retriever: RetrieverConfig = field(default_factory=RetrieverConfig)
    """the index or server to search."""

    seed: int = 0
    """random seed; all randomness is derived from it."""

    budget: Annotated[int, Ge(0)] = 0
    """token budget per question, prompt plus generated; 0 for no limit."""

    ALIASES: ClassVar[dict[str, str]] = OPENED_ALIASES

    def __post_init__(self) -> None:
        object.__setattr__(self, "model", self.settled_model())
        # A method of the user's own is named by its file; from here on it has a short name, as others have.
        entries = methods_of(type(self))
        object.__setattr__(
            self, "method", [canonical_name(short_name(name), entries) for name in self.method]
        )
        check_names(self.method, entries)

    def settled_model(self) -> ModelConfig:
        """Return the model's options with an engine in the place of "auto"."""
        return self.model.with_engine()

    @property
    def searches(self) -> bool:
        """Whether any of the methods needs a retriever, or may search the one that is named."""
        has_index = bool(self.retriever.index or self.retriever.url)
        entries = [self.find_method(name) for name in self.method]
        return any(entry.needs_index or (entry.searches and has_index) for entry in entries)


@asynccontextmanager
async def open_backends(setup: Setup) -> AsyncIterator[tuple[Generator, Retriever | None]]:
    """Open the retriever (if a method searches) and then the model.

    Close both at the end, whatever happens.
    """
    async with AsyncExitStack() as stack:
        retriever = None
        if setup.searches:
            # Before the engine, which takes what memory is left.
            retriever = await stack.enter_async_context(open_index_or_client(setup.retriever))
        generator = await open_model_quietly(setup.model)
        stack.push_async_callback(generator.close)
        stack.callback(lambda: _print_retries(generator.retried, "the model's servers"))
        yield generator, retriever


@asynccontextmanager
async def open_index_or_client(options: RetrieverConfig) -> AsyncIterator[Retriever]:
    """Open an index or a client of search servers, close it at the end, and print its count of retries."""
    async with AsyncExitStack() as stack:
        retriever = await open_index_quietly(options)
        stack.push_async_callback(retriever.close)
        stack.callback(lambda: _print_retries(retriever.retried, "the search servers"))
        yield retriever


def _print_retries(retries: int, servers: str) -> None:
    if retries:
        print_line(f"corag: {retries} requests failed at {servers} and were sent again.")


def check_setup(setup: Setup) -> None:
    """Raise :class:`ConfigError` for a missing file or index: all else is found out by opening."""
    for name in setup.method:
        setup.of(name).check_files()
    if setup.searches:
        require_index(setup.retriever)


def check_model(
    what: str, options: MethodConfig, config: ModelConfig, model: Generator | RemoteHandle
) -> None:
    """Look whether an open model serves a method, before the first request.

    A line is printed if it was fine-tuned for other prompts, passages or stops than the options ask, or is
    too small for what they ask.

    Args:
        what: the method, as it is called.
        options: the method's.
        config: the model's.
        model: the open one.

    Raises:
        ConfigError: if the model lacks an ability that the method needs.
    """
    require_abilities(what, options.needs(), model)
    trainings = read_trainings(config.adapter, config.name)
    method = METHODS.get(options.SECTION)
    if trainings and method and (difference := method.training_difference(options, trainings[0]["settings"])):
        print_once(f"corag: '{config.adapter or config.name}' {difference}.")
    if options.cites and config.name == "default" and not trainings:
        print_once("corag: the default model hardly ever cites or refuses: name a larger one (model.name).")


def require_abilities(what: str, needs: Mapping[Ability, str], generator: Generator | RemoteHandle) -> None:
    """Raise :class:`ConfigError` if a model lacks an ability, before the first request.

    ``what``: what needs it. ``needs``: as :meth:`corag.core.method.MethodConfig.needs` returns them.
    """
    if lacking := [ability for ability in needs if ability in generator.lacks]:
        ways = list(dict.fromkeys(filter(None, map(needs.__getitem__, lacking))))
        if generator.name and Ability.TEMPERATURE in lacking:
            ways.append("give it a parameter temperature")
        raise ConfigError(
            f"{what} needs {' and '.join(lacking)}, which {generator.name or 'this server'} does not offer: "
            f"{'; '.join([*ways, 'ask a vLLM server (model.backend=server) or a model that corag opens'])}."
        )


print_once = cache(print_line)
"""Print a line on standard error, the first time that it is to be printed."""


def require_index(retriever: RetrieverConfig) -> None:
    """Raise :class:`ConfigError` if there is nothing to search."""
    if not retriever.index and not retriever.url:
        raise ConfigError(
            "no index was given to search: build one with 'corag index' and name it with 'retriever.index', "
            "or name a server with 'retriever.url'."
        )


def identify_weights(model: str, adapter: str = "", *, backend: str = "") -> dict[str, list[Input]]:
    """Identify a model and its adapter by content, without opening them.

    ``backend``: only of "python" a name is that of an own object. "phi:latest" is Ollama's, and a phi.py that
    lies here is not run for it.

    What a hub holds under a name is not asked there: it counts as what it is called, among the settings.
    """
    if backend == "python" and (identity := identify(model)):
        return {"model": [Input(model, identity.text)]}
    folders = {"model": "" if model == "default" else model, "adapter": adapter_folder(adapter)}
    return {
        part: [Input(folder, folder_digest(folder))]
        for part, folder in folders.items()
        if folder and Path(folder).is_dir()
    }


def identify_indexes(retriever: RetrieverConfig) -> dict[str, list[Input]]:
    """Identify indexes by their manifests, without opening them; own retrievers, too."""
    identities = {index: identify(index) for index in retriever.index}
    return {
        "index": [
            Input(index, identity.text if identity else file_digest(Path(index) / INDEX_FILE))
            for index, identity in identities.items()
        ]
    }
