"""Quality of the trained model: (logits, labels) -> numbers."""

import torch
from torch import Tensor
from torch.nn import functional as F

from vflbench.numerics.auc import auc


def utility(logits: Tensor, labels: Tensor) -> dict[str, float]:
    """auc, log_loss and accuracy of a two-class model (logits (n, 1)) or a K-class model (logits (n, K)).

    labels: (n,) classes. log_loss is the mean cross-entropy in nats. accuracy is the share of rows whose class has the
    highest score; for two classes logit > 0 predicts class 1. auc for K > 2 is the unweighted mean over classes of one
    class against the rest, and nan if a class has no rows.
    """
    logits = logits.double().cpu()
    labels = labels.cpu()
    if logits.shape[1] == 1:
        log_loss = F.binary_cross_entropy_with_logits(logits[:, 0], labels.double()).item()
        accuracy = ((logits[:, 0] > 0) == (labels != 0)).double().mean().item()
        return {"auc": auc(logits[:, 0], labels), "log_loss": log_loss, "accuracy": accuracy}
    accuracy = (logits.argmax(dim=1) == labels).double().mean().item()
    return {"auc": _macro_auc(logits, labels), "log_loss": F.cross_entropy(logits, labels).item(), "accuracy": accuracy}


def _macro_auc(logits: Tensor, labels: Tensor) -> float:
    if len(labels.unique()) < logits.shape[1] or not logits.isfinite().all():
        return float("nan")
    shares = torch.softmax(logits, dim=1)
    return sum(auc(share, labels == k) for k, share in enumerate(shares.T)) / len(shares.T)
