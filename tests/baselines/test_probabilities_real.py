"""Self-RAG with a real tokenizer: its reflection tokens are scored as single tokens."""

from __future__ import annotations

import pytest

from corag.baselines.self_rag import REFLECTION_TOKENS, SelfRAGConfig, self_rag
from corag.core.tools import ScoreStep, Tools
from corag.generation.models import model_folder
from corag.generation.rendering import Renderer
from corag.generation.transformers_engine import TransformersGenerator
from tests.fakes import WordRetriever
from tests.story import QUESTION, WORLD

pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_scope="session")]


def toy() -> TransformersGenerator:
    """A model of random weights whose tokenizer has reflection tokens."""
    import torch
    from transformers import AutoTokenizer, LlamaConfig, LlamaForCausalLM

    tokenizer = AutoTokenizer.from_pretrained(model_folder("default"))
    tokenizer.add_tokens(list(REFLECTION_TOKENS), special_tokens=True)
    torch.manual_seed(0)
    size = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 1, "num_attention_heads": 2}
    model = LlamaForCausalLM(
        LlamaConfig(vocab_size=len(tokenizer), max_position_embeddings=1024, **size)
    ).eval()
    return TransformersGenerator(model, Renderer(tokenizer, chat=False), 1024, 8, "toy")


async def test_self_rag_scores_reflection_tokens_as_single_tokens() -> None:
    generator = toy()
    config = SelfRAGConfig(k=2, max_segment_tokens=6)
    tools = Tools(QUESTION, generator, WordRetriever(WORLD))
    answer = await self_rag(QUESTION, tools, config)
    assert answer.retrieved and answer.compared == 2 and len(answer.passage_ids) == 2
    assert all(step.tokens == 1 for step in tools.steps if isinstance(step, ScoreStep))
    assert 0 < answer.segments[0].critique.relevance < 1
    prompt = config.prompt_at("Who?", config.source_text(WORLD[0]))
    ids = generator._renderer.encode(prompt)
    (retrieval,) = generator._renderer.text_ids("[Retrieval]")
    (closing,) = generator._renderer.text_ids("</paragraph>")
    assert ids.count(retrieval) == 1 and ids[-1] == closing
    assert (
        generator._renderer.encode(config.prompt_at("Who?", ""))[-1] == generator._renderer.text_ids("\n")[0]
    )
    await generator.close()
