"""Fit diffprivlib's logistic regression to the benchmark's data; prints one line of JSON.

It solves one perturbed problem instead of walking in batches: its examples per second are the
examples that the other trainers see, over its whole fit.
"""

from __future__ import annotations

import json
import statistics
import sys
import time

import numpy as np
from diffprivlib.models import LogisticRegression


def main():
    found, settings = np.load(sys.argv[1]), json.loads(sys.argv[2])
    rows, signs = found["rows"].astype(float), found["signs"]
    times = []
    for _ in range(max(1, settings["repeats"])):
        model = LogisticRegression(epsilon=1.0, data_norm=1.0, C=1.0, fit_intercept=False)
        start = time.perf_counter()
        model.fit(rows, signs)
        times.append(time.perf_counter() - start)
    speed = settings["batch"] * settings["steps"] / statistics.median(times)
    accuracy = float(model.score(rows, signs))
    print(json.dumps({"examples_per_second": speed, "accuracy": accuracy}))


main()
