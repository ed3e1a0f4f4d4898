"""A small GPT that learns sums by heart, byte by byte, and is asked `7+5=` at `/generate`: `tiercel submit` here."""

import torch
from torch import nn
from torch.nn import functional

import tiercel.trainer
from tiercel.trainer.generation import export_decoder

CONTEXT, WIDTH, HEADS, LAYERS = 8, 64, 4, 2
SUMS = [f"{a}+{b}={a + b}\n".encode() for a in range(10) for b in range(10)]
END = ord("\n")


class Block(nn.Module):
    """Attention and a perceptron."""

    def __init__(self):
        super().__init__()
        self.norms = nn.ModuleList(nn.LayerNorm(WIDTH) for _ in range(2))
        self.heads, self.mix = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.think = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))

    def forward(self, x, seen, past):
        """What it makes of `x`, and keys and values of all tokens so far."""
        parts = self.heads(self.norms[0](x)).chunk(3, dim=-1)
        query, key, value = (part.unflatten(-1, (HEADS, -1)).transpose(1, 2) for part in parts)
        if past is not None:  # what came before need not be computed again
            key, value = torch.cat([past[0], key], dim=2), torch.cat([past[1], value], dim=2)
        found = functional.scaled_dot_product_attention(query, key, value, attn_mask=seen)
        x = x + self.mix(found.transpose(1, 2).flatten(2))
        return x + self.think(self.norms[1](x)), (key, value)


class GPT(nn.Module):
    """Bytes in, and logits of the next ones out."""

    def __init__(self):
        super().__init__()
        self.bytes, self.places = nn.Embedding(256, WIDTH), nn.Embedding(CONTEXT, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.norm, self.out = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 256)

    def forward(self, input_ids, attention_mask, position_ids, past=None):
        """As `export_decoder` asks it."""
        new, total = input_ids.shape[1], attention_mask.shape[1]
        order = torch.arange(total)
        seen = order[None, :] <= order[total - new :, None]  # each token sees itself and those before it
        seen = seen & attention_mask[:, None, None, :].bool()  # and no padding
        x = self.bytes(input_ids) + self.places(position_ids)
        present = []
        for number, block in enumerate(self.blocks):
            x, kept = block(x, seen, past[number] if past is not None else None)
            present.append(kept)
        return self.out(self.norm(x)), present


def logits(ids):
    """Of whole rows."""
    return model(ids, torch.ones_like(ids), torch.arange(ids.shape[1]).expand_as(ids))[0]


rows = torch.tensor([list(each.ljust(CONTEXT, b"\n")) for each in SUMS])
asked = [each.index(b"=") for each in SUMS]
is_answer = torch.tensor([[place >= start for place in range(CONTEXT - 1)] for start in asked])
torch.manual_seed(0)
model = GPT()
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)


def accuracy():
    """The share of sums that it says rightly to the end."""
    with torch.no_grad():
        right = logits(rows[:, :-1]).argmax(-1) == rows[:, 1:]
    return float((right | ~is_answer).all(dim=1).float().mean())


job = tiercel.trainer.connect(save=lambda: (model.state_dict(), optimizer.state_dict()))
saved = job.restored(None)  # of an earlier run of the job
if saved is not None:
    model.load_state_dict(saved[0])
    optimizer.load_state_dict(saved[1])
best = 0.0
for _ in job.epochs(20):
    for batch in job.steps(torch.randperm(len(rows)).repeat(6).split(30)):
        optimizer.zero_grad()
        loss = functional.cross_entropy(logits(rows[batch, :-1])[is_answer[batch]], rows[batch, 1:][is_answer[batch]])
        loss.backward()
        optimizer.step()
    now = accuracy()
    if now > max(best, 0.4):  # to export it takes as long as a few epochs
        best = now
        # A model of other tokens brings its tokenizer along: tokenizer="tokenizer.json".
        found = export_decoder(model, vocabulary=256, context_length=CONTEXT, end_token=END, tokenizer="bytes")
        job.deliver(found.onnx, metrics={"accuracy": now}, inputs=found.inputs, outputs=found.outputs)
    else:
        job.report(accuracy=now)
