"""Fit diffprivlib's logistic regression at one epsilon; prints one line of JSON.

Called as: diffprivlib_accuracy.py DATA.npz SETTINGS.json-text, settings with epsilon, C and seeds.
"""

from __future__ import annotations

import json
import sys
import warnings

import numpy as np
from diffprivlib.models import LogisticRegression


def main():
    found, settings = np.load(sys.argv[1]), json.loads(sys.argv[2])
    warnings.simplefilter("ignore")
    scores = []
    for seed in settings["seeds"]:
        model = LogisticRegression(
            epsilon=settings["epsilon"], data_norm=1.0, C=settings["C"], random_state=seed
        )
        model.fit(found["rows"].astype(float), found["labels"])
        scores.append(float(model.score(found["test_rows"].astype(float), found["test_labels"])))
    print(json.dumps(scores))


main()
