"""Backends that run tasks: in this process, or on a Dask cluster. Both run the same functions in the same tree."""

from __future__ import annotations

import logging
import os
import queue
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any, Protocol

from steinstream._processes import sigint_blocked
from steinstream.errors import InputError, SteinstreamError, require_main_guard
from steinstream.io.errors import need

WORKER_TIMEOUT = 60.0  # seconds without any worker
CONNECT_TIMEOUT = 30.0  # seconds until a scheduler must answer

_CONTINUE = "Start it and run again: with a folder, the run continues from the checkpoints."


class ClusterError(SteinstreamError, RuntimeError):
    """The cluster cannot finish the work."""


class ParallelBackend(Protocol):
    """Runs functions. A handle stands for a result, which stays where it was computed."""

    def submit(self, function: Callable[..., Any], calls: Sequence[tuple[Any, ...]]) -> list[Any]:
        """Return a handle for each call; arguments may be handles, or values that Dask has to compute."""

    def as_completed(self, handles: Sequence[Any]) -> Iterator[int]:
        """Yield the positions of the handles as their results become available."""

    def gather(self, handles: Sequence[Any]) -> list[Any]:
        """Return the results."""

    def cancel(self, handles: Sequence[Any]) -> None:
        """Discard results, computed or not."""


class DeferredCall:
    """A call that is made when its result is first requested."""

    def __init__(self, function: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
        self._call: tuple[Callable[..., Any], tuple[Any, ...]] | None = (function, arguments)
        self._value: Any = None

    def result(self) -> Any:
        """Return the result; the arguments are released."""
        if self._call is not None:
            function, arguments = self._call
            self._value = function(*(_computed(argument) for argument in arguments))
            self._call = None
        return self._value


def _computed(argument: Any) -> Any:
    if isinstance(argument, DeferredCall):
        return argument.result()
    if hasattr(argument, "dask") and hasattr(argument, "compute"):
        return argument.compute(scheduler="sync")
    return argument


class SerialBackend:
    """Runs calls in this process, one after another."""

    def submit(self, function: Callable[..., Any], calls: Sequence[tuple[Any, ...]]) -> list[Any]:
        return [DeferredCall(function, arguments) for arguments in calls]

    def as_completed(self, handles: Sequence[Any]) -> Iterator[int]:
        for place, handle in enumerate(handles):
            handle.result()
            yield place

    def gather(self, handles: Sequence[Any]) -> list[Any]:
        return [handle.result() for handle in handles]

    def cancel(self, handles: Sequence[Any]) -> None:
        pass


class DaskBackend:
    """Runs calls on a Dask cluster."""

    def __init__(self, client: Any) -> None:
        self._client = client

    def submit(self, function: Callable[..., Any], calls: Sequence[tuple[Any, ...]]) -> list[Any]:
        from distributed import Future

        if not any(hasattr(argument, "dask") for call in calls for argument in call):
            return [self._client.submit(function, *arguments, pure=False) for arguments in calls]
        from dask.delayed import delayed

        def task(arguments: tuple[Any, ...]) -> Any:
            """Return a delayed call that binds the arguments before the first one that Dask has to compute."""
            computed = [place for place, one in enumerate(arguments) if hasattr(one, "dask") or isinstance(one, Future)]
            first = computed[0] if computed else len(arguments)
            return delayed(partial(function, *arguments[:first]), pure=False)(*arguments[first:])

        futures: list[Any] = self._client.compute([task(arguments) for arguments in calls])
        return futures

    def as_completed(self, handles: Sequence[Any]) -> Iterator[int]:
        """Yield positions in the order of completion; raise the error of a task, or if no workers are left."""
        done: queue.SimpleQueue[int] = queue.SimpleQueue()

        def wait_for(place: int) -> None:
            handles[place].add_done_callback(lambda _: done.put(place))

        for place in range(len(handles)):
            wait_for(place)
        without_workers, missing = None, len(handles)
        while missing:
            try:
                place = done.get(timeout=1.0)
            except queue.Empty:
                without_workers = self._require_workers(without_workers)
                continue
            status = handles[place].status
            if status == "finished":
                missing -= 1
                yield place
            elif status in ("pending", "lost"):  # its worker died after it had finished: Dask computes it again
                wait_for(place)
            else:
                self._raise_error_of(handles[place])

    def gather(self, handles: Sequence[Any]) -> list[Any]:
        for _ in self.as_completed(handles):
            pass
        from distributed import CancelledError

        try:
            results: list[Any] = self._client.gather(list(handles))
        except (CancelledError, TimeoutError, OSError) as error:
            raise _cluster_lost(error) from None
        return results

    def cancel(self, handles: Sequence[Any]) -> None:
        if self._client.status == "running":
            self._client.cancel(list(handles))

    def _require_workers(self, since: float | None) -> float | None:
        """Raise if the scheduler is lost, or without workers for long; return since when there are none."""
        if self._client.status != "running":
            raise _cluster_lost(self._client.status)
        try:
            workers = self._client.nthreads()
        except (OSError, TimeoutError) as error:
            raise _cluster_lost(error) from None
        if workers:
            return None
        if since is not None and time.monotonic() - since > WORKER_TIMEOUT:
            raise ClusterError(
                f"The cluster has had no workers for {WORKER_TIMEOUT:.0f} s.",
                "Start workers and run again: with a folder, the run continues from the checkpoints.",
            )
        return since if since is not None else time.monotonic()

    def _raise_error_of(self, handle: Any) -> None:
        """Raise the error of a failed task; errors of the cluster become a `ClusterError`."""
        from distributed import CancelledError
        from distributed.scheduler import KilledWorker

        try:
            handle.result(timeout=CONNECT_TIMEOUT)
        except KilledWorker as error:
            raise ClusterError(
                f"Several workers died while running the same task: {error}.",
                "The task may need more memory than a worker has: give workers more memory, or keep fewer draws.",
            ) from None
        except (CancelledError, TimeoutError) as error:
            raise _cluster_lost(error) from None
        except ModuleNotFoundError as error:
            raise ClusterError(f"The workers cannot import {error.name}.", "Install it where they run.") from None
        raise _cluster_lost(handle.status)


def _cluster_lost(reason: object) -> ClusterError:
    return ClusterError(f"The connection to the cluster or its tasks were lost ({reason}).", _CONTINUE)


@contextmanager
def connect(client: Any, workers: int | None, tell: Callable[[str], None] | None = None) -> Iterator[ParallelBackend]:
    """Open a backend: this process (no workers), the cluster of a client or at an address, or local processes.

    Without ``client``, that of this process is used, or else local processes, which end with the context. ``tell`` is
    called with the address of the Dask dashboard.

    Yields
    ------
    ParallelBackend
        The backend; local processes end with the context.
    """
    if workers == 0 and client is None:
        yield SerialBackend()
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
            raise ClusterError(
                "The client is not connected to a cluster.", "Connect it, or pass the address of a scheduler."
            )
        yield DaskBackend(_with_workers(client, tell))
    elif client is not None:
        from distributed.comm import resolve_address

        try:
            resolve_address(client)  # a client that fails with a wrong address waits for a minute when it is deleted
            own = Client(client, timeout=CONNECT_TIMEOUT, set_as_default=False)
        except (OSError, TimeoutError, ValueError) as error:
            raise ClusterError(
                f"No Dask scheduler answers at {client}: {error}.", "Check the address: tcp://HOST:PORT."
            ) from None
        with own:
            yield DaskBackend(_with_workers(own, tell))
    else:
        if isinstance(workers, bool) or not isinstance(workers, int) or workers < 0:
            raise InputError(f"workers must be a whole number of at least 0, got {workers!r}.")
        require_main_guard("use workers=0")
        with local_client(workers) as own:
            yield DaskBackend(_with_workers(own, tell))


@contextmanager
def local_client(workers: int, **options: Any) -> Iterator[Any]:
    """Start local processes with one thread each, and yield their Dask client."""
    import dask
    from distributed import Client, LocalCluster

    # By default a Dask worker returns freed memory at once, and each block of draws then causes one page fault per
    # page: a third more time for short leaves. Here up to 64 MB are kept for the next block. Dask's profiler samples
    # every task a hundred times per second, at 7 % of the time; other timers use another 8 % of a core.
    memory = {f"MALLOC_{name}_THRESHOLD_": 1 << 26 for name in ("TRIM", "MMAP")}
    environment = dict(dask.config.get("distributed.nanny.pre-spawn-environ", default={}))
    settings = {
        "distributed.nanny.pre-spawn-environ": {**environment, **memory},
        "distributed.worker.profile.enabled": False,
        "distributed.admin.tick.interval": "500ms",
        "distributed.admin.system-monitor.interval": "2s",
        "distributed.admin.system-monitor.gil.enabled": False,
        "distributed.worker.memory.monitor-interval": "500ms",
    }
    with dask.config.set(settings), ExitStack() as stack:
        with sigint_blocked():  # only this process handles Ctrl-C, and ends the others
            cluster = LocalCluster(
                n_workers=workers,
                threads_per_worker=1,
                silence_logs=logging.CRITICAL,  # errors of tasks are raised here
                **{"dashboard_address": "127.0.0.1:0", **options},
            )
            stack.enter_context(cluster)
        yield stack.enter_context(Client(cluster, set_as_default=False))


def _with_workers(client: Any, tell: Callable[[str], None] | None) -> Any:
    try:
        client.wait_for_workers(1, timeout=WORKER_TIMEOUT)
    except TimeoutError:
        raise ClusterError(f"The cluster has no workers after {WORKER_TIMEOUT:.0f} s.", "Start some.") from None
    if tell is not None:
        tell(str(client.dashboard_link))
    return client
