"""A REST server of a Spark master that knows many drivers, each with an end of its own.

    python bench/support/fake_rest.py DRIVERS FIRST_END LAST_END

It prints its port. The drivers `driver-0`, `driver-1`, ... end, evenly spread, from FIRST_END to
LAST_END, in seconds since the epoch.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time


def end_of(number: int, drivers: int, first: float, last: float) -> float:
    """When a driver ends, in seconds since the epoch."""
    return first + (last - first) * number / drivers


async def serve(drivers: int, first: float, last: float) -> None:
    """Answer until the process is ended."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                name = head.split(b" ", 2)[1].rpartition(b"/")[2].decode()
                ended = time.time() >= end_of(
                    int(name.removeprefix("driver-")), drivers, first, last
                )
                body = json.dumps(
                    {
                        "action": "SubmissionStatusResponse",
                        "driverState": "FINISHED" if ended else "RUNNING",
                        "serverSparkVersion": "4.3.0",
                        "submissionId": name,
                        "success": True,
                    }
                ).encode()
                length = f"Content-Length: {len(body)}\r\n\r\n".encode()
                kind = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
                writer.write(kind + length + body)
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0, backlog=1024)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(serve(int(sys.argv[1]), float(sys.argv[2]), float(sys.argv[3])))
