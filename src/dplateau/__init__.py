"""Privacy accounting for noisy gradient descent whose intermediate states stay hidden.

Describe what runs, then ask: ``certify(run, delta)`` for the smallest provable epsilon,
``compare(run, delta)`` for every bound side by side, ``calibrate(run, epsilon, delta)`` for the
noise, length or ridge that meets a target. Names load on first use, so importing is quick.
"""

from __future__ import annotations

import lazy_loader

__version__ = "0.2.0"

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
