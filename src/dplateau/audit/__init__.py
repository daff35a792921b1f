"""Proved lower bounds on the privacy loss, from exact one-dimensional runs of the algorithms.

Nothing here is shared with the upper bounds, which it exists to refute. Names are loaded on first
use, so that importing the package stays cheap.
"""

from __future__ import annotations

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
