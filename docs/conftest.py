"""Pages whose code needs a tool that is not there are left out."""

from importlib.util import find_spec

collect_ignore = [] if find_spec("torch") and find_spec("safetensors") else ["networks.md"]
