"""Processes that compute for the page, and are ended when nobody waits for their answer.

A number that takes a second cannot be interrupted in the middle, but its process can. One process
serves one question at a time; whoever stops listening ends it, and a fresh one takes its place.
Processes are forked from a server that has everything loaded, where the system can do that.
"""

from __future__ import annotations

import asyncio
import contextlib
import multiprocessing
import os
import signal
import sys
import threading
import traceback
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import Any

from dplateau.errors import DplateauError

# Two questions of a page at once, a third that somebody asked by a button, and one that is ending.
MOST_AT_ONCE = 4
_SPARES = 2


class Died(Exception):
    """A worker ended in the middle of an answer."""


class TookTooLong(Exception):
    """An answer was not complete after the time that it may take."""


@dataclass(eq=False)
class Worker:
    """One process with the pipe to it."""

    process: BaseProcess
    pipe: Connection

    async def receive(self) -> Any:
        """Return the next message; the process ends whoever waits for it in vain."""
        try:
            return await asyncio.to_thread(self.pipe.recv)
        except (EOFError, OSError):
            raise Died from None

    def end(self) -> None:
        """End the process at once, whatever it does."""
        self.process.kill()
        threading.Thread(target=self._tidy, daemon=True).start()

    def _tidy(self) -> None:
        self.process.join()
        self.pipe.close()


@dataclass(eq=False)
class Workers:
    """A few processes, some of them idle and ready."""

    idle: list[Worker] = field(default_factory=list)
    busy: set[Worker] = field(default_factory=set)
    slots: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(MOST_AT_ONCE))
    preparing: asyncio.Task[None] | None = None
    closed: bool = False

    async def prepare(self) -> None:
        """Start processes until some are idle."""
        while len(self.idle) < _SPARES and not self.closed:
            worker = await asyncio.to_thread(_start)
            self.idle.append(worker)

    def close(self) -> None:
        """End all of them."""
        self.closed = True
        if self.preparing is not None:
            self.preparing.cancel()
        for worker in (*self.idle, *self.busy):
            worker.end()
        self.idle.clear()

    async def answer(self, name: str, argument: str, seconds: float) -> AsyncGenerator[Any, None]:
        """Yield the messages of an answer; leaving early ends the process that makes them."""
        async with self.slots, self._taken() as worker:
            clock = asyncio.get_running_loop().time
            until = clock() + seconds
            worker.pipe.send((name, argument))
            while True:
                try:
                    message = await asyncio.wait_for(worker.receive(), until - clock())
                except TimeoutError:
                    raise TookTooLong from None
                if message is None:
                    return
                yield message

    @asynccontextmanager
    async def _taken(self) -> AsyncIterator[Worker]:
        """Lend a worker; whoever does not see its answer through gets it ended."""
        worker = self.idle.pop() if self.idle else await asyncio.to_thread(_start)
        self.busy.add(worker)
        whole = False
        try:
            yield worker
            whole = True
        finally:
            self.busy.discard(worker)
            if whole and len(self.idle) < MOST_AT_ONCE:
                self.idle.append(worker)
            else:
                worker.end()
                self.preparing = asyncio.create_task(self.prepare())


def _context() -> Any:
    methods = multiprocessing.get_all_start_methods()
    context = multiprocessing.get_context("forkserver" if "forkserver" in methods else "spawn")
    context.set_forkserver_preload(["dplateau.explore.warm"])
    return context


def _start() -> Worker:
    context = _context()
    ours, theirs = context.Pipe()
    process = context.Process(target=serve, args=(theirs,), daemon=True)
    process.start()
    theirs.close()
    return Worker(process, ours)


def serve(pipe: Connection) -> None:
    """Answer questions until nobody is left to ask them: what a worker process does."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    from threadpoolctl import threadpool_limits

    from dplateau.explore.answers import ANSWERS

    threadpool_limits(1)
    with contextlib.suppress(EOFError, OSError):
        while True:
            name, argument = pipe.recv()
            try:
                for message in ANSWERS[name](argument):
                    pipe.send(message)
            except DplateauError as refusal:
                errors = getattr(refusal, "errors", {"": str(refusal)})
                pipe.send({"kind": "refused", "errors": errors})
            except (ArithmeticError, MemoryError, RecursionError, AssertionError, LookupError):
                sys.stderr.write(traceback.format_exc())
                text = "this setting is beyond what can be computed; a less extreme one will do"
                pipe.send({"kind": "refused", "errors": {"": text}})
            pipe.send(None)


def _end_with_parent() -> None:
    """End with the server, however that ended: nothing goes on computing for nobody."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
