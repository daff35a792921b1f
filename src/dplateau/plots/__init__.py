"""Pictures: each display is frozen data that can draw itself.

Data is all that building a display needs; matplotlib (the extra ``plots``) is loaded when one is
drawn. Nothing here touches pyplot, so no window opens and no figure outlives its last reference.
"""

from __future__ import annotations

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
