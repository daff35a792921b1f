"""Public data to try the estimators on; exact accuracies of public data may be shown."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from dplateau.estimators.models import PrivateLogisticRegression
from dplateau.ground.types import FloatArray

TEST_SHARE = 0.2


@dataclass(frozen=True)
class PublicData:
    """Rows for training and for testing, with their classes."""

    rows: FloatArray
    labels: npt.NDArray[Any]
    test_rows: FloatArray
    test_labels: npt.NDArray[Any]

    @property
    def n(self) -> int:
        """Return the number of training rows."""
        return len(self.labels)

    def fit(self, epsilon: float, **options: Any) -> PrivateLogisticRegression:
        """Train a private model; the classes are public too."""
        model = PrivateLogisticRegression(
            epsilon=epsilon, classes=np.unique(self.labels), data_norm=1.0, **options
        )
        fitted: PrivateLogisticRegression = model.fit(self.rows, self.labels)
        return fitted

    def accuracy(self, model: Any) -> float:
        """Return the share of test rows that the model gets right."""
        return float(np.mean(model.predict(self.test_rows) == self.test_labels))

    def plain_accuracy(self) -> float:
        """Return what logistic regression without privacy reaches."""
        from sklearn.linear_model import LogisticRegression

        return self.accuracy(LogisticRegression(C=100.0, max_iter=2000).fit(self.rows, self.labels))


def digits() -> PublicData:
    """Return scikit-learn's handwritten digits, pixels divided by their public maximum of 16."""
    from sklearn.datasets import load_digits

    rows, labels = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(labels))
    test = round(TEST_SHARE * len(labels))
    rows, labels = rows[order] / 16.0, labels[order]
    return PublicData(rows[test:], labels[test:], rows[:test], labels[:test])
