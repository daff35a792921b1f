"""Machine-code loops, compiled on first call: the one place that touches numba.

Importing this module costs nothing; numba itself is loaded when a decorated function first runs.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import FunctionType
from typing import Generic, ParamSpec, TypeVar, cast

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


class Compiled(Generic[Arguments, Result]):
    """A function that becomes machine code when it is first called.

    Other compiled functions that it names are compiled with it. The compiled form is kept on disk
    and is renewed when the *file of the function* changes, so a compiled function and its compiled
    helpers belong in one file.
    """

    def __init__(self, function: Callable[Arguments, Result], *, any_order: bool = False) -> None:
        functools.update_wrapper(self, function)
        self.function = function
        self.any_order = any_order
        self._machine_code: Callable[Arguments, Result] | None = None

    def __call__(self, *args: Arguments.args, **kwargs: Arguments.kwargs) -> Result:
        """Run the machine code, making it first if need be."""
        return self.machine_code()(*args, **kwargs)

    def machine_code(self) -> Callable[Arguments, Result]:
        """Return the numba dispatcher of the function."""
        if self._machine_code is None:
            linked = _with_compiled_helpers(self.function)
            self._machine_code = _translate(linked, any_order=self.any_order)
        return self._machine_code


def compiled(function: Callable[Arguments, Result]) -> Compiled[Arguments, Result]:
    """Mark a numerical function to be compiled (and cached on disk) when it is first called."""
    return Compiled(function)


def compiled_in_any_order(
    function: Callable[Arguments, Result],
) -> Compiled[Arguments, Result]:
    """Like :func:`compiled`, but sums may be added up in another order, several terms at a time.

    That is several times faster. For training, never for a number that is part of a claim.
    """
    return Compiled(function, any_order=True)


def _with_compiled_helpers(function: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
    """Return the function with its compiled globals replaced by what numba can link to."""
    assert isinstance(function, FunctionType)
    helpers = {
        name: value.machine_code()
        for name in function.__code__.co_names
        if isinstance(value := function.__globals__.get(name), Compiled)
    }
    if not helpers:
        return function
    linked = FunctionType(function.__code__, {**function.__globals__, **helpers}, function.__name__)
    linked.__qualname__ = function.__qualname__
    linked.__module__ = function.__module__
    return cast(Callable[Arguments, Result], linked)


def _translate(
    function: Callable[Arguments, Result], *, any_order: bool
) -> Callable[Arguments, Result]:
    import numba

    # Strict floating point unless asked: the callers' rounding arguments rest on it.
    freedom = {"reassoc", "contract", "nsz"} if any_order else False
    try:
        dispatcher: Callable[Arguments, Result] = numba.njit(
            cache=True, nogil=True, fastmath=freedom
        )(function)
    except RuntimeError:
        # No writable directory for the cache: compile anew in every process instead.
        dispatcher = numba.njit(nogil=True, fastmath=freedom)(function)
    return dispatcher
