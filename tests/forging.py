"""Papers as a forger would leave them: something changed, and a digest that fits again."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from dplateau.ground.sealed import ENVELOPE, resealed

# Two numbers of a claim, by the names of the attributes that hold them.
CLAIM = {"claimed_epsilon": "epsilon", "claimed_delta": "delta"}


def changed(found: Mapping[str, Any], **changes: Any) -> dict[str, Any]:
    """Return a sealed paper with other contents and its old digest."""
    new: dict[str, Any] = json.loads(json.dumps(found))
    for name, value in changes.items():
        if name in CLAIM:
            new["content"]["claim"][CLAIM[name]] = value
        elif name in ENVELOPE:
            new[name] = value
        else:
            new["content"][name] = value
    return new


def forged(found: Mapping[str, Any], **changes: Any) -> dict[str, Any]:
    """Return :func:`changed` with a digest that fits."""
    return resealed(changed(found, **changes))
