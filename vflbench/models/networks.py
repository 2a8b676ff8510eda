"""The networks of configs/model: ReLU layers on numbers, Wide & Deep, convolutions on pixels, and logistic regression."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from vflbench.errors import UserError
from vflbench.models.base import (
    EMBEDDING_STD,
    WIDE,
    Bottom,
    ColumnEmbedding,
    CutModel,
    Model,
    ReluStack,
    Top,
    TopModel,
    Wide,
    convolution,
    layer_names,
    linear,
)
from vflbench.numerics.pixels import Area, area_of
from vflbench.options import LayerCount, TopLayers, Width, options


@options
class Mlp(Model):
    """Numeric features -> ReLU layers | cut | ReLU layers -> logit. Categorical columns raise UserError."""

    def bottom(self, numeric: Sequence[str], cardinalities: Sequence[int], outputs: int, rng: torch.Generator) -> Bottom:
        if cardinalities:
            raise UserError(
                f"it accepts numeric columns only, but a party has {len(cardinalities)} categorical columns; use wide_deep",
                key="model",
                value="mlp",
                see="vflbench list models",
            )
        return _MlpBottom(self, len(numeric), rng)


class _MlpBottom(Bottom):
    def __init__(self, model: Mlp, numeric: int, rng: torch.Generator):
        super().__init__()
        self.layers = layer_names("f", model.bottom_layers)
        self.cut_width = model.bottom_widths[-1]
        self.stack = ReluStack(self.layers, numeric, model.bottom_widths, rng)
        self.sends = (self.cut,)

    def forward(self, numeric: Tensor, categorical: Tensor) -> dict[str, Tensor]:
        return self.stack(numeric)


@options
class WideDeep(Model):
    """Embedding lookup and numeric features -> 5 ReLU layers of 128 | cut | 3 ReLU layers of 128 -> logit.

    embedding_dim: dimensions of a category's embedding.
    wide: add the linear part. Its output, one logit contribution per row, crosses the cut and is attacked too. Its gradient
    is one number per row, (p - y) / n, whose *sign* is the label. A defense that changes only norms cannot hide it.

    Source: Cheng et al., "Wide & Deep Learning for Recommender Systems", 2016; sizes from Sun et al., "Label Leakage and
    Protection from Forward Embedding in Vertical Federated Learning", 2022.
    """

    embedding_dim: Width = 4
    wide: bool = False

    def bottom(self, numeric: Sequence[str], cardinalities: Sequence[int], outputs: int, rng: torch.Generator) -> Bottom:
        return _WideDeepBottom(self, len(numeric), cardinalities, outputs, rng)


class _WideDeepBottom(Bottom):
    def __init__(self, model: WideDeep, numeric: int, cardinalities: Sequence[int], outputs: int, rng: torch.Generator):
        super().__init__()
        self.layers = layer_names("f", model.bottom_layers)
        self.cut_width = model.bottom_widths[-1]
        self.cardinalities = list(cardinalities)
        self.embedding = ColumnEmbedding(cardinalities, model.embedding_dim, rng, EMBEDDING_STD)
        inputs = numeric + len(cardinalities) * model.embedding_dim
        self.stack = ReluStack(self.layers, inputs, model.bottom_widths, rng)
        self.wide = Wide(numeric, cardinalities, outputs, rng) if model.wide else None
        self.sends = (self.cut, WIDE) if model.wide else (self.cut,)

    def tables(self) -> tuple[Tensor, ...]:
        return self.embedding.values().split(self.cardinalities)

    def from_vectors(self, numeric: Tensor, vectors: Tensor) -> dict[str, Tensor]:
        """Without the linear part, which needs ids."""
        layers: dict[str, Tensor] = self.stack(torch.cat([numeric, vectors.flatten(1)], dim=1))
        return layers

    def forward(self, numeric: Tensor, categorical: Tensor) -> dict[str, Tensor]:
        layers = self.from_vectors(numeric, self.embedding(categorical))
        return layers if self.wide is None else {**layers, WIDE: self.wide(numeric, categorical)}


@options
class Cnn(Model):
    """Pixels -> 3 x 3 convolutions with ReLU | cut | ReLU layers -> logits. A party's pixels must fill a rectangle.

    Every second layer (f2, f4, ...) halves height and width while both are at least 4. The embedding is the last layer,
    flattened channel by channel.

    width: channels of each convolution. cut_width: width of a dense ReLU layer in place of the last convolution. top_width:
    width of the label party's layers.
    """

    bottom_layers: LayerCount = 2
    top_layers: TopLayers = 1
    width: Width = 16
    top_width: Width = 128

    def bottom(self, numeric: Sequence[str], cardinalities: Sequence[int], outputs: int, rng: torch.Generator) -> Bottom:
        area = None if cardinalities else area_of(numeric)
        if area is None:
            columns = "categorical columns" if cardinalities else f"the columns {', '.join(numeric[:3])}, ..."
            problem = f"it accepts the pixels of a rectangle, row by row, but a party has {columns}; use mlp or wide_deep"
            raise UserError(problem, key="model", value="cnn", see="vflbench list models")
        return _CnnBottom(self, area, rng)

    def top(self, inputs: int, outputs: int, rng: torch.Generator) -> Top:
        return Top(inputs, self.top_layers, self.top_width, outputs, rng)


class _CnnBottom(Bottom):
    def __init__(self, model: Cnn, area: Area, rng: torch.Generator):
        super().__init__()
        self.layers = layer_names("f", model.bottom_layers)
        self.sends = (self.cut,)
        self.area = area
        channels, height, width = area.channels, area.height, area.width
        stack: dict[str, nn.Module] = {}
        for number, name in enumerate(self.layers, 1):
            if name == self.cut and model.cut_width is not None:
                stack[name] = linear(channels * height * width, model.cut_width, rng, gain=2**0.5)
                channels, height, width = model.cut_width, 1, 1
                continue
            stride = 2 if number % 2 == 0 and min(height, width) >= 4 else 1
            stack[name] = convolution(channels, model.width, stride, rng, gain=2**0.5)
            channels, height, width = model.width, (height - 1) // stride + 1, (width - 1) // stride + 1
        self.stack = nn.ModuleDict(stack)
        self.cut_width = channels * height * width

    def forward(self, numeric: Tensor, categorical: Tensor) -> dict[str, Tensor]:
        activations = {}
        x = self.area.picture(numeric)
        for name, layer in self.stack.items():
            x = F.relu(layer(x.flatten(1) if isinstance(layer, nn.Linear) else x))
            activations[name] = x.flatten(1)
        return activations


@options
class Logistic(CutModel):
    """Each party's columns -> its part of the logits | cut | sum -> logits.

        z_i = b + sum over parties p of (W_p x_ip + sum_j T_pj[id_ipj])

    z: 1 logit for two classes, K for K > 2; softmax regression then. W_p: (outputs, k), T_pj: one row of `outputs` numbers a
    category. b: at the label party. It has no layer in between, and the cut layer f1 is as wide as the logits. With two
    classes the cut gradient is therefore one number a row, (p_i - y_i) / n, whose *sign* is the label. Its predictions
    are affine in every party's columns, which is what `attack=esa` solves.

    Source: the vertical logistic regression of Yang, Liu, Chen and Tong, "Federated machine learning: Concept and
    applications", 2019, section 2.3, with labels and embeddings in the clear.
    """

    @property
    def width(self) -> int:  # type: ignore[override]
        """Of a typical layer."""
        return 1

    def bottom_for(
        self, numeric: Sequence[str], cardinalities: Sequence[int], outputs: int, rng: torch.Generator
    ) -> nn.Module:
        return _LogisticBottom(len(numeric), cardinalities, outputs, rng)

    def top_over(self, widths: Sequence[int], outputs: int, rng: torch.Generator) -> nn.Module:
        return _SumTop(outputs)


class _LogisticBottom(Bottom):
    def __init__(self, numeric: int, cardinalities: Sequence[int], outputs: int, rng: torch.Generator):
        super().__init__()
        self.layers = self.sends = ("f1",)
        self.cut_width = outputs
        self.cardinalities = list(cardinalities)
        self.numeric = nn.Parameter(
            linear(numeric, outputs, rng).weight.detach().T.clone() if numeric else torch.zeros(0, outputs)
        )
        self.categories = ColumnEmbedding(cardinalities, outputs, rng, EMBEDDING_STD)

    def tables(self) -> tuple[Tensor, ...]:
        return tuple(self.categories.values().split(self.cardinalities)) if self.cardinalities else ()

    def from_vectors(self, numeric: Tensor, vectors: Tensor) -> dict[str, Tensor]:
        return {"f1": numeric @ self.numeric + vectors.sum(dim=1)}

    def forward(self, numeric: Tensor, categorical: Tensor) -> dict[str, Tensor]:
        return self.from_vectors(numeric, self.categories(categorical))


class _SumTop(TopModel):
    def __init__(self, outputs: int):
        super().__init__()
        self.layers: tuple[str, ...] = ()
        self.bias = nn.Parameter(torch.zeros(outputs))

    def forward(self, embeddings: Sequence[Tensor], wide: Sequence[Tensor]) -> tuple[dict[str, Tensor], Tensor]:
        return {}, sum([*embeddings, *wide], start=self.bias)
