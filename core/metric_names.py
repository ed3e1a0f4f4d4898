"""What is usual of metrics, by their names."""

from __future__ import annotations

import re

from tiercel.core.jobs import Direction

_MORE_IS_BETTER = frozenset(
    [
        "acc",
        "accuracy",
        "ap",
        "auc",
        "auprc",
        "auroc",
        "bleu",
        "correct",
        "dice",
        "f1",
        "f2",
        "fbeta",
        "gain",
        "hits",
        "iou",
        "kappa",
        "map",
        "mcc",
        "miou",
        "mrr",
        "ndcg",
        "precision",
        "psnr",
        "r2",
        "recall",
        "return",
        "reward",
        "rouge",
        "score",
        "sensitivity",
        "specificity",
        "ssim",
    ]
)
_LESS_IS_BETTER = frozenset(
    [
        "bce",
        "bpc",
        "brier",
        "cer",
        "cost",
        "crossentropy",
        "distance",
        "divergence",
        "entropy",
        "err",
        "error",
        "errors",
        "fid",
        "kl",
        "logloss",
        "loss",
        "mae",
        "mape",
        "mse",
        "nll",
        "perplexity",
        "ppl",
        "residual",
        "rmse",
        "rmsle",
        "smape",
        "wer",
    ]
)
_WORD = re.compile(r"[a-z]+[0-9]*|[0-9]+")


def usual_direction(metric: str) -> Direction | None:
    """Whether more or less is better of a metric of this name, such as ``val_loss``; None if the name does not say."""
    words = set(_WORD.findall(metric.lower()))
    more, less = bool(words & _MORE_IS_BETTER), bool(words & _LESS_IS_BETTER)
    if more is less:
        return None
    return Direction.MAX if more else Direction.MIN
