"""Private linear models that scikit-learn's tools take as their own (extra ``train``)."""

from __future__ import annotations

from dplateau.errors import MissingExtra

try:
    import sklearn  # noqa: F401
except ImportError:
    raise MissingExtra(
        "private estimators need the extra train: pip install 'dplateau[train]'"
    ) from None

from dplateau.estimators.models import (
    PrivateHuberRegressor,
    PrivateLinearSVC,
    PrivateLogisticRegression,
    PrivateRidge,
)
from dplateau.estimators.scoring import Evaluation, noisy_score

__all__ = [
    "Evaluation",
    "PrivateHuberRegressor",
    "PrivateLinearSVC",
    "PrivateLogisticRegression",
    "PrivateRidge",
    "noisy_score",
]
