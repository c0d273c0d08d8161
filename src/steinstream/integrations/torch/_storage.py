"""Storage of the tensors of kept draws: in memory, or in safetensors files."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from steinstream._typing import Id
from steinstream.draw_store import DrawStore
from steinstream.errors import InputError
from steinstream.integrations._common import need
from steinstream.integrations.torch._weights import Tensors


class MemoryStorage:
    """Tensors of the kept draws in memory."""

    sync = False
    open = True

    def __init__(self) -> None:
        self._tensors: dict[Id, Tensors] = {}

    def ids(self) -> list[Id]:
        """Return the stored draws."""
        return sorted(self._tensors)

    def commit(self, added: Mapping[Id, Tensors], dropped: Iterable[Id], checkpoint: Callable[[], object]) -> None:
        """Store some draws, call ``checkpoint``, and delete others."""
        self._tensors |= added
        checkpoint()
        for id in dropped:
            del self._tensors[id]

    def reconcile(self, kept: Iterable[Id]) -> None:
        """Do nothing: memory does not outlive a run."""

    def read(self, id: Id, name: str) -> Any:
        """Return one tensor of a draw."""
        return self._tensors[id][name]

    def read_all(self, id: Id) -> Tensors:
        return self._tensors[id]

    def close(self) -> None:
        """Do nothing."""


class FileStorage:
    """Tensors of the kept draws in one safetensors file per draw."""

    def __init__(self, folder: Path, sync: bool) -> None:
        self._torch = need("safetensors.torch", "torch")
        self.sync = sync
        self._files = DrawStore(folder / "draws", suffix=".safetensors", sync=sync)

    def ids(self) -> list[Id]:
        """Return the stored draws."""
        return self._files.ids()

    def commit(self, added: Mapping[Id, Tensors], dropped: Iterable[Id], checkpoint: Callable[[], object]) -> None:
        """Store some draws, call ``checkpoint``, and delete others."""
        writers = {id: self._writer(tensors) for id, tensors in added.items()}
        self._files.commit(writers, dropped, checkpoint)

    @property
    def open(self) -> bool:
        """Whether further draws can be stored."""
        return self._files.open

    def _writer(self, tensors: Tensors) -> Callable[[Path], object]:
        # Serialised in memory first, so that an error of the disk is reported by this package.
        return lambda path: path.write_bytes(self._torch.save(tensors))

    def reconcile(self, kept: Iterable[Id]) -> None:
        """Delete the files of all draws that are not kept."""
        self._files.reconcile(kept)

    def read(self, id: Id, name: str) -> Any:
        """Return one tensor of a draw."""
        with need("safetensors", "torch").safe_open(str(self._files.path(id)), "pt") as file:
            if name not in file.keys():  # noqa: SIM118 (the file is not a container)
                raise InputError(
                    f"{self._files.path(id)} has no tensor {name}.",
                    "The run was started without predict: leave it out.",
                )
            return file.get_tensor(name)

    def read_all(self, id: Id) -> Tensors:
        tensors: Tensors = self._torch.load_file(str(self._files.path(id)))
        return tensors

    def close(self) -> None:
        """Release the folder."""
        with suppress(OSError):
            self._files.close()
