"""Private linear models that scikit-learn's tools take as their own (extra ``train``)."""

from __future__ import annotations

try:
    import sklearn  # noqa: F401
except ImportError:
    raise ImportError(
        "private estimators need the extra train: pip install 'dplateau[train]'"
    ) from None

from dplateau.estimators.classifiers import PrivateLinearSVC, PrivateLogisticRegression
from dplateau.estimators.regressors import PrivateHuberRegressor, PrivateRidge

__all__ = [
    "PrivateHuberRegressor",
    "PrivateLinearSVC",
    "PrivateLogisticRegression",
    "PrivateRidge",
]
