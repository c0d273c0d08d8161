"""SIGINT while processes start: it is deferred, not lost, and the processes never receive it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading

import pytest

from steinstream._processes import sigint_blocked

pytestmark = pytest.mark.skipif(not hasattr(signal, "pthread_sigmask"), reason="POSIX")


@pytest.mark.parametrize("by_another_thread", [False, True])
def test_an_interrupt_is_raised_at_the_end_of_the_block(by_another_thread):
    inside, done = threading.Event(), threading.Event()

    def interrupt():
        inside.wait()
        signal.pthread_kill(threading.get_ident(), signal.SIGINT)
        done.set()

    thread, finished = threading.Thread(target=interrupt), []
    thread.start()
    with pytest.raises(KeyboardInterrupt), sigint_blocked():
        if not by_another_thread:
            os.kill(os.getpid(), signal.SIGINT)
        inside.set()
        done.wait()
        finished.append(True)
    thread.join()
    assert finished and signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_process_of_the_block_does_not_receive_an_interrupt():
    program = "import os, signal; os.kill(os.getpid(), signal.SIGINT); print('alive')"
    with sigint_blocked():
        ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert ran.stdout == "alive\n" and signal.SIGINT not in signal.pthread_sigmask(signal.SIG_BLOCK, [])


def test_an_interrupt_while_local_workers_start_ends_them(monkeypatch):
    distributed = pytest.importorskip("distributed")
    from steinstream.parallel.backends import local_client

    started, real = [], distributed.LocalCluster

    def start(*arguments, **options):
        os.kill(os.getpid(), signal.SIGINT)
        started.append(real(*arguments, **options))
        return started[0]

    monkeypatch.setattr(distributed, "LocalCluster", start)
    with pytest.raises(KeyboardInterrupt), local_client(1):
        pass
    assert started[0].status.name == "closed"
