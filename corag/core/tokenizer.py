"""Loading a tokenizer: checked that it reads texts as the model's own file of it does, and loses no words.

transformers chooses a class by the names in a folder's settings, and most classes build a tokenizer anew from
the vocabulary alone. A byte-level vocabulary whose settings say "LlamaTokenizerFast" (the R1 distills of
Llama and Qwen3) is read without a single blank or line break, other mixtures split digits otherwise than the
model has learned; transformers 5 knows some of them by their names on Hugging Face, but not in a folder.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from corag.core.errors import ConfigError, reason
from corag.core.lazy import importing
from corag.core.seeds import stable_hash
from corag.core.system.files import build_once, cache_folder

# Blanks at either end and in a row, line breaks, a tab, digits, letters beyond ASCII: what pre-tokenizers
# treat apart. No tokenizer lacks the words of the first.
_WORDS = "The capital of Norway is Oslo. Who wrote it in 1984?"
_PROBES = (
    _WORDS,
    " Yes,\n\nthe river's end:  12345 boats\tin Zürich (isn't it?)\n",
    "snake_case = [1, 20, 300]\r\n    return x",
)


def load_tokenizer(folder: str | Path, *, gguf_file: str = "") -> Any:
    """Load the tokenizer of a model folder, ``gguf_file``: from that file there.

    By the class that transformers chooses, if that reads texts as the folder's ``tokenizer.json`` says; else
    from this file as it stands. Every tokenizer of a language model is loaded here.

    Raises:
        ConfigError: if there is none, or it loses words or the blanks between them.
    """
    return _load(folder, gguf_file)[0]


def shared_tokenizer(folder: str) -> Any:
    """Load as :func:`load_tokenizer` does, once for all who do not change it: that takes half a second."""
    return _load_once(folder, _state(folder))[0]


def tokenizer_folder(folder: str) -> str:
    """Return a folder from which every library loads what :func:`load_tokenizer` does.

    That is the folder itself, or one in the cache where transformers would read this one differently.
    """
    tokenizer, as_written = _load_once(folder, _state(folder))
    if not as_written:
        return folder
    target = cache_folder() / "tokenizers" / stable_hash(tokenizer.backend_tokenizer.to_str())
    if not target.is_dir():
        with build_once(target, "the tokenizer") as filling:
            tokenizer.save_pretrained(filling)
            # vLLM asks for a configuration. Of this architecture transformers takes the class at its word.
            (filling / "config.json").write_text('{"model_type": "llama"}\n')
    return str(target)


def _state(folder: str) -> tuple[tuple[str, int, int], ...]:
    """Return what tells a folder's files from others that take their place."""
    files = sorted(file for file in Path(folder).glob("*") if file.is_file())
    return tuple((file.name, file.stat().st_mtime_ns, file.stat().st_size) for file in files)


@lru_cache(maxsize=4)
def _load_once(folder: str, state: tuple[tuple[str, int, int], ...]) -> tuple[Any, bool]:
    return _load(folder)


def _load(folder: str | Path, gguf_file: str = "") -> tuple[Any, bool]:
    """Return a tokenizer, and whether it is the file as it stands rather than what transformers chooses."""
    with importing:
        from transformers import AutoTokenizer, PreTrainedTokenizerFast

    try:
        auto_tokenizer = AutoTokenizer.from_pretrained(
            folder, **({"gguf_file": gguf_file} if gguf_file else {})
        )
        tokenizer = auto_tokenizer
        if not gguf_file and (Path(folder) / "tokenizer.json").is_file():
            tokenizer = _as_written(auto_tokenizer, folder, PreTrainedTokenizerFast)
    except Exception as error:  # a damaged file is of no other class to the library
        raise ConfigError(
            f"cannot load a tokenizer from '{folder}' ({reason(error)}): fetch the folder's files again, or "
            "name another model."
        ) from error
    require_words(tokenizer, f"the tokenizer in '{folder}'")
    return tokenizer, tokenizer is not auto_tokenizer


def require_words(tokenizer: Any, what: str) -> None:
    """Raise :class:`ConfigError` for a tokenizer that loses words or the blanks between them.

    ``what``: its name in a sentence, such as "the tokenizer in 'x'". Case, accents, further white space and
    words that it knows nothing of are a vocabulary's own affair.
    """
    from transformers import PreTrainedTokenizerBase

    if not isinstance(tokenizer, PreTrainedTokenizerBase):  # an encoder's own, such as of whole words
        return
    ids = _read(tokenizer, [_WORDS])[0]
    if ids is not None and tokenizer.unk_token_id in ids:
        return
    back = _text(tokenizer, ids)
    if not _has_words(back):
        raise ConfigError(
            f"{what} turns '{_WORDS}' into '{back}': its files do not fit the class "
            f"{type(tokenizer).__name__}, by which transformers reads them. Fetch the folder again with "
            'its tokenizer.json, or write "tokenizer_class": "PreTrainedTokenizerFast" into its '
            "tokenizer_config.json."
        )


def _as_written(tokenizer: Any, folder: str | Path, plain: type[Any]) -> Any:
    """Return the tokenizer, or what ``tokenizer.json`` holds where the two read a text differently."""
    if type(tokenizer) is plain:
        return tokenizer
    file_tokenizer = plain.from_pretrained(folder)
    names = [str(token) for token in file_tokenizer.added_tokens_decoder.values() if token.special][:2]
    # What stands behind a special token is read otherwise than the beginning of a text by some.
    probes = [*_PROBES, *(f"{name}{_WORDS}{name}\nYes" for name in names)]
    alike = _read(tokenizer, probes) == _read(file_tokenizer, probes)
    return (
        tokenizer
        if alike or not _has_words(_text(file_tokenizer, _read(file_tokenizer, [_WORDS])[0]))
        else file_tokenizer
    )


def _text(tokenizer: Any, ids: list[int] | None) -> str:
    return "" if ids is None else str(tokenizer.decode(ids, skip_special_tokens=True))


def _has_words(text: str) -> bool:
    expected_words, there = (re.findall(r"\w+", each.casefold()) for each in (_WORDS, text))
    return expected_words == there


def _read(tokenizer: Any, texts: Sequence[str]) -> list[list[int] | None]:
    """Return the token ids of texts, without special tokens around them; None for one that cannot be read."""
    ids: list[list[int] | None] = []
    for text in texts:
        try:
            ids.append(list(tokenizer.encode(text, add_special_tokens=False)))
        except Exception:  # noqa: BLE001 - the library's own, of no class: "Unk token `<unk>` not found"
            ids.append(None)
    return ids
