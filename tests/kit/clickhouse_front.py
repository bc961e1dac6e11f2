"""The embedded engine behind the smallest ClickHouse HTTP face that the client needs, as a process of its own.

It stands in for a server where none is configured, so that the store's form for servers is run in every test run: its
requests, settings, parameters, Arrow bodies and errors meet the real engine. It is no server: no users, no sessions.

    python clickhouse_front.py FOLDER [PORT]      prints its port, serves until stdin ends
"""

import re
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import chdb

_TRANSPORT = {
    *("query", "database", "client_protocol_version", "session_id", "session_timeout", "session_check", "query_id"),
    *("compress", "decompress", "enable_http_compression", "wait_end_of_query", "role", "quota_key", "default_format"),
    *("buffer_size", "send_progress_in_http_headers", "http_headers_progress_interval_ms"),
}
_FORMAT = re.compile(r"\bFORMAT\s+(\w+)\s*$", re.IGNORECASE)
_BLOCK = re.compile(rb"INSERT INTO [^\n]* FORMAT \w+\n", re.IGNORECASE)
_CODE = re.compile(r"Code: (\d+)")


def run(address: str, options: dict[str, str], sql: str, data: bytes) -> tuple[bytes, str]:
    """Answer and its format."""
    handle = chdb.connect(address)
    try:
        if options.get("database"):
            handle.query(f"USE `{options['database']}`")
        settings = {k: v for k, v in options.items() if k not in _TRANSPORT and not k.startswith("param_")}
        if settings:
            handle.query("SET " + ", ".join(f"{k} = '{v}'" for k, v in settings.items()))
        if handle._conn.classify_query(sql)["statement_count"] > 1:
            raise RuntimeError("Code: 62. DB::Exception: Syntax error (Multi-statements are not allowed)")
        found = _FORMAT.search(sql)
        fmt = found.group(1) if found else options.get("default_format", "TabSeparated")
        if data:
            with handle.send_insert(sql[: found.start()] if found else sql, fmt) as into:
                into.append(data)
                into.finish()
            return b"", fmt
        params = {k.removeprefix("param_"): v for k, v in options.items() if k.startswith("param_")}
        return handle.query(sql, fmt, params=params).bytes(), fmt
    finally:
        handle.close()


class Handler(BaseHTTPRequestHandler):
    address = ""
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        options = dict(parse_qsl(urlsplit(self.path).query, keep_blank_values=True))
        body = self._body()
        # a block may follow its INSERT in the body
        block = _BLOCK.match(body)
        sql, data = (block.group().decode(), body[block.end() :]) if block else (body.decode(), b"")
        sql = sql or options["query"]
        try:
            answer, fmt = run(self.address, options, sql, data)
        except RuntimeError as error:
            code = _CODE.search(str(error))
            headers = {"X-ClickHouse-Exception-Code": code.group(1) if code else "1000"}
            self._send(500, str(error).encode(), headers)
        else:
            self._send(200, answer, {"X-ClickHouse-Format": fmt, "X-ClickHouse-Summary": "{}"})

    do_GET = do_POST

    def _body(self) -> bytes:
        if self.headers.get("Transfer-Encoding") != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length") or 0))
        chunks = []
        while size := int(self.rfile.readline(), 16):
            chunks.append(self.rfile.read(size))
            self.rfile.readline()
        self.rfile.readline()
        return b"".join(chunks)

    def _send(self, status: int, content: bytes, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: Any) -> None:
        """Quiet: the test's own output is what is read."""


def main() -> None:
    Handler.address = sys.argv[1]
    keeper = chdb.connect(Handler.address)
    server = ThreadingHTTPServer(("127.0.0.1", int(sys.argv[2]) if len(sys.argv) > 2 else 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    print(server.server_address[1], flush=True)
    sys.stdin.read()
    server.shutdown()
    server.server_close()
    keeper.close()


if __name__ == "__main__":
    main()
