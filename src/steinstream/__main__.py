"""``python -m steinstream`` is ``steinstream``."""

from steinstream.cli import main

main()
