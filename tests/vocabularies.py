"""Small tokenizers with the traits of public families: how a text's first blank is written, and read back."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors
from tokenizers.trainers import BpeTrainer, UnigramTrainer, WordPieceTrainer

from corag.generation.rendering import Renderer

_TEXT = (
    "Who wrote the book? The capital of Norway is Oslo.",
    "Answer: Paris is the capital of France.\n\nNext question: Where was Ada Lovelace born?",
    "[INST] Say yes or no. [/INST] No, it is not. user assistant",
    "In 1984 the river's end was in Zürich.\n",
)
_SPECIAL = ("<s>", "</s>", "<|user|>", "<|end|>", "<|assistant|>")
_LLAMA_3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)

# Turns between tokens of their own (Phi-3, ChatML), and Mistral's, whose ends of a prompt are plain text.
TURNS = (
    "{% for turn in messages %}<|{{ turn.role }}|>\n{{ turn.content }}<|end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>\n{% endif %}"
)
INSTRUCTIONS = (
    "{{ bos_token }}{% for turn in messages %}{% if turn.role == 'user' %}[INST] {{ turn.content }} [/INST]"
    "{% else %} {{ turn.content }}{{ eos_token }}{% endif %}{% endfor %}"
)


def _sentence_piece(pre: Any, *, normalizer: Any = None, strips: bool) -> Tokenizer:
    """BPE with bytes to fall back to, as Llama 2 and Gemma have it: a blank is written ▁."""
    trained = Tokenizer(models.BPE())
    trained.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Split("\n", "isolated"), pre_tokenizers.Metaspace(prepend_scheme="always")]
    )
    trained.train_from_iterator(_TEXT, BpeTrainer(vocab_size=260, show_progress=False))
    state = json.loads(trained.to_str())["model"]
    pieces = ["<unk>", *_SPECIAL, *(f"<0x{byte:02X}>" for byte in range(256)), *state["vocab"]]
    vocabulary = {piece: number for number, piece in enumerate(dict.fromkeys(pieces))}
    merges = [tuple(merge) for merge in state["merges"]]
    tokenizer = Tokenizer(
        models.BPE(vocabulary, merges, unk_token="<unk>", fuse_unk=True, byte_fallback=True)
    )
    tokenizer.normalizer, tokenizer.pre_tokenizer = normalizer, pre
    steps = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    tokenizer.decoder = decoders.Sequence(steps + [decoders.Strip(" ", 1, 0)] * strips)
    return tokenizer


def _metaspace(scheme: str) -> Tokenizer:
    pre = pre_tokenizers.Metaspace(prepend_scheme=scheme, split=False)
    return _sentence_piece(pre, strips=scheme != "never")


def _legacy() -> Tokenizer:
    normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    return _sentence_piece(None, normalizer=normalizer, strips=True)


def _gemma() -> Tokenizer:
    return _sentence_piece(None, normalizer=normalizers.Replace(" ", "▁"), strips=False)


def _byte_level(pre: Any) -> Tokenizer:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = BpeTrainer(
        vocab_size=380, special_tokens=list(_SPECIAL), initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator(_TEXT, trainer)
    return tokenizer


def _llama_3() -> Tokenizer:
    split = pre_tokenizers.Split(Regex(_LLAMA_3), "isolated")
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    return _byte_level(pre_tokenizers.Sequence([split, byte_level]))


def _unigram() -> Tokenizer:
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always")
    tokenizer.decoder = decoders.Metaspace(prepend_scheme="always")
    special = ["<unk>", *_SPECIAL]
    trainer = UnigramTrainer(vocab_size=150, special_tokens=special, unk_token="<unk>", show_progress=False)
    tokenizer.train_from_iterator(_TEXT, trainer)
    return tokenizer


def _word_piece() -> Tokenizer:
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece(cleanup=False)
    special = ["[UNK]", *_SPECIAL]
    tokenizer.train_from_iterator(
        _TEXT, WordPieceTrainer(vocab_size=300, special_tokens=special, show_progress=False)
    )
    return tokenizer


# By the name of a public model that has the trait.
FAMILIES: dict[str, Callable[[], Tokenizer]] = {
    "llama-2 (a blank before each text)": _legacy,
    "metaspace always": lambda: _metaspace("always"),
    "mistral-v0.3 (a blank before the first text)": lambda: _metaspace("first"),
    "metaspace never": lambda: _metaspace("never"),
    "gemma": _gemma,
    "llama-3": _llama_3,
    "byte level with a blank first": lambda: _byte_level(pre_tokenizers.ByteLevel(add_prefix_space=True)),
    "t5": _unigram,
    "bert": _word_piece,
}


def _mistral() -> Tokenizer:
    """Mistral 7B's own vocabulary, from a package that vLLM brings along, as its tokenizer.json reads it."""
    import mistral_common
    from transformers import PreTrainedTokenizerFast

    with TemporaryDirectory() as folder:
        data = Path(mistral_common.__file__).parent / "data"
        shutil.copy(data / "tokenizer.model.v1", Path(folder) / "tokenizer.model")
        tokenizer: Tokenizer = PreTrainedTokenizerFast.from_pretrained(folder).backend_tokenizer
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    steps = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    tokenizer.decoder = decoders.Sequence(steps)
    return tokenizer


ALL_FAMILIES = {**FAMILIES, "mistral-v0.1 (real)": _mistral}


def tokenizer_of(family: str, template: str = TURNS) -> Any:
    """Return a family's tokenizer as transformers has it, with special tokens and a chat template."""
    from transformers import PreTrainedTokenizerFast

    backend = ALL_FAMILIES[family]()
    backend.add_special_tokens([AddedToken(name, special=True, normalized=False) for name in _SPECIAL])
    backend.post_processor = processors.TemplateProcessing(
        single="<s> $A", special_tokens=[("<s>", backend.token_to_id("<s>"))]
    )
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend, bos_token="<s>", eos_token="</s>")
    tokenizer.chat_template = template
    return tokenizer


@cache
def renderer_of(family: str, template: str = TURNS) -> Renderer:
    """Return a family's renderer."""
    return Renderer(tokenizer_of(family, template), chat=True)


def save_tokenizer(folder: Path, family: str, settings: dict[str, Any] | None = None) -> str:
    """Write a family's tokenizer into a folder; ``settings``: what its tokenizer_config.json says besides."""
    tokenizer_of(family).save_pretrained(folder)
    file = folder / "tokenizer_config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | (settings or {})))
    return str(folder)
