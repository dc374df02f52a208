"""The table of engines: what each is to the rest of the project, and how it is opened.

An entry here is a choice of ``--model.backend``, whose name :mod:`corag.generation.config` lists. torch, vLLM
and httpx are imported only when an engine is opened.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from corag.core.errors import BackendError, ConfigError
from corag.core.lazy import importing
from corag.core.own_objects import find_user_object, identify
from corag.core.protocols import Generator
from corag.core.runs.provenance import settings_of
from corag.core.system.installation import require
from corag.generation.config import ModelConfig
from corag.generation.function_model import own_model
from corag.generation.gpu_memory import count_gpus
from corag.generation.http.profiles import VLLM, ServerProfile
from corag.generation.transformers_engine import TransformersGenerator
from corag.generation.vllm_engine import VllmGenerator


def _no_gpus(config: ModelConfig) -> int:
    return 0


@dataclass(frozen=True, slots=True)
class Engine:
    """A back end of ``--model.backend``.

    Attributes:
        name: its name on the command line.
        summary: one line about it.
        open: returns a generator that is ready to work.
        packages: the modules that must be installed for it.
        spawns_processes: opening it starts processes that import the caller's script again.
        count_gpus: returns how many GPUs one of it takes for itself; 0 where it computes elsewhere.
        loads_adapters: it loads an adapter from a folder, so that one that has just been trained can be used.
    """

    name: str
    summary: str
    open: Callable[[ModelConfig], Awaitable[Generator]]
    packages: tuple[str, ...] = ()
    spawns_processes: bool = False
    loads_adapters: bool = True
    count_gpus: Callable[[ModelConfig], int] = _no_gpus

    def check_installed(self) -> None:
        """Raise :class:`corag.core.errors.ConfigError` unless its packages are installed."""
        others = "choose another 'model.backend': transformers, or openai for a server"
        require(f"the back end '{self.name}'", *self.packages, otherwise=others)


async def _open_servers(config: ModelConfig, tokenizer: str, profile: ServerProfile | None) -> Generator:
    from corag.generation.http.engine import HttpGenerator

    return await HttpGenerator.open(config, tokenizer=tokenizer, profile=profile)


async def _open_own(config: ModelConfig) -> Generator:
    # In its manifest a run would seem to be of an adapter, or of another chat template, that it never had.
    defaults = settings_of(ModelConfig())
    for name, value in settings_of(config).items():
        if value != defaults[name] and name not in ("backend", "name", "max_context", "remember"):
            raise ConfigError(
                f"model.{name} is '{value}', but '{config.name}' is a function or object of yours, which is "
                "not given it: set it there, and leave it out here."
            )
    target, identity = find_user_object(config.name, "model.name"), identify(config.name)
    return own_model(target, identity.text if identity else "", config.max_context)


def _gpus_of_own(config: ModelConfig) -> int:
    target = find_user_object(config.name, "model.name")
    return int(target.gpus) if hasattr(target, "gpus") else 0


async def _open_transformers(config: ModelConfig) -> Generator:
    return TransformersGenerator.open(config)


def _gpus_of_transformers(config: ModelConfig) -> int:
    if config.device not in ("auto", "cuda"):  # on a GPU that was chosen, or on none
        return 0
    with importing:
        import torch
    return int(torch.version.cuda is not None)


async def _open_vllm(config: ModelConfig) -> Generator:
    generator = VllmGenerator.open(config)
    if config.deterministic:
        try:
            await generator.check_deterministic()
        except BackendError:
            await generator.close()
            raise
    return generator


_TABLE = (
    Engine(
        "openai",
        "running servers that speak OpenAI's protocol: Ollama, LM Studio, llama.cpp, SGLang and others",
        lambda config: _open_servers(config, config.tokenizer, None),
        loads_adapters=False,
    ),
    Engine(
        "python",
        "a function or object of yours: FILE.py:NAME",
        _open_own,
        loads_adapters=False,
        count_gpus=_gpus_of_own,
    ),
    Engine(
        "server",
        "running vLLM servers",
        # The tokenizer is that of the model's folder, so that prompts go as token ids.
        lambda config: _open_servers(config, config.name, VLLM),
        packages=("transformers",),
        loads_adapters=False,
    ),
    Engine(
        "transformers",
        "transformers in this process: slow, and what the others are tested against",
        _open_transformers,
        packages=("torch", "transformers"),
        count_gpus=_gpus_of_transformers,
    ),
    Engine(
        "vllm",
        "vLLM in this process",
        _open_vllm,
        packages=("vllm",),
        spawns_processes=True,
        count_gpus=count_gpus,
    ),
)
ENGINES = {engine.name: engine for engine in _TABLE}


def engine_of(config: ModelConfig) -> Engine:
    """Return the engine that a configuration's back end names; vLLM if that was left open."""
    return ENGINES[config.with_engine().backend]
