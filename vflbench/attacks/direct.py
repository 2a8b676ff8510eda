"""Direct attack: where the logit is linear in what crosses the cut, the sign of the gradient is the label."""

import math

from torch import Tensor

from vflbench.attacks.base import Attack, Scores
from vflbench.messages.facts import ClassShares, Gradients
from vflbench.messages.threat import Threat, View
from vflbench.models.base import WIDE
from vflbench.numerics.directions import top_eigenvector
from vflbench.options import options

_MOST_NATS = 1e6  # the evidence of one batch is finite where the prior is 0 or 1


@options
class Direct(Attack):
    """Read the label from the sign of the gradient, along the direction v that the gradients of a batch share.

        no top:         g_i = (p_i - y_i) / n w,       s_i = <g_i, v>,  v the top right singular vector of the rows g_i
        linear part:    g_i = (p_i - y_i) / n,         s_i = -g_i       (K classes: of every logit, s_i is (n, K))
        any other top:  g_i = (p_i - y_i) / n J_i,     s_i as without a top

    The first two are exact: the gradients of a batch lie on one line (`model.top_layers=0`) or are numbers
    (`model.wide=true`), and p_i - y_i is negative for the label alone. Through a top with hidden layers J_i differs from row
    to row, but the rows' J_i share their mean. The same holds for every layer below the cut. v is not centred: the mean of
    the gradients is not a nuisance here.

    If there is a linear part, it shows which side of v is positive. Otherwise only the prior pi can decide this, because a
    change of all labels and of the sign of w does not change any gradient. The log-likelihood ratio of the two readings is

        (n_+ - n_-) log(pi / (1 - pi)),   n_+ rows on v's side, n_- on the other

    It is added up over the audited batches, each reduced by |<v, v'>| of the last two directions, so that a batch with an
    unusual share is read in the same way as the others. With pi = 1/2 both readings are equally likely, but the whole run
    keeps one of them. With more than two classes only the linear part is scored: elsewhere gradients show classes, but not
    their names.

    Source: Fu et al., "Label Inference Attacks Against Vertical Federated Learning", USENIX Security 2022, direct label
    inference attack; Zou et al., "Defending Batch-Level Label Inference and Replacement Attacks in Vertical Federated
    Learning", IEEE Transactions on Big Data 2022 (a first version: Liu et al., arXiv 2112.05409), for sample-level gradients
    without a top. The shared direction and the evidence over batches are ours.
    """

    max_classes = math.inf
    threat = Threat(knows={Gradients, ClassShares})

    def __post_init__(self) -> None:
        self._directions: dict[str, Tensor] = {}  # towards positives, as far as the batches so far tell
        self._evidence: dict[str, float] = {}  # for that, in nats

    def batch(self, view: View) -> Scores:
        return Scores(view.ids, self.scores(view))

    def scores(self, view: View) -> dict[str, Tensor]:
        """Layer -> (n,) scores, or (n, K) of the linear part with K > 2 classes."""
        layers, shares = view[Gradients].layers, view[ClassShares]
        linear = {layer: -g.double() for layer, g in layers.items() if layer == WIDE}
        scores = {layer: s if s.shape[1] > 1 else s[:, 0] for layer, s in linear.items()}
        if len(shares.shares) > 2:
            return scores
        for layer, (s, v) in shared_directions({layer: g for layer, g in layers.items() if layer != WIDE}).items():
            if WIDE in scores:
                agreement = float(s @ scores[WIDE])
                scores[layer] = s if agreement >= 0 else -s
            else:
                scores[layer] = s * self._side(layer, s, v, shares.positive)
        return {layer: scores[layer] for layer in layers}

    def _side(self, layer: str, s: Tensor, v: Tensor, prior: float) -> float:
        """1 if v points to the positives, -1 if away from them. The direction and its evidence are kept."""
        last = self._directions.get(layer, v).to(v)
        turn = -1.0 if float(last @ v) < 0 else 1.0
        before = self._evidence.get(layer, 0.0) * abs(float(last @ v))
        evidence = before + turn * evidence_of_side(s, prior)
        side = turn if evidence >= 0 else -turn
        self._directions[layer], self._evidence[layer] = side * v, abs(evidence)
        return side


def shared_directions(layers: dict[str, Tensor]) -> dict[str, tuple[Tensor, Tensor]]:
    """Layer -> (s, v): v (d,) the top right singular vector of the uncentred rows, of arbitrary sign, and s (n,) = <x_i, v>.

    layers: name -> (n, d), in any units. Returns float64 in units of the largest entry. A layer of zeros gives zeros.
    """
    by_layer = {}
    for layer, x in layers.items():
        scaled = x.double() / (float(x.abs().max()) or 1.0 if x.numel() else 1.0)
        v = top_eigenvector(scaled.T @ scaled)
        by_layer[layer] = scaled @ v, v
    return by_layer


def evidence_of_side(s: Tensor, prior: float) -> float:
    """(n_+ - n_-) log(pi / (1 - pi)) in nats: for the reading that s_i > 0 are the positives, and s_i < 0 the others.

    s: (n,). prior: pi in [0, 1]. Positive for the likelier reading; 0 for pi = 1/2.
    """
    if not 0 < prior < 1:
        return _MOST_NATS * float(s.sign().sum()) * (1 if prior else -1)
    return float(s.sign().sum()) * math.log(prior / (1 - prior))
