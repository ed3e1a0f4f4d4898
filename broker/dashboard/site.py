"""What answers browsers: each request becomes a call of the contract, or of what the dashboard alone reads."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any

import grpc
from aiohttp import web

from tiercel.broker.access.sign_in import SESSION_SECONDS
from tiercel.broker.api.auth import caller_by_metadata
from tiercel.broker.api.methods import CallRefusedError
from tiercel.broker.dashboard import pages
from tiercel.broker.dashboard.asked import Asked, peer_of, read_body
from tiercel.broker.dashboard.asking import Spoken
from tiercel.broker.dashboard.metrics import families_of
from tiercel.broker.dashboard.protection import REQUEST_SECONDS, add_headers, json_answer, protection, text_answer
from tiercel.broker.dashboard.routes import Route, translations
from tiercel.core.errors import InvalidRequestError, NotAuthenticatedError
from tiercel.core.prometheus import CONTENT_TYPE, process_families, to_text
from tiercel.core.roles import Role
from tiercel.core.status import ClusterStatus
from tiercel.core.wire import from_proto
from tiercel.v1 import jobs_pb2, status_pb2

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Collection, Sequence

    from tiercel.broker.access.sign_in import SignIn
    from tiercel.broker.api.auth import Context
    from tiercel.broker.api.methods import Calls
    from tiercel.broker.dashboard.reads import ClusterReads
    from tiercel.broker.dashboard.stream import Publisher
    from tiercel.broker.tenancy import Caller, Tenancy

API = "/api/v1/"
STATUS = "/tiercel.v1.StatusService/GetStatus"
_BEARER = "Bearer "
PIECE_SECONDS = 10.0


class Site:
    """Answers browsers.

    Args:
        calls: Carries out what is asked.
        sign_in: Who is signed in.
        tenancy: Who calls.
        reads: What is asked here alone.
        publisher: What happens.
        names: By which this machine is called.
        further: Routes beside those of the contract.
    """

    def __init__(
        self,
        calls: Calls,
        sign_in: SignIn,
        tenancy: Tenancy,
        reads: ClusterReads,
        publisher: Publisher,
        names: Collection[str],
        further: Sequence[Route] = (),
    ) -> None:
        self._calls = calls
        self._sign_in = sign_in
        self._tenancy = tenancy
        self._reads = reads
        self._publisher = publisher
        self.routes = (*translations(), *self._own_routes(), *further)
        self.app = web.Application(middlewares=[protection(names)])
        self.app.on_response_prepare.append(add_headers)
        self._add_routes()

    def _own_routes(self) -> tuple[Route, ...]:
        return (
            Route("GET", "nodes", "JobsService/ListNodes", lambda _: jobs_pb2.ListNodesRequest(), read=self._nodes),
        )

    def _add_routes(self) -> None:
        router = self.app.router
        router.add_post(f"{API}session", self._open_session)
        router.add_delete(f"{API}session", self._close_session)
        router.add_get(f"{API}session", self._show_session)
        router.add_get(f"{API}events", self._stream)
        for route in self.routes:
            router.add_route(route.verb, f"{API}{route.path}", self._answering(route))
        router.add_get("/metrics", self._show_metrics)
        router.add_get("/assets/{path:.+}", pages.show_file)
        router.add_get("/{path:.*}", pages.show_index)

    # --- Routes ------------------------------------------------------------------------------------------------------

    def _answering(self, route: Route) -> Any:
        async def answer(request: web.Request) -> web.StreamResponse:
            if (follow := route.follow) is not None:
                asked = Asked(request, await read_body(request))
                return await self._events(
                    request, route.full_method, route.request(asked), lambda context: follow(asked, context)
                )
            async with asyncio.timeout(REQUEST_SECONDS):
                if route.read is not None:
                    asked, handler = Asked(request, b""), self._reading(route, request)
                else:
                    asked, handler = Asked(request, await read_body(request)), None
                found = await self._call(request, route.full_method, route.request(asked), handler)
                return _answer_of(route.answer(found))

        return answer

    @staticmethod
    def _reading(route: Route, request: web.Request) -> grpc.RpcMethodHandler[Any, Any]:
        async def read(_: object, context: Context) -> Any:
            assert route.read is not None  # noqa: S101 - whoever asks has looked
            # Bodies may be large: only of somebody who was let through is one taken in.
            return await route.read(Asked(request, await read_body(request, route.most_bytes)), context)

        return grpc.unary_unary_rpc_method_handler(read)

    async def _call(
        self, request: web.Request, method: str, message: object, handler: grpc.RpcMethodHandler[Any, Any] | None = None
    ) -> Any:
        try:
            return await self._calls.call(method, message, self._token(request), peer_of(request), handler=handler)
        except CallRefusedError as error:
            if error.code == NotAuthenticatedError.code and "Authorization" not in request.headers:
                raise _sign_in_error() from None
            raise

    async def _nodes(self, _: Asked, context: Context) -> Any:
        """All nodes, and how each is divided."""
        return self._reads.nodes(_audience(self._caller(context)))

    def _caller(self, context: Context) -> Caller:
        return caller_by_metadata(context.invocation_metadata(), self._tenancy)

    # --- Who is signed in --------------------------------------------------------------------------------------------

    def _token(self, request: web.Request) -> str:
        """Of who asks: a program's own, or that of a browser's session; never both."""
        given = request.headers.get("Authorization")
        if given is not None:
            return given.removeprefix(_BEARER) if given.startswith(_BEARER) else ""
        return self._sign_in.token_of(request.cookies.get(_cookie_name(request), ""))

    async def _open_session(self, request: web.Request) -> web.Response:
        """Signs a browser in, by the `code` of a link or by a `token`."""
        asked = Asked(request, await read_body(request))
        code, token = asked.words("code"), asked.words("token")
        if bool(code) is bool(token):
            raise InvalidRequestError("code: give the code of a link, or a token", field="code")
        error: NotAuthenticatedError | None = None
        if code:
            try:
                token = self._sign_in.take_code(code)
            except NotAuthenticatedError as found:
                error = found
        try:
            status = await self._calls.call(STATUS, status_pb2.GetStatusRequest(), token.strip(), peer_of(request))
        except CallRefusedError:
            if error is not None:  # written down by now as any other refusal
                raise error from None
            raise
        caller = self._tenancy.find_caller(token.strip())
        assert caller is not None  # noqa: S101 - it was let through
        answer = json_answer(self._session(caller, status))
        answer.set_cookie(
            _cookie_name(request),
            await self._sign_in.open(token.strip()),
            httponly=True,
            samesite="Strict",
            secure=request.secure,
            path="/",
            max_age=int(SESSION_SECONDS),
        )
        return answer

    async def _close_session(self, request: web.Request) -> web.Response:
        """Signs the browser out."""
        name = _cookie_name(request)
        await self._sign_in.close(request.cookies.get(name, ""))
        answer = json_answer({})
        answer.del_cookie(name, path="/", httponly=True, samesite="Strict", secure=request.secure)
        return answer

    async def _show_session(self, request: web.Request) -> web.Response:
        """Who is signed in, and as what."""
        status = await self._call(request, STATUS, status_pb2.GetStatusRequest())
        caller = self._tenancy.find_caller(self._token(request))
        if caller is None:
            raise _sign_in_error()
        return json_answer(self._session(caller, status))

    async def _show_metrics(self, request: web.Request) -> web.Response:
        """The numbers of the cluster for Prometheus."""
        status = from_proto(ClusterStatus, await self._call(request, STATUS, status_pb2.GetStatusRequest()))
        caller = self._tenancy.find_caller(self._token(request))
        own = process_families() if caller is not None and caller.role is Role.OPERATOR else []
        headers = {"Content-Type": CONTENT_TYPE, "Cache-Control": "no-store"}
        return web.Response(body=to_text([*families_of(status), *own]).encode(), headers=headers)

    def _session(self, caller: Caller, told: status_pb2.GetStatusResponse) -> dict[str, Any]:
        status = from_proto(ClusterStatus, told)
        return {
            "tenant": _audience(caller),
            "role": caller.role.value,
            "version": status.version,
            "node_count": len(status.nodes),
            "policy": self._reads.policy,
        }

    # --- What happens ------------------------------------------------------------------------------------------------

    async def _stream(self, request: web.Request) -> web.StreamResponse:
        """What happens, as server-sent events; `Last-Event-ID` says after which."""
        last_id = request.headers.get("Last-Event-ID", "")

        def follow(context: Context) -> AsyncGenerator[bytes]:
            return self._publisher.follow(_audience(self._caller(context)), last_id)

        return await self._events(request, STATUS, status_pb2.GetStatusRequest(), follow)

    async def _events(
        self,
        request: web.Request,
        method: str,
        message: object,
        follow: Callable[[Context], AsyncGenerator[bytes]],
    ) -> web.StreamResponse:
        """Server-sent events, once there is one: what fails before is an answer of its own, and later simply ends."""
        response = web.StreamResponse(
            headers={
                "Content-Type": "text/event-stream; charset=utf-8",
                "Cache-Control": "no-store",
                "X-Accel-Buffering": "no",
            }
        )

        async def tell(_: object, context: Context) -> AsyncGenerator[bytes]:
            async with contextlib.aclosing(follow(context)) as pieces:
                async for piece in pieces:
                    yield piece

        async def write(piece: bytes) -> None:
            if not response.prepared:
                await response.prepare(request)
            try:
                async with asyncio.timeout(PIECE_SECONDS):
                    await response.write(piece)
            except (ConnectionError, TimeoutError) as error:
                if request.transport is not None:  # it reads too slowly, or not any more
                    request.transport.abort()
                raise CallRefusedError("cancelled", "nobody reads this") from error

        handler: grpc.RpcMethodHandler[Any, Any] = grpc.unary_stream_rpc_method_handler(tell)
        try:
            await self._calls.call(
                method, message, self._token(request), peer_of(request), handler=handler, write=write
            )
        except CallRefusedError as error:
            if not response.prepared:
                raise _sign_in_error() if error.code == NotAuthenticatedError.code else error from None
        return response


def _answer_of(told: Any) -> web.Response:
    if isinstance(told, Spoken):
        headers = {"Cache-Control": "no-store", "X-Tiercel-Milliseconds": f"{told.milliseconds:.3f}"}
        return web.Response(body=told.content, content_type="application/json", headers=headers)
    return text_answer(told) if isinstance(told, str) else json_answer(told)


def _audience(caller: Caller) -> str:
    return caller.tenant.name if caller.tenant is not None else ""


def _cookie_name(request: web.Request) -> str:
    """With the port in it, as cookies are of all ports of a host, where another broker may be."""
    bound = request.transport.get_extra_info("sockname") if request.transport is not None else None
    port = bound[1] if bound else 0
    return f"__Host-tiercel-{port}" if request.secure else f"tiercel-{port}"


def _sign_in_error() -> NotAuthenticatedError:
    return NotAuthenticatedError("nobody is signed in here; run 'tiercel dashboard', or give a token")
