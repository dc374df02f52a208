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
    "max_num_seqs": "max_num_seqs",
    "kv_cache_memory_bytes": "kv_cache_gb",
    "gpu_memory_utilization": "gpu_memory_utilization",
    "tensor_parallel_size": "tensor_parallel",
    "enable_lora": "adapter",
    "max_lora_rank": "adapter",
}
"""The option of ``--model`` by the engine argument that it sets."""

_RESERVED = frozenset(
    "logits_processors logprobs_mode additional_config scheduling_policy enable_trace_replay runner convert "
    "skip_tokenizer_init tokens_only disable_log_stats enable_log_requests use_tqdm_on_load "
    "speculative_config spec_method spec_model spec_tokens".split()
)
"""What scores of given texts, the order of requests, and the output of a run rest on. vLLM's trace replay,
by which scores are computed, does not support speculative decoding; a server may use it."""

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
        if name in _RESERVED:
            raise ConfigError(
                f"'model.engine' has '{name}', which is not free: scores and the order of requests rest on "
                "it. Leave it out, or start a server of your own with it (model.backend=server)."
            )


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
