"""A model that thinks, without having learned anything: which token comes next depends on the last one alone.

Its tokens are bytes, and some words and marks. Attention and the feed-forward layers add nothing, an
embedding is a dimension of its own, and the output layer names the next token. So transformers and vLLM both
load it, and what it writes is known: behind "<|bot|>" a thought, behind a closed thought a reply.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from tests.generation.standing_in import Served

REPLY_WORDS = ("It is Paris,", " the capital.", " Of France.")
THOUGHT = "Hm, maybe Rome."
REPLY = "Paris"
SUB_QUERY = "Where is it?"
END = "<|end|>"
_SPECIAL = ("<|user|>", "<|bot|>", END)
# What comes behind what. Anything else ends the turn.
CHAIN = {
    "<|bot|>": "<think>",
    "<think>": "\n",
    "\n": "Hm,",
    "Hm,": " maybe",
    " maybe": " Rome.",
    " Rome.": "</think>",
    "</think>": "\n\n",
    "\n\n": REPLY,
    "Answer:": f" {REPLY}",
    "Next question:": f" {SUB_QUERY}",
}
ENDLESS = CHAIN | {" Rome.": " maybe"}
"""One whose thoughts never end."""
_TURNS = (
    "{% for m in messages %}{{ '<|user|>' if m.role == 'user' else '<|bot|>' }}"
    "{{ m.content.split('</think>')[-1] }}<|end|>{% endfor %}"
)
HYBRID = (
    _TURNS
    + "{% if add_generation_prompt %}<|bot|>{% if enable_thinking is defined and not enable_thinking %}"
    "{{ '<think>\\n\\n</think>\\n\\n' }}{% endif %}{% endif %}"
)
"""A template that can be told to have no thoughts, as Qwen3's."""
OPENS = _TURNS + "{% if add_generation_prompt %}<|bot|>{{ '<think>\\n' }}{% endif %}"
"""One that opens the thought, as those of R1 and QwQ."""
SILENT = _TURNS.replace(".split('</think>')[-1]", "") + "{% if add_generation_prompt %}<|bot|>{% endif %}"
"""One that knows nothing of thoughts."""


def thinking_tokenizer(template: str, chain: dict[str, str] = CHAIN) -> Any:
    """Return the tokenizer, with a chat template."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokens = Tokenizer(models.BPE({letter: i for i, letter in enumerate(letters)}, []))
    tokens.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokens.decoder = decoders.ByteLevel()
    tokens.add_special_tokens([AddedToken(name, special=True, normalized=False) for name in _SPECIAL])
    words = sorted({*chain, *chain.values()} - {*_SPECIAL, "\n"})
    tokens.add_tokens([AddedToken(word, special=False, normalized=False) for word in words])
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=tokens, eos_token=END, pad_token=END)
    tokenizer.chat_template = template
    return tokenizer


def save_thinking_model(folder: Path, template: str, chain: dict[str, str] = CHAIN) -> str:
    """Save the model with a chat template of one of the kinds above."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    tokenizer = thinking_tokenizer(template, chain)
    size, end = 512, tokenizer.eos_token_id
    config = LlamaConfig(
        vocab_size=len(tokenizer), hidden_size=size, intermediate_size=64, num_hidden_layers=1,
        num_attention_heads=8, num_key_value_heads=8, max_position_embeddings=4096,
        tie_word_embeddings=False, bos_token_id=None, eos_token_id=end, pad_token_id=end,
    )  # fmt: skip
    model = LlamaForCausalLM(config)
    following = dict.fromkeys(range(len(tokenizer)), end)
    for word, after in chain.items():
        (first,), (second,) = (tokenizer.encode(each, add_special_tokens=False) for each in (word, after))
        following[first] = second
    with torch.no_grad():
        model.model.embed_tokens.weight.zero_()
        model.lm_head.weight.zero_()
        for first, second in following.items():
            model.model.embed_tokens.weight[first, first] = 1.0
            model.lm_head.weight[second, first] = 1.0
        for layer in model.model.layers:
            layer.self_attn.o_proj.weight.zero_()
            layer.mlp.down_proj.weight.zero_()
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return str(folder)


class ThinkingServer(Served):
    """A server with a chat route alone, whose model writes :data:`THOUGHT` and :data:`REPLY`.

    ``switch``: the parameter that it switches thoughts off by, "" for none. ``apart``: it has thoughts in a
    field of their own. ``opens``: its template opens the thought, so that only the end of it is seen.
    """

    def __init__(self, *, switch: str = "", apart: bool = False, opens: bool = False) -> None:
        self.switch, self.apart, self.opens = switch, apart, opens
        self.bodies: list[dict[str, Any]] = []
        super().__init__(
            [
                Route(
                    "/v1/models", lambda _: JSONResponse({"data": [{"id": "thinker", "max_model_len": 4096}]})
                ),
                Route("/v1/chat/completions", self._complete, methods=["POST"]),
            ]
        )

    async def _complete(self, request: Request) -> Response:
        body = await request.json()
        self.bodies.append(body)
        is_off = bool(self.switch) and self.switch in body
        thought = (
            [] if is_off else ["" if self.opens else "<think>", "\n", "Hm,", " maybe", " Rome.", "</think>"]
        )
        words = [*thought, *(["\n\n"] if thought else []), *REPLY_WORDS][: body["max_tokens"]]
        message: dict[str, Any] = {"content": "".join(words)}
        if self.apart and thought:
            reply = "".join(words[7:])
            message = {"content": reply or None, "reasoning_content": "".join(words[1:5])}
        finish = "length" if len(words) == body["max_tokens"] else "stop"
        usage = {"prompt_tokens": 9, "completion_tokens": len(words)}
        if self.apart:
            usage["completion_tokens_details"] = {"reasoning_tokens": min(len(words), len(thought))}
        return JSONResponse({"choices": [{"message": message, "finish_reason": finish}], "usage": usage})
