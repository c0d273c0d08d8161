"""Where the work is done: in this process, or on a Dask cluster. Both run the same functions in the same tree."""

from __future__ import annotations

import logging
import os
import queue
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, Protocol

from steinstream.errors import InputError, SteinstreamError
from steinstream.integrations._common import need

PATIENCE = 60.0  # seconds without any worker
KNOCK = 10.0  # seconds for a scheduler to answer


class ClusterError(SteinstreamError, RuntimeError):
    """The cluster cannot finish the work."""


class Cluster(Protocol):
    """Runs functions somewhere. A handle stands for a result that stays there."""

    def start(self, function: Callable[..., Any], calls: Sequence[tuple[Any, ...]]) -> list[Any]:
        """A handle for each call; arguments may be handles, or what Dask has to compute first."""

    def finished(self, handles: Sequence[Any]) -> Iterator[int]:
        """Places of the handles as their results come to be."""

    def fetch(self, handles: Sequence[Any]) -> list[Any]:
        """The results themselves."""

    def forget(self, handles: Sequence[Any]) -> None:
        """They are not needed any more, done or not."""


class Later:
    """A call made when its result is first asked for."""

    def __init__(self, function: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
        self._call: tuple[Callable[..., Any], tuple[Any, ...]] | None = (function, arguments)
        self._value: Any = None

    def result(self) -> Any:
        """The value."""
        if self._call is not None:
            function, arguments = self._call
            self._value = function(*(_computed(argument) for argument in arguments))
            self._call = None
        return self._value


def _computed(argument: Any) -> Any:
    if isinstance(argument, Later):
        return argument.result()
    if hasattr(argument, "dask") and hasattr(argument, "compute"):
        return argument.compute(scheduler="sync")
    return argument


class Here:
    """In our own process, one call after another."""

    def start(self, function: Callable[..., Any], calls: Sequence[tuple[Any, ...]]) -> list[Any]:
        return [Later(function, arguments) for arguments in calls]

    def finished(self, handles: Sequence[Any]) -> Iterator[int]:
        for place, handle in enumerate(handles):
            handle.result()
            yield place

    def fetch(self, handles: Sequence[Any]) -> list[Any]:
        return [handle.result() for handle in handles]

    def forget(self, handles: Sequence[Any]) -> None:
        pass


class There:
    """A Dask cluster."""

    def __init__(self, client: Any) -> None:
        self._client = client

    def start(self, function: Callable[..., Any], calls: Sequence[tuple[Any, ...]]) -> list[Any]:
        from distributed import Future

        if not any(hasattr(argument, "dask") for call in calls for argument in call):
            return [self._client.submit(function, *arguments, pure=False) for arguments in calls]
        from dask.delayed import delayed

        def fixed(arguments: tuple[Any, ...]) -> Any:
            """Only what Dask has to compute is an argument; the rest goes with the function, unopened."""
            open_ = [place for place, one in enumerate(arguments) if hasattr(one, "dask") or isinstance(one, Future)]
            first = open_[0] if open_ else len(arguments)
            return delayed(partial(function, *arguments[:first]), pure=False)(*arguments[first:])

        futures: list[Any] = self._client.compute([fixed(arguments) for arguments in calls])
        return futures

    def finished(self, handles: Sequence[Any]) -> Iterator[int]:
        """As they are done. Raises what went wrong, or that nobody is left to do the rest."""
        done: queue.SimpleQueue[int] = queue.SimpleQueue()
        for place, handle in enumerate(handles):
            handle.add_done_callback(lambda _, place=place: done.put(place))
        alone = None
        for _ in handles:
            while True:
                try:
                    place = done.get(timeout=1.0)
                    break
                except queue.Empty:
                    alone = self._require_alive(alone)
            if handles[place].status != "finished":
                self._explain(handles[place])
            yield place

    def fetch(self, handles: Sequence[Any]) -> list[Any]:
        for _ in self.finished(handles):
            pass
        from distributed import CancelledError

        try:
            results: list[Any] = self._client.gather(list(handles))
        except (CancelledError, TimeoutError, OSError) as lost:
            raise _gone(lost) from None
        return results

    def forget(self, handles: Sequence[Any]) -> None:
        if self._client.status == "running":
            self._client.cancel(list(handles))

    def _require_alive(self, alone: float | None) -> float | None:
        """Raise if the scheduler is gone, or if there has been no worker for long; since when there has been none."""
        if self._client.status != "running":
            raise _gone(self._client.status)
        try:
            workers = self._client.nthreads()
        except (OSError, TimeoutError) as lost:
            raise _gone(lost) from None
        if workers:
            return None
        if alone is not None and time.monotonic() - alone > PATIENCE:
            raise ClusterError(
                f"The cluster has had no worker for {PATIENCE:.0f} s.",
                "Start workers and run it again: with a folder it goes on from where it stood.",
            )
        return alone if alone is not None else time.monotonic()

    def _explain(self, handle: Any) -> None:
        """Raise what made a task fail, in the user's terms where there are such."""
        from distributed import CancelledError
        from distributed.scheduler import KilledWorker

        try:
            handle.result(timeout=10)
        except KilledWorker as killed:
            raise ClusterError(
                f"Workers died again and again over one task: {killed}.",
                "It may need more memory than a worker has: give workers more, or keep fewer draws.",
            ) from None
        except (CancelledError, TimeoutError) as lost:
            raise _gone(lost) from None
        except ModuleNotFoundError as missing:
            raise ClusterError(f"The workers cannot import {missing.name}.", "Install it where they run.") from None
        raise _gone(handle.status)


def _gone(why: object) -> ClusterError:
    return ClusterError(
        f"The cluster is gone, or has forgotten the work ({why}).",
        "Start it and run again: with a folder it goes on from where it stood.",
    )


@contextmanager
def connected(client: Any, workers: int | None, tell: Callable[[str], None] | None = None) -> Iterator[Cluster]:
    """The cluster to work on: a client's, one at an address, or one of our own for as long as this lasts.

    ``workers=0`` is this process. ``tell`` is given the address of the dashboard.
    """
    if workers == 0 and client is None:
        yield Here()
        return
    need("distributed", "dask")
    from distributed import Client, default_client

    if client is None and workers is None:
        try:
            client = default_client()
        except ValueError:
            workers = os.cpu_count() or 1
    if client is not None and not isinstance(client, str):
        if client.status != "running":
            raise ClusterError("The client has no connection to a cluster.", "Connect it, or give an address.")
        yield There(_with_workers(client, tell))
    elif client is not None:
        try:
            own = Client(client, timeout=KNOCK, set_as_default=False)
        except (OSError, TimeoutError, ValueError) as wrong:
            raise ClusterError(f"There is no Dask scheduler at {client}: {wrong}.", "Check the address.") from None
        with own:
            yield There(_with_workers(own, tell))
    else:
        if isinstance(workers, bool) or not isinstance(workers, int) or workers < 0:
            raise InputError(f"workers must be a whole number of at least 0, got {workers!r}.")
        with local(workers) as own:
            yield There(_with_workers(own, tell))


@contextmanager
def local(workers: int, **options: Any) -> Iterator[Any]:
    """The client of so many processes on this machine, each with one thread."""
    import dask
    from distributed import Client, LocalCluster

    # Dask lets a worker give all freed memory back at once, and every block of draws then costs as many page faults as
    # it has pages: a third more time for short leaves. Ours keep up to 64 MB for the next block. And Dask's profiler
    # looks at every task a hundred times a second, at 7 % of the time, to find nothing but one compiled function. Other
    # clocks that tick for nothing take another 8 % of a core, all processes together.
    memory = {f"MALLOC_{name}_THRESHOLD_": 1 << 26 for name in ("TRIM", "MMAP")}
    settings = {
        "distributed.nanny.pre-spawn-environ": {**_environment(), **memory},
        "distributed.worker.profile.enabled": False,
        "distributed.admin.tick.interval": "500ms",
        "distributed.admin.system-monitor.interval": "2s",
        "distributed.admin.system-monitor.gil.enabled": False,
        "distributed.worker.memory.monitor-interval": "500ms",
    }
    with dask.config.set(settings):
        with _deaf():
            cluster = LocalCluster(
                n_workers=workers,
                threads_per_worker=1,
                silence_logs=logging.ERROR,
                **{"dashboard_address": "127.0.0.1:0", **options},
            )
        with cluster, Client(cluster, set_as_default=False) as client:
            yield client


@contextmanager
def _deaf() -> Iterator[None]:
    """Processes that are started meanwhile do not hear Ctrl-C, which is for this one: it ends them."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _environment() -> dict[str, Any]:
    """What workers are started with anyway."""
    import dask

    return dict(dask.config.get("distributed.nanny.pre-spawn-environ", default={}))


def _with_workers(client: Any, tell: Callable[[str], None] | None) -> Any:
    try:
        client.wait_for_workers(1, timeout=PATIENCE)
    except TimeoutError:
        raise ClusterError(f"The cluster has no worker, after {PATIENCE:.0f} s.", "Start some.") from None
    if tell is not None:
        tell(str(client.dashboard_link))
    return client
