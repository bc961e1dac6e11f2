"""Which answer belongs to which request, on connections that are used again (E2, E6)."""

import asyncio

from nightmill.provider_gateway.connections import Connections

UNASKED = b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nstale"


class Echo:
    """Answers each request with its body; on its first connection, once more when it is told to."""

    def __init__(self) -> None:
        self.connections = 0
        self.go_on, self.has_said_more = asyncio.Event(), asyncio.Event()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        first = self.connections == 1
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                body = await reader.readexactly(int(head.lower().rpartition(b"content-length:")[2].split()[0]))
                writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body))
                if first:
                    await self.go_on.wait()
                    writer.write(UNASKED)
                    self.has_said_more.set()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()


async def what_nobody_asked_for() -> None:
    provider, connections = Echo(), Connections()
    server = await asyncio.start_server(provider.serve, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1/x"

    async def post(body: bytes) -> bytes:
        return (await connections.post(url, {}, body, connect_s=20)).body

    try:
        assert await post(b"one") == b"one"
        provider.go_on.set()
        await provider.has_said_more.wait()
        await asyncio.sleep(0.05)  # it is written: the next look of this loop at its sockets finds it
        assert [await post(b"two"), await post(b"three")] == [b"two", b"three"]
        assert provider.connections == 2
    finally:
        await connections.close()
        server.close()
        await server.wait_closed()


def test_what_nobody_asked_for_is_nobodys_answer() -> None:
    """A proxy that answers a request twice must not shift all later answers by one request."""
    asyncio.run(what_nobody_asked_for())
