"""``python -m steinstream`` is ``steinstream``."""

import os
import signal
import sys
from types import FrameType


def run() -> None:
    """Run the command line. Ctrl-C prints no traceback, also during the imports before it and the clean-up after it."""
    interruptible = signal.getsignal(signal.SIGINT) is signal.default_int_handler  # not in the background of a shell
    if interruptible:
        signal.signal(signal.SIGINT, _stop)
    from steinstream.cli import main
    from steinstream.cli.crash import reported_crashes

    with reported_crashes(sys.argv[1:]):
        try:
            try:
                if interruptible:
                    signal.signal(signal.SIGINT, signal.default_int_handler)
                main()
            finally:
                if interruptible:
                    signal.signal(signal.SIGINT, _stop)
        except KeyboardInterrupt:  # just before or after the lines of main that catch it
            _stop(signal.SIGINT, None)


def _stop(number: int, frame: FrameType | None) -> None:
    os.write(2, b"stopped\n")
    os._exit(130)


if __name__ == "__main__":  # a process that a worker starts imports this file too
    run()
