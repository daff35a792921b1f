"""Show the keyword options of a run in ``help()`` and in notebooks."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, TypeVar

Class = TypeVar("Class", bound=type[Any])
_DEFAULTS: dict[str, object] = {
    "l2": 0.0,
    "momentum": 0.0,
    "average_last": 1,
    "noise_kind": "gaussian",
    "neighbors": "add_remove",
    "release": inspect.Parameter.empty,
}


def shows_options(options: type[Any]) -> Callable[[Class], Class]:
    """Replace ``**options`` in a class's visible signature by the options themselves."""

    def decorate(cls: Class) -> Class:
        shown = inspect.signature(cls)
        own = [p for p in shown.parameters.values() if p.kind is inspect.Parameter.KEYWORD_ONLY]
        named = {parameter.name for parameter in own}
        extra = [
            inspect.Parameter(
                name,
                inspect.Parameter.KEYWORD_ONLY,
                default=_DEFAULTS.get(name),
                annotation=annotation,
            )
            for name, annotation in options.__annotations__.items()
            if name not in named
        ]
        cls.__signature__ = shown.replace(parameters=[*own, *extra])
        return cls

    return decorate
