"""``python -m steinstream`` is ``steinstream``."""

from steinstream.cli import main

if __name__ == "__main__":  # a process that a worker starts imports this file too
    main()
