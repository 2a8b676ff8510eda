"""Split learning as a job of NVIDIA FLARE 2.9 (Collab), of which the client records what it sends and receives.

python nvflare_split.py FOLDER        # simulates the server and one client, and leaves FOLDER/recorded
"""

import os
import sys

import numpy as np
import torch
from nvflare.collab import CollabRecipe, collab
from nvflare.recipe import SimEnv
from torch import nn
from torch.nn import functional as F

from vflbench import Recording

ROWS, COLUMNS, WIDTH, BATCH, STEPS = 512, 8, 16, 64, 24


def table() -> tuple[torch.Tensor, torch.Tensor]:
    """In place of your data: features (n, COLUMNS) and labels (n,), by row id."""
    rng = torch.Generator().manual_seed(0)
    x = torch.randn(ROWS, COLUMNS, generator=rng)
    return x, (x[:, :2].sum(1) + torch.randn(ROWS, generator=rng) > 1).float()


class FeatureOwner:
    """The client: it holds the features and the bottom model. The three lines of the recorder are marked."""

    @collab.init
    def setup(self) -> None:
        self.x = table()[0]
        self.bottom = nn.Sequential(nn.Linear(COLUMNS, WIDTH), nn.ReLU())
        self.optimizer = torch.optim.SGD(self.bottom.parameters(), lr=0.5)
        self.rec = Recording(os.environ["RECORDED"], party="media")  # 1

    @collab.publish
    def forward(self, ids: np.ndarray) -> np.ndarray:
        self.h = self.rec.watch(self.bottom(self.x[ids]), ids=ids)  # 2
        return self.h.detach().numpy()

    @collab.publish
    def backward(self, gradient: np.ndarray) -> None:
        self.optimizer.zero_grad()
        self.h.backward(torch.from_numpy(gradient))  # the recorder's hook on h keeps the gradient that came
        self.optimizer.step()

    @collab.final
    def finish(self) -> None:
        self.rec.close()  # 3


class LabelOwner:
    """The server: it holds the labels and the top model."""

    @collab.main
    def run(self) -> None:
        y, top = table()[1], nn.Linear(WIDTH, 1)
        optimizer = torch.optim.SGD(top.parameters(), lr=0.5)
        (client,) = collab.clients
        order = np.random.default_rng(0)
        for _ in range(STEPS):
            ids = order.choice(ROWS, BATCH, replace=False)
            h = torch.from_numpy(np.array(client.forward(ids))).requires_grad_()
            optimizer.zero_grad()
            F.binary_cross_entropy_with_logits(top(h)[:, 0], y[ids]).backward()
            optimizer.step()
            client.backward(h.grad.numpy())


if __name__ == "__main__":
    folder = os.path.abspath(sys.argv[1])
    os.environ["RECORDED"] = os.path.join(folder, "recorded")
    recipe = CollabRecipe(job_name="split", server=LabelOwner(), client=FeatureOwner())
    recipe.run(SimEnv(num_clients=1, workspace_root=os.path.join(folder, "workspace")))
