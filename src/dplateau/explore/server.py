"""The page's server: on this machine only, for whoever has the address.

Every path begins with a random token, every request must name this host, and the page may load
nothing from elsewhere. The server itself computes nothing: questions go to worker processes, and
a question whose asker has gone away takes its process with it.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import secrets
import socket
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from dataclasses import asdict, dataclass, field
from importlib.resources import files
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from dplateau.errors import InvalidInput, MissingExtra
from dplateau.explore.settings import FIELDS, LONGEST_QUERY, Setting, WrongFields
from dplateau.explore.workers import Died, TookTooLong, Workers

# The web framework is an extra: it is loaded when a server starts.
if TYPE_CHECKING:
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import Response

HOST = "127.0.0.1"
# What each question may take, in seconds.
SECONDS = {"claim": 60, "curves": 120, "noise": 60, "length": 120, "certificate": 60, "report": 120}
STREAMED = ("claim", "curves", "noise", "length")
LARGEST_FILE = 2_000_000
# A line that says only that the server is still there.
_BEAT, _BEAT_SECONDS = "\n", 1.0
ASSETS = {
    "": ("index.html", "text/html"),
    "style.css": ("style.css", "text/css"),
    "app.js": ("app.js", "text/javascript"),
    "form.js": ("form.js", "text/javascript"),
    "charts.js": ("charts.js", "text/javascript"),
    "asking.js": ("asking.js", "text/javascript"),
    "uPlot.js": ("vendor/uPlot.iife.min.js", "text/javascript"),
    "uPlot.css": ("vendor/uPlot.min.css", "text/css"),
    "icon.svg": ("icon.svg", "image/svg+xml"),
}
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
# A report is one page with its style and pictures inside; it runs nothing.
_REPORT_POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'; sandbox"
)
_HEADERS = {
    "Content-Security-Policy": _POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
_TOKEN = re.compile(r"[A-Za-z0-9_-]{16,100}")

Scope = dict[str, Any]
Channel = Callable[..., Awaitable[Any]]


@dataclass(frozen=True)
class Explorer:
    """A server at one address: a port of this machine, and a token that nobody can guess."""

    socket: socket.socket
    token: str = field(repr=False)

    @classmethod
    def open(cls, address: str | None = None) -> Explorer:
        """Take a free port and a new token, or those of the address of an earlier explorer.

        Needs the extra ``explore``.
        """
        _require_framework()
        port, token = 0, secrets.token_urlsafe(24)
        if address is not None:
            port, token = _read_address(address)
        door = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        door.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            door.bind((HOST, port))
        except OSError as problem:
            door.close()
            raise InvalidInput(
                f"cannot serve at port {port} ({problem.strerror}); leave --address out"
            ) from None
        return cls(door, token)

    @property
    def port(self) -> int:
        """The port."""
        return int(self.socket.getsockname()[1])

    @property
    def address(self) -> str:
        """Where the page is."""
        return f"http://{HOST}:{self.port}/{self.token}/"

    def page(self, state: str | None = None) -> str:
        """Return the page's address with a setting, checked, in its fragment."""
        return self.address + ("" if state is None else f"#{Setting.read(state).query()}")

    def serve(self) -> None:
        """Serve until interrupted."""
        import uvicorn

        config = uvicorn.Config(
            self.app(),
            log_level="critical",
            access_log=False,
            server_header=False,
            lifespan="on",
            timeout_graceful_shutdown=1,
        )
        with contextlib.suppress(KeyboardInterrupt):
            uvicorn.Server(config).run(sockets=[self.socket])

    def app(self) -> Channel:
        """Return the application, with its guard in front."""
        return guarded(_application(), f"/{self.token}", self.port)


def _require_framework() -> None:
    try:
        import starlette
        import uvicorn  # noqa: F401
    except ImportError:
        raise MissingExtra(
            "the explorer needs the extra explore: pip install 'dplateau[explore]'"
        ) from None
    del starlette


