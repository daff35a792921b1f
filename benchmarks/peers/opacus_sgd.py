"""Train the benchmark's logistic regression with Opacus; prints one line of JSON."""

from __future__ import annotations

import json
import statistics
import sys
import time

import numpy as np
import torch
from opacus import PrivacyEngine


def once(rows, signs, settings):
    """Return the seconds of the training loop, the examples seen and the accuracy."""
    model = torch.nn.Linear(rows.shape[1], 1, bias=False)
    torch.nn.init.zeros_(model.weight)
    optimizer = torch.optim.SGD(
        model.parameters(), lr=settings["rate"], weight_decay=settings["ridge"]
    )
    labels = (signs > 0).float()[:, None]
    loader = torch.utils.data.DataLoader(
        torch.utils.data.TensorDataset(rows, labels), batch_size=settings["batch"]
    )
    model, optimizer, loader = PrivacyEngine().make_private(
        module=model,
        optimizer=optimizer,
        data_loader=loader,
        noise_multiplier=settings["noise"],
        max_grad_norm=1.0,
    )
    criterion = torch.nn.BCEWithLogitsLoss()
    steps = 0
    start = time.perf_counter()
    while steps < settings["steps"]:
        for batch, there in loader:
            optimizer.zero_grad()
            criterion(model(batch), there).backward()
            optimizer.step()
            steps += 1
            if steps == settings["steps"]:
                break
    seconds = time.perf_counter() - start
    right = float((torch.sign(model(rows)[:, 0]) == signs).float().mean())
    return seconds, right


def main():
    found, settings = np.load(sys.argv[1]), json.loads(sys.argv[2])
    torch.set_num_threads(1)
    rows = torch.from_numpy(found["rows"])
    signs = torch.from_numpy(found["signs"].astype(np.float32))
    runs = [once(rows, signs, settings) for _ in range(max(1, settings["repeats"]))]
    seconds = statistics.median(run[0] for run in runs)
    speed = settings["batch"] * settings["steps"] / seconds
    print(json.dumps({"examples_per_second": speed, "accuracy": runs[-1][1]}))


main()
