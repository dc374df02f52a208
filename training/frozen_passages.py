"""MultipleNegativesRankingLoss whose passages keep the vectors of the model as it was.

It stands apart from encoder.py because its class inherits from sentence-transformers', which takes seconds to
import.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss

_MAX_VECTORS = 200_000  # vectors of passages: 300 MB at 384 dimensions


class FrozenPassagesLoss(MultipleNegativesRankingLoss):  # type: ignore[misc]
    """Its first column is encoded by ``model``, which learns, the others by ``frozen``, which does not.

    A passage is encoded once: it comes again in every epoch.
    """

    def __init__(self, model: Any, frozen: Any) -> None:
        super().__init__(model)
        # In a list, so that it is no part of this module: nothing trains, saves or wraps it.
        self._frozen = [frozen.eval().requires_grad_(False)]
        self._vectors: dict[bytes, torch.Tensor] = {}

    def forward(self, sentence_features: Iterable[dict[str, torch.Tensor]], labels: torch.Tensor) -> Any:
        """Return the loss of a batch."""
        query, *passages = sentence_features
        vectors = [self.model(query)["sentence_embedding"]]
        vectors += [self._encode(each).to(vectors[0]) for each in passages]
        return self.compute_loss_from_embeddings(vectors, labels)

    def _encode(self, features: dict[str, torch.Tensor]) -> torch.Tensor:
        """Return a vector for each text, shape [texts, dimension]."""
        rows = features["input_ids"].cpu()
        mask = features["attention_mask"].cpu().bool()
        names = [ids[mask_row].numpy().tobytes() for ids, mask_row in zip(rows, mask, strict=True)]
        if len(self._vectors) > _MAX_VECTORS:
            self._vectors.clear()
        new = [number for number, name in enumerate(names) if name not in self._vectors]
        if new:
            model = self._frozen[0].to(features["input_ids"].device)
            part = {
                name: value[new] if isinstance(value, torch.Tensor) and len(value) == len(names) else value
                for name, value in features.items()
            }
            with torch.no_grad():
                vectors = model(part)["sentence_embedding"].float().cpu()
            for number, vector in zip(new, vectors, strict=True):
                self._vectors[names[number]] = vector
        return torch.stack([self._vectors[name] for name in names])
