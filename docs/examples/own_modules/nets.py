"""Two networks as they are written for plain PyTorch."""

import torch
from torch import nn


class Bottom(nn.Module):
    """x (n, inputs) -> embedding (n, width)."""

    def __init__(self, inputs, hidden=64, width=16):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(inputs, hidden), nn.ReLU(inplace=True), nn.Linear(hidden, width))

    def forward(self, x):
        return self.net(x)


class LstmBottom(nn.Module):
    """Sequences x (n, steps, input_size) -> embedding (n, width), the last state."""

    def __init__(self, input_size, width=16):
        super().__init__()
        self.lstm = nn.LSTM(input_size, width, batch_first=True)

    def forward(self, x):
        states, _ = self.lstm(x)
        return states[:, -1]


class Top(nn.Module):
    """One embedding (n, width) a party -> logits (n, outputs)."""

    def __init__(self, in_features, outputs, hidden=32):
        super().__init__()
        self.first, self.last = nn.Linear(in_features, hidden), nn.Linear(hidden, outputs)

    def forward(self, embeddings):
        return self.last(torch.relu(self.first(torch.cat(embeddings, dim=1))))
