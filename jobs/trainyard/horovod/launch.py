"""Horovod's ranks: how they find each other, and a launcher for one in this process."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from trainyard.barrier.engine import Place
from trainyard.errors import SettingError

if TYPE_CHECKING:
    pass

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class HorovodEngine:
    """Ranks that find each other by Horovod's rendezvous server, and talk by Gloo.

    Attributes:
        cycle_time_ms: Horovod's cycle time.
        stall_timeout: seconds after which a rank that does not answer ends the others.
        ranks_setting: name of the setting that says how many ranks there are.
    """

    cycle_time_ms: float
    stall_timeout: int
    ranks_setting: str = "ranks"

    lost_errors = ("HorovodInternalError", "StallError")
    memory_fix = "use streaming, or lower batch_size"

    @contextmanager
    def serve(self, host: str, ranks: int) -> Iterator[HorovodMember]:
        """Run the rendezvous server; see `Engine`."""
        from horovod.runner.http.http_server import RendezvousServer

        server = RendezvousServer()
        port = server.start()
        server.init([])
        try:
            yield HorovodMember(engine=self, driver=host, port=port)
        finally:
            # It looks for its end every half a second, for which nobody need wait.
            threading.Thread(target=server.stop, name="rendezvous-stop", daemon=True).start()

    def tuning(self) -> dict[str, str]:
        """Environment variables that hold however a rank was started."""
        # Horovod's own stall check does nothing with Gloo, whose controller leaves its list of
        # ranks empty in 0.28.1: `collective` bounds the wait for a rank that lives, Gloo for one
        # that froze.
        return {
            "HOROVOD_CYCLE_TIME": str(self.cycle_time_ms),
            "HOROVOD_GLOO_TIMEOUT_SECONDS": str(self.stall_timeout),
            "OMP_NUM_THREADS": "1",
        }


@dataclass(frozen=True, kw_only=True)
class HorovodMember:
    """Joins a task to Horovod's ranks.

    Attributes:
        engine: the ranks'.
        driver: host of the rendezvous server.
        port: its port.
    """

    engine: HorovodEngine
    driver: str
    port: int

    @contextmanager
    def joined(self, place: Place, address: str) -> Iterator[None]:
        """Initialise Horovod; see `Member`. It is shut down only where nothing went wrong."""
        from horovod.runner.common.util.hosts import SlotInfo
        from horovod.runner.gloo_run import create_slot_env_vars

        slot = SlotInfo(
            hostname=place.host,
            rank=place.rank,
            local_rank=place.local_rank,
            cross_rank=place.cross_rank,
            size=place.size,
            local_size=place.local_size,
            cross_size=place.cross_size,
        )
        ring = {
            **create_slot_env_vars(slot),
            "HOROVOD_CONTROLLER": "gloo",
            "HOROVOD_CPU_OPERATIONS": "gloo",
            "HOROVOD_GLOO_RENDEZVOUS_ADDR": socket.gethostbyname(self.driver),
            "HOROVOD_GLOO_RENDEZVOUS_PORT": str(self.port),
        }
        if interface := _interface(address):
            ring["HOROVOD_GLOO_IFACE"] = interface
        os.environ.update(self.engine.tuning())
        os.environ.update(ring)
        import horovod.torch as hvd

        from trainyard.horovod import collective

        try:
            collective.init()
            yield
            hvd.shutdown()
        finally:
            # Spark keeps this process: a Horovod that it starts later is in no ring, or another.
            for name in ring:
                os.environ.pop(name, None)


class InProcessLauncher:
    """Runs the only rank in this process."""

    def run(self, fn: Callable[[], T], ranks: int) -> list[T]:
        """Call `fn` here; see `Launcher`."""
        import horovod.torch as hvd

        from trainyard.horovod import collective

        if ranks != 1:
            raise SettingError("ranks", ranks, "one process is one rank", "Set it to 1.")
        collective.init()
        try:
            return [fn()]
        finally:
            hvd.shutdown()


def _interface(address: str) -> str | None:
    """The network interface that has an address; Horovod would guess one by the host's name."""
    import psutil

    for name, addresses in psutil.net_if_addrs().items():
        if any(known.address == address for known in addresses):
            return str(name)
    return None
