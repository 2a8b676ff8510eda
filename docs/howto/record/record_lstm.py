"""Records a click model in a training loop of its own: an LSTM over the clicks at party media, an MLP with the labels."""

import torch
from torch import nn

from vflbench import Recording

torch.manual_seed(0)
clicks = torch.randint(0, 50, (4000, 10))  # items that each user has seen, in order
taste = torch.randn(50)
y = (taste[clicks[:, -4:]].sum(1) + torch.randn(4000) > 2.5).float()  # the last ones decide who buys: a few users do

embed, lstm = nn.Embedding(50, 16), nn.LSTM(16, 32, batch_first=True)
top = nn.Sequential(nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 1))
optimizer = torch.optim.Adam([*embed.parameters(), *lstm.parameters(), *top.parameters()], lr=0.003)

with Recording("recorded", party="media", labels="label") as rec:
    for _epoch in rec.epochs(4):
        for ids in torch.randperm(3000).split(150):  # of training rows; the rest tests
            h = lstm(embed(clicks[ids]))[0][:, -1]
            h = rec.watch(h, ids=ids, layer="lstm")
            rec.label(ids, y[ids])
            loss = nn.functional.binary_cross_entropy_with_logits(top(h)[:, 0], y[ids])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    with torch.no_grad():
        scores = top(lstm(embed(clicks[3000:]))[0][:, -1])[:, 0]
    rec.note(test_auc=float((scores[y[3000:] == 1, None] > scores[y[3000:] == 0]).float().mean()))
