"""A web server on this machine that answers as the web UI of a standalone master."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

MASTERS = Path(__file__).parent / "masters"


def recorded(name: str) -> dict[str, Any]:
    """What a real Spark 4.3 master with one worker of 3 cores and 3 GiB answered."""
    document: dict[str, Any] = json.loads((MASTERS / f"{name}.json").read_text())
    return document


def idle(*workers: tuple[int, int], status: str = "ALIVE") -> dict[str, Any]:
    """What a master answers whose workers, of so many cores and MiB, have nothing to do."""
    document = recorded("running") | {"status": status, "activeapps": [], "activedrivers": []}
    one = document["workers"][0] | {"coresused": 0, "memoryused": 0}
    document["workers"] = [
        one | {"host": f"w{n}", "cores": c, "coresfree": c, "memory": m, "memoryfree": m}
        for n, (c, m) in enumerate(workers, start=1)
    ]
    return document


@contextmanager
def web_ui(answer: Any, code: int = 200) -> Iterator[str]:
    """Serve an answer at /json/ and at MLflow's /health while the block runs; yield the address.

    Args:
        answer: a document, or a text as it is.
        code: of the HTTP answer.
    """

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = answer if isinstance(answer, str) else json.dumps(answer)
            self.send_response(code if self.path in ("/json/", "/health") else 404)
            self.end_headers()
            self.wfile.write(body.encode())

        def log_message(self, *_: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()