def _read_address(address: str) -> tuple[int, str]:
    try:
        parts = urlsplit(address)
        port, token = parts.port, parts.path.strip("/")
    except ValueError:
        port, token = None, ""
    if not port or not _TOKEN.fullmatch(token) or parts.hostname not in (HOST, "localhost"):
        raise InvalidInput(
            f"an explorer's address looks like http://{HOST}:8642/a-long-token/; got {address!r}"
        )
    return port, token


# --- the guard ----------------------------------------------------------------------------------


def guarded(app: Channel, prefix: str, port: int) -> Channel:
    """Let through only requests to this host, from its own pages, that know the token."""
    hosts = {f"{name}:{port}".encode() for name in (HOST, "localhost")}
    origins = {b"http://" + host for host in hosts}

    async def checked(scope: Scope, receive: Channel, send: Channel) -> None:
        if scope["type"] != "http":
            await app(scope, receive, send)
            return
        headers = dict(scope["headers"])
        refusal = None
        if headers.get(b"host") not in hosts:
            refusal = 421  # another name for this machine: a page elsewhere might be behind it
        elif b"origin" in headers and headers[b"origin"] not in origins:
            refusal = 403
        elif not secrets.compare_digest(
            scope["path"][: len(prefix) + 1].encode(), f"{prefix}/".encode()
        ):
            refusal = 404
        if refusal is not None:
            await _refuse(send, refusal)
            return
        inner = {**scope, "path": scope["path"][len(prefix) :], "raw_path": None}
        await app(inner, receive, _with_headers(send))

    return checked


async def _refuse(send: Channel, status: int) -> None:
    await send({"type": "http.response.start", "status": status, "headers": []})
    await send({"type": "http.response.body", "body": b""})


def _with_headers(send: Channel) -> Channel:
    async def sent(message: dict[str, Any]) -> None:
        if message["type"] == "http.response.start":
            stated = {name for name, _ in message["headers"]}
            more = [(name.lower().encode(), value.encode()) for name, value in _HEADERS.items()]
            message["headers"] = [*message["headers"], *(h for h in more if h[0] not in stated)]
        await send(message)

    return sent


# --- what it answers ----------------------------------------------------------------------------


def _application() -> Starlette:
    from starlette.applications import Starlette
    from starlette.routing import Route

    workers = Workers()

    @contextlib.asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        workers.preparing = asyncio.create_task(workers.prepare())
        try:
            yield
        finally:
            workers.close()

    questions = Questions(workers)
    return Starlette(
        routes=[
            Route("/setup", questions.setup),
            Route("/certificate", questions.certificate),
            Route("/report", questions.report),
            Route("/verify", questions.verify, methods=["POST"]),
            *(Route(f"/{name}", questions.streamed(name)) for name in STREAMED),
            *(Route(f"/{name}", _asset(*place)) for name, place in ASSETS.items()),
        ],
        lifespan=lifespan,
    )


def _asset(name: str, media_type: str) -> Callable[[Request], Awaitable[Response]]:
    content = files("dplateau.explore").joinpath("page", *name.split("/")).read_bytes()

    async def answer(request: Request) -> Response:
        from starlette.responses import Response

        return Response(content, media_type=media_type)

    return answer


