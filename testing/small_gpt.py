"""A small GPT, made from scratch, with a key-value cache; and its greedy answers in plain PyTorch."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn
from torch.nn import functional

Cache = list[tuple[torch.Tensor, torch.Tensor]]


class Block(nn.Module):
    """Attention over what came before, and a perceptron."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.before_attention, self.before_perceptron = nn.LayerNorm(width), nn.LayerNorm(width)
        self.projection, self.mixing = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.perceptron = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(
        self, x: torch.Tensor, seen: torch.Tensor, past: tuple[torch.Tensor, torch.Tensor] | None
    ) -> tuple[torch.Tensor, tuple[torch.Tensor, torch.Tensor]]:
        """The block's output, and keys and values of all tokens so far."""
        rows, tokens, width = x.shape
        parts = self.projection(self.before_attention(x)).split(width, dim=2)
        query, key, value = (part.view(rows, tokens, self.heads, -1).transpose(1, 2) for part in parts)
        if past is not None:
            key, value = torch.cat([past[0], key], dim=2), torch.cat([past[1], value], dim=2)
        mixed = functional.scaled_dot_product_attention(query, key, value, attn_mask=seen)
        x = x + self.mixing(mixed.transpose(1, 2).reshape(rows, tokens, width))
        return x + self.perceptron(self.before_perceptron(x)), (key, value)


class SmallGpt(nn.Module):
    """A decoder by the contract of ``tiercel.trainer.generation.export_decoder``."""

    def __init__(
        self, vocabulary: int = 61, width: int = 32, heads: int = 4, layers: int = 2, context: int = 128
    ) -> None:
        super().__init__()
        self.tokens, self.positions = nn.Embedding(vocabulary, width), nn.Embedding(context, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.last, self.head = nn.LayerNorm(width), nn.Linear(width, vocabulary, bias=False)
        self.context = context

    def forward(
        self,
        input_ids: torch.Tensor,
        attention_mask: torch.Tensor,
        position_ids: torch.Tensor,
        past: Cache | None = None,
    ) -> tuple[torch.Tensor, Cache]:
        """Logits ``[rows, tokens, vocabulary]``, and keys and values by layer."""
        tokens, total = input_ids.shape[1], attention_mask.shape[1]
        order = torch.arange(total)
        seen = order[None, :] <= order[total - tokens :, None]  # a token sees itself and what is before it
        seen = seen[None, None] & attention_mask[:, None, None, :].bool()
        x = self.tokens(input_ids) + self.positions(position_ids)
        present: Cache = []
        for index, block in enumerate(self.blocks):
            x, kept = block(x, seen, None if past is None else past[index])
            present.append(kept)
        return self.head(self.last(x)), present


def small_gpt(seed: int = 0, **sizes: int) -> SmallGpt:
    """One with random weights, so large that answers differ."""
    torch.manual_seed(seed)
    model = SmallGpt(**sizes).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(3.0 if parameter.ndim > 1 else 1.0)
    return model


@torch.no_grad()
def greedy(model: SmallGpt, prompt: Sequence[int], count: int) -> list[int]:
    """What plain PyTorch answers, with its cache."""
    ids, past = torch.tensor([list(prompt)]), None
    found: list[int] = []
    for _ in range(count):
        start = 0 if past is None else past[0][0].shape[2]
        total = start + ids.shape[1]
        logits, past = model(ids, torch.ones(1, total, dtype=torch.long), torch.arange(start, total)[None], past)
        found.append(int(logits[0, -1].argmax()))
        ids = torch.tensor([[found[-1]]])
    return found
