"""A real model so small that it costs nothing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from corag.generation.models import model_folder


def save_tiny_model(folder: Path, seed: int, hidden: int = 64) -> str:
    """Save a Llama with random weights."""
    import torch
    from transformers import AutoTokenizer, LlamaConfig, LlamaForCausalLM

    tokenizer = AutoTokenizer.from_pretrained(model_folder("default", weights=False))
    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=hidden,
        intermediate_size=2 * hidden,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=4096,
        tie_word_embeddings=True,
        initializer_range=0.2,  # so that replies differ from prompt to prompt
        **_special_tokens(tokenizer),
    )
    return _save(LlamaForCausalLM(config), tokenizer, folder)


def save_tiny_base_model(folder: Path) -> str:
    """Save the same as a base model: its texts end with a token, its chat template's turns with another."""
    from transformers import AutoTokenizer

    save_tiny_model(folder, seed=0)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    tokenizer.eos_token = "<|endoftext|>"
    tokenizer.save_pretrained(folder)
    for name in ("config.json", "generation_config.json"):
        settings = json.loads((folder / name).read_text()) | {"eos_token_id": tokenizer.eos_token_id}
        (folder / name).write_text(json.dumps(settings))
    return str(folder)


def save_tiny_mixture(folder: Path, like: str) -> str:
    """Save a mixture of experts with random weights, with the tokenizer of the model ``like``."""
    import torch
    from transformers import AutoTokenizer, Qwen3MoeConfig, Qwen3MoeForCausalLM

    tokenizer = AutoTokenizer.from_pretrained(like)
    torch.manual_seed(0)
    config = Qwen3MoeConfig(
        vocab_size=len(tokenizer),
        hidden_size=32,
        intermediate_size=64,
        moe_intermediate_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=8,
        num_experts=4,
        num_experts_per_tok=2,
        router_aux_loss_coef=0.1,
        max_position_embeddings=4096,
        **_special_tokens(tokenizer),
    )
    return _save(Qwen3MoeForCausalLM(config), tokenizer, folder)


def save_tiny_t5(folder: Path, seed: int = 0) -> str:
    """Save a T5 with random weights, and a vocabulary of pieces that is made here."""
    import string

    import torch
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers
    from transformers import T5Config, T5ForConditionalGeneration, T5Tokenizer

    pieces = Tokenizer(models.Unigram())
    pieces.pre_tokenizer = pre_tokenizers.Metaspace()
    special = ["<pad>", "</s>", "<unk>"]
    trainer = trainers.UnigramTrainer(special_tokens=special, unk_token="<unk>", show_progress=False)
    pieces.train_from_iterator([*string.printable, "The capital of Norway is Oslo. What is it?"], trainer)
    vocabulary = json.loads(pieces.to_str())["model"]["vocab"]
    tokenizer = T5Tokenizer(vocab=[tuple(piece) for piece in vocabulary], extra_ids=0)
    torch.manual_seed(seed)
    config = T5Config(
        vocab_size=len(tokenizer) + 4,  # as Flan-T5's, whose vocabulary is padded
        d_model=32,
        d_kv=8,
        d_ff=64,
        num_layers=2,
        num_heads=4,
        feed_forward_proj="gated-gelu",
        tie_word_embeddings=False,
        initializer_factor=8.0,  # so that replies differ from prompt to prompt
        decoder_start_token_id=0,
        n_positions=512,
    )
    model = T5ForConditionalGeneration(config)
    model.lm_head.weight.data *= 0.01  # so that replies can be sampled
    model.lm_head.weight.data[len(tokenizer) :] = 0.0  # no greedy reply holds what is no piece
    return _save(model, tokenizer, folder)


def save_tiny_encoder(folder: Path, settings: dict[str, Any] | None = None, max_tokens: int = 64) -> str:
    """Save a sentence-transformers folder: a BERT of one random layer with the default encoder's tokenizer.

    ``settings``: of its ``config_sentence_transformers.json``, as public encoders have them.
    """
    import torch
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Pooling, Transformer
    from transformers import AutoTokenizer, BertConfig, BertModel

    from retrieval.dense.encoder import encoder_folder

    torch.manual_seed(0)
    config = BertConfig(hidden_size=32, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32)
    bert = _save(BertModel(config), AutoTokenizer.from_pretrained(encoder_folder("default")), folder / "bert")
    transformer = Transformer(bert, max_seq_length=max_tokens)
    SentenceTransformer(modules=[transformer, Pooling(32)], device="cpu").save(str(folder / "encoder"))
    file = folder / "encoder" / "config_sentence_transformers.json"
    # What the library wrote of prompts goes: a public encoder has what stands in its own file.
    kept = {"model_type": json.loads(file.read_text()).get("model_type", "SentenceTransformer")}
    file.write_text(json.dumps(kept | (settings or {})))
    return str(folder / "encoder")


def _special_tokens(tokenizer: Any) -> dict[str, int]:
    return {f"{name}_token_id": getattr(tokenizer, f"{name}_token_id") for name in ("bos", "eos", "pad")}


def _save(model: Any, tokenizer: Any, folder: Path) -> str:
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return str(folder)