@dataclass(frozen=True)
class Questions:
    """The questions that a page asks, each handed to a worker."""

    workers: Workers

    async def setup(self, request: Request) -> Response:
        """Return what the page is built from: the fields, and the setting it starts with."""
        from starlette.responses import JSONResponse

        told = {name: {"kind": field.kind, **asdict(field)} for name, field in FIELDS.items()}
        return JSONResponse({"fields": told, "query": Setting().query()})

    def streamed(self, name: str) -> Callable[[Request], Awaitable[Response]]:
        """Return the answer to a question about a setting, one message in each line."""

        async def answer(request: Request) -> Response:
            from starlette.responses import JSONResponse, StreamingResponse

            query = request.url.query
            try:
                Setting.read(query[: LONGEST_QUERY + 1])
            except WrongFields as wrong:
                return JSONResponse({"kind": "refused", "errors": wrong.errors}, status_code=422)
            lines = self._lines(name, query)
            return StreamingResponse(lines, media_type="application/x-ndjson")

        return answer

    async def _lines(self, name: str, query: str) -> AsyncIterator[str]:
        messages = self.workers.answer(name, query, SECONDS[name])
        try:
            async for message in _with_beats(messages):
                yield _BEAT if message is None else json.dumps(message, allow_nan=False) + "\n"
        except TookTooLong:
            yield json.dumps({"kind": "stopped", "seconds": SECONDS[name]}) + "\n"
        except Died:
            yield json.dumps({"kind": "died"}) + "\n"

    async def certificate(self, request: Request) -> Response:
        """Return the certificate as a file."""
        return await self._paper(
            "certificate",
            request,
            "application/json",
            {"Content-Disposition": 'attachment; filename="certificate.json"'},
        )

    async def report(self, request: Request) -> Response:
        """Return the report's page."""
        return await self._paper(
            "report", request, "text/html", {"Content-Security-Policy": _REPORT_POLICY}
        )

    async def _paper(
        self, name: str, request: Request, media_type: str, headers: dict[str, str]
    ) -> Response:
        from starlette.responses import PlainTextResponse, Response

        query = request.url.query[: LONGEST_QUERY + 1]
        message = await self._whole(name, query, request)
        if message["kind"] == "text":
            return Response(message["text"], media_type=media_type, headers=headers)
        return PlainTextResponse("; ".join(message["errors"].values()), status_code=422)

    async def verify(self, request: Request) -> Response:
        """Return the verdict on a certificate that was sent."""
        from starlette.responses import JSONResponse

        body = b""
        async for part in request.stream():
            body += part
            if len(body) > LARGEST_FILE:
                text = f"a certificate has at most {LARGEST_FILE // 1_000_000} MB"
                return JSONResponse({"kind": "refused", "errors": {"": text}}, status_code=413)
        try:
            text = body.decode("utf-8")
        except UnicodeDecodeError:
            errors = {"": "not a certificate: the file is no text"}
            return JSONResponse({"kind": "refused", "errors": errors}, status_code=422)
        return JSONResponse(await self._whole("verify", text, request))

    async def _whole(self, name: str, argument: str, request: Request) -> dict[str, Any]:
        """Return an answer that is one message."""
        answer: dict[str, Any] | None = None
        seconds = SECONDS.get(name, 60)
        try:
            async for message in _with_beats(self.workers.answer(name, argument, seconds)):
                if message is not None:
                    answer = message
                elif await request.is_disconnected():
                    break
        except TookTooLong:
            return {"kind": "refused", "errors": {"": f"not done after {seconds} seconds"}}
        except Died:
            answer = None
        gone = {"kind": "refused", "errors": {"": "the computation ended early; ask again"}}
        return gone if answer is None else answer


async def _with_beats(messages: AsyncGenerator[Any, None]) -> AsyncIterator[Any]:
    """Yield the messages, and None whenever a second has passed without one.

    Sending something is what shows that nobody listens any more.
    """
    waiting: asyncio.Future[Any] | None = None
    try:
        while True:
            waiting = waiting or asyncio.ensure_future(anext(messages))
            done, _ = await asyncio.wait({waiting}, timeout=_BEAT_SECONDS)
            if not done:
                yield None
                continue
            try:
                message = waiting.result()
            except StopAsyncIteration:
                return
            waiting = None
            yield message
    finally:
        if waiting is not None:
            waiting.cancel()
            with contextlib.suppress(asyncio.CancelledError, Exception):
                await waiting
        await messages.aclose()
