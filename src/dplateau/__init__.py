"""Privacy accounting for noisy gradient descent whose intermediate states stay hidden.

Describe what runs, then ask: ``certify(run, delta)`` for the smallest provable epsilon,
``compare(run, delta)`` for every bound side by side, ``calibrate(run, epsilon, delta)`` for the
noise, length or ridge that meets a target. Names load on first use, so importing is quick.
"""

from __future__ import annotations

from importlib.util import find_spec

import lazy_loader

from dplateau.ground import VERSION
from dplateau.ground.shown import Shown, show_pages_by

__version__ = VERSION
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
if find_spec("sklearn") is None:
    # A star takes what is there: these say which extra they need when they are asked for by name.
    __all__ = [name for name in __all__ if not name.startswith(("Private", "noisy_"))]


def _page_of(result: Shown) -> str:
    from dplateau.notebook import page_of

    return page_of(result)


show_pages_by(_page_of)
