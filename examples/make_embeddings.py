"""Embed the first sentences of docstrings with a frozen network: examples/docstrings.npz.

The task: which library does a sentence describe? Run it where torch, transformers and the packages
that are read are installed; `--model` is a folder with a sentence transformer of the MiniLM family.

    python examples/make_embeddings.py --model all-MiniLM-L6-v2 -o examples/docstrings.npz
"""

from __future__ import annotations

import argparse
import importlib
import inspect
import pkgutil
from collections.abc import Iterator

import numpy as np

LIBRARIES = ("numpy", "scipy", "sklearn", "pandas", "matplotlib")
EACH = 900


def sentences(library: str) -> Iterator[str]:
    """Yield the first sentence of every docstring of a library's public objects, each once."""
    seen: set[str] = set()
    package = importlib.import_module(library)
    for module in pkgutil.walk_packages(package.__path__, f"{library}.", onerror=lambda _: None):
        if any(part.startswith("_") or part == "tests" for part in module.name.split(".")):
            continue
        try:
            loaded = importlib.import_module(module.name)
        except Exception:
            continue
        for _, thing in inspect.getmembers(loaded, lambda x: inspect.isclass(x) or callable(x)):
            if not str(getattr(thing, "__module__", "")).startswith(library):
                continue
            text = inspect.getdoc(thing) or ""
            first = text.replace("\n", " ").partition(". ")[0].strip()
            if 20 <= len(first) <= 200 and "(" not in first and first not in seen:
                seen.add(first)
                yield first


def embed(texts: list[str], model: str) -> np.ndarray:
    """Return the mean of the last layer over each sentence's tokens, scaled to norm 1."""
    import torch
    from transformers import AutoModel, AutoTokenizer

    tokenizer, network = AutoTokenizer.from_pretrained(model), AutoModel.from_pretrained(model)
    found = []
    with torch.no_grad():
        for start in range(0, len(texts), 64):
            batch = tokenizer(texts[start : start + 64], padding=True, return_tensors="pt")
            mask = batch["attention_mask"][..., None]
            mean = (network(**batch).last_hidden_state * mask).sum(1) / mask.sum(1)
            found.append(torch.nn.functional.normalize(mean).numpy())
    return np.concatenate(found)


def main() -> None:
    """Read, embed, quantize to a byte a number, and write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", required=True)
    parser.add_argument("-o", "--output", default="examples/docstrings.npz")
    options = parser.parse_args()
    rng = np.random.default_rng(0)
    texts: list[str] = []
    labels: list[int] = []
    for label, library in enumerate(LIBRARIES):
        found = list(sentences(library))
        rng.shuffle(found)
        texts += found[:EACH]
        labels += [label] * len(found[:EACH])
        print(library, len(found))
    vectors = embed(texts, options.model)
    order = rng.permutation(len(texts))
    scale = np.float32(np.abs(vectors).max() / 127)
    np.savez_compressed(
        options.output,
        embeddings=np.round(vectors[order] / scale).astype(np.int8),
        scale=scale,
        libraries=np.array(LIBRARIES),
        labels=np.array(labels, dtype=np.int8)[order],
    )


if __name__ == "__main__":
    main()
