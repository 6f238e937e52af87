"""Attention inside of a transformer block: a token must find the other one with its key, and tell
the value there.
"""

import sys

import torch
import torch.nn.functional as F

from phgcn.nn import GlobalAttention

KEYS, VALUES, STEPS = 8, 8, 200


class Block(torch.nn.Module):
    """A transformer's block: attention, then an MLP of each token, both added to what was there."""

    def __init__(self, channels, attends):
        super().__init__()
        self.norm1, self.norm2 = torch.nn.LayerNorm(channels), torch.nn.LayerNorm(channels)
        # query_channels: queries get a map of their own, so that a token can attend to one unlike
        # itself
        self.attention = (
            GlobalAttention(channels, channels // 4, heads=4, query_channels=channels, decay=1.0)
            if attends
            else None
        )
        self.mlp = torch.nn.Sequential(
            torch.nn.Linear(channels, 64), torch.nn.GELU(), torch.nn.Linear(64, channels)
        )

    def forward(self, x):
        if self.attention is not None:
            x = x + self.attention(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class Transformer(torch.nn.Module):
    def __init__(self, attends=True, channels=32):
        super().__init__()
        self.embed, self.out = (
            torch.nn.Linear(KEYS + VALUES, channels),
            torch.nn.Linear(channels, VALUES),
        )
        self.blocks = torch.nn.Sequential(Block(channels, attends), Block(channels, attends))

    def forward(self, x):
        return self.out(self.blocks(self.embed(x)))


def make_sequences(count=64):
    """Sequences of pairs of a key and a value, in any order, then of keys alone; the values that
    belong to these.
    """
    value = torch.randint(VALUES, (count, KEYS))
    key = torch.rand(count, KEYS).argsort(dim=1)
    pairs = torch.cat([F.one_hot(key, KEYS), F.one_hot(value.gather(1, key), VALUES)], dim=2)
    asked = torch.cat(
        [F.one_hot(torch.arange(KEYS), KEYS), torch.zeros(KEYS, VALUES, dtype=torch.long)], dim=1
    )
    return torch.cat([pairs, asked.expand(count, -1, -1)], dim=1).float(), value


def train(model):
    """The share of right answers in each step of training, on sequences that the model has not
    seen.
    """
    optimizer = torch.optim.Adam(model.parameters(), lr=0.005)
    shares = []
    for _ in range(STEPS):
        x, value = make_sequences()
        out = model(x)[:, KEYS:]
        shares.append(float((out.argmax(dim=2) == value).float().mean()))
        optimizer.zero_grad()
        F.cross_entropy(out.transpose(1, 2), value).backward()
        optimizer.step()
    return shares


torch.manual_seed(0)
curves = {"with attention": train(Transformer()), "without": train(Transformer(attends=False))}
for name, shares in curves.items():
    print(f"{name}: {sum(shares[-20:]) / 20:.3f} of the answers right")

if len(sys.argv) > 1:  # python examples/transformer.py picture.png
    import matplotlib.pyplot as plt

    figure, axis = plt.subplots(figsize=(5.5, 3), layout="constrained")
    for name, shares in curves.items():
        axis.plot(shares, label=name, linewidth=1.2)
    axis.set(xlabel="steps of training", ylabel="share of right answers", ylim=(0, 1.02))
    axis.legend(frameon=False)
    figure.savefig(sys.argv[1], dpi=90)
