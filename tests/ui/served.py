"""A site of made-up runs, served to a browser without an Airflow around it."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import uvicorn
from tests.plugins.pages import Site


class Settings:
    """Sets what the site wants for this whole process."""

    def setenv(self, name: str, value: str) -> None:
        """Set an environment variable."""
        os.environ[name] = value

    def setattr(self, target: object, name: str, value: object) -> None:
        """Set an attribute."""
        setattr(target, name, value)


@contextmanager
def served(site: Site) -> Iterator[str]:
    """The site on a port of its own."""
    server = uvicorn.Server(uvicorn.Config(site.app, port=0, log_level="error"))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.05)
    port = server.servers[0].sockets[0].getsockname()[1]
    yield f"http://127.0.0.1:{port}"
    server.should_exit = True
    thread.join()
