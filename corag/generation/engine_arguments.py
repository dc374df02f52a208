"""Arguments of vLLM's engine that are passed through as they are: which there are, and which are taken.

``--model.engine '{quantization: fp8, max_num_batched_tokens: 8192}'`` reaches the fields of vLLM's
``AsyncEngineArgs`` of these names. Those that are options here, and those that scoring by forced decoding
(:mod:`corag.generation.forced`) rests on, are refused.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from corag.core.errors import ConfigError

_OPTIONS = {
    "model": "name",
    "model_weights": "name",
    "tokenizer": "name",
    "dtype": "dtype",
    "max_model_len": "max_context",
    "block_size": "block_size",
    "max_num_seqs": "max_num_seqs",
    "kv_cache_memory_bytes": "kv_cache_gb",
    "gpu_memory_utilization": "gpu_memory_utilization",
    "tensor_parallel_size": "tensor_parallel",
    "enforce_eager": "enforce_eager",
    "enable_prefix_caching": "prefix_cache",
    "enable_lora": "adapter",
    "max_lora_rank": "adapter",
}
"""The option of ``--model`` by the engine argument that it sets."""

_RESERVED_ARGUMENTS = {
    "logits_processors": "the plug-in that scores given texts is one",
    "logprobs_mode": "scores and several methods need the model's own log-probabilities",
    "additional_config": "the engine ends with the process that opened it by it",
    "scheduling_policy": "questions that are deepest in their chain go first by it",
    "enable_trace_replay": "it is on wherever the engine can do it",
    "runner": "models here write",
    "convert": "models here write",
    "skip_tokenizer_init": "the engine finds stop texts with its tokenizer",
    "tokens_only": "the engine finds stop texts with its tokenizer",
    "disable_log_stats": "nothing here reads them",
    "enable_log_requests": "nothing here reads them",
    "use_tqdm_on_load": "a run has a progress line of its own",
    **dict.fromkeys(
        ("speculative_config", "spec_method", "spec_model", "spec_tokens"),
        "scores are computed with vLLM's trace replay, which does not support speculative decoding. A server "
        "of yours may use it (model.backend=server): its scores are tested when it is opened",
    ),
}  # fmt: skip
"""Why an engine argument is refused that no option sets."""

_SPEED = frozenset(
    "max_num_batched_tokens max_num_scheduled_tokens long_prefill_token_threshold max_num_active_seqs "
    "max_num_queued_reqs max_num_queued_tokens max_parallel_loading_workers load_format download_dir "
    "safetensors_load_strategy safetensors_prefetch_num_threads safetensors_prefetch_block_size "
    "async_scheduling stream_interval cpu_offload_gb kv_offloading_size kv_offloading_backend numa_bind "
    "numa_bind_nodes numa_bind_cpus device_ids shutdown_timeout log_level".split()
)
"""How much at once, from where, or in what memory: not part of what identifies a result."""


def refuse_reserved(arguments: Mapping[str, Any]) -> None:
    """Raise :class:`ConfigError` for arguments that options set, or that scores rest on."""
    for name in arguments:
        if option := _OPTIONS.get(name):
            raise ConfigError(f"'model.engine' has '{name}': write 'model.{option}' instead.")
        if reason := _RESERVED_ARGUMENTS.get(name):
            raise ConfigError(f"'model.engine' has '{name}', which is not free: {reason}.")


def identity(arguments: Mapping[str, Any]) -> str:
    """Return what a generator's fingerprint says of the arguments, "" for those that only change the speed.

    >>> identity({"quantization": "fp8", "max_num_batched_tokens": 8192})
    ':engine={"quantization": "fp8"}'
    """
    settings = {name: value for name, value in sorted(arguments.items()) if name not in _SPEED}
    return f":engine={json.dumps(settings, sort_keys=True, default=str)}" if settings else ""


def with_exact_head(arguments: Mapping[str, Any], *, quantized: bool) -> dict[str, Any]:
    """Return the arguments with the output layer's products summed and kept in float32, for GPUs.

    In bfloat16 a logit of 16 to 32 is a multiple of 0.125, and scores are differences of such numbers; on
    CUDA vLLM lets the same product of matrices end in float32, without a copy of the weights. It refuses that
    where the output layer itself is quantised, so ``quantized`` models are left as they are.
    """
    overrides = arguments.get("hf_overrides", {})
    if quantized or "quantization" in arguments or not isinstance(overrides, Mapping):
        return dict(arguments)
    return {**arguments, "hf_overrides": {"head_dtype": "float32", **overrides}}
