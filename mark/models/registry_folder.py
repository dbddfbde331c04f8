"""A registry's objects in a local folder, which several processes may use at the same time."""

from __future__ import annotations

import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

from mark.domain.errors import BadInput
from mark.models.registry import ObjectStore

_UNFINISHED = ".unfinished"  # where objects are written before they get their key


class FolderObjects:
    """The port ObjectStore. The first `create` makes the folder; its file system must support hard links.

    An object is written to a temporary file, synced to the disk, and then linked to its key, because making a link is
    atomic and fails if the key exists. Unfinished files of a process are not visible, and may be removed while no
    process is writing.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder.absolute()

    def read(self, key: str) -> bytes | None:
        try:
            return self._path(key).read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise self._unusable(error) from error

    def fetch(self, key: str, to: Path) -> bool:
        try:
            shutil.copyfile(self._path(key), to)
        except FileNotFoundError:
            return False
        except OSError as error:
            raise self._unusable(error) from error
        return True

    def create(self, key: str, content: bytes | Path) -> bool:
        path = self._path(key)
        try:
            if path.exists():
                self._force(path.parent)  # the process that linked it may not have synced the folder yet
                return False
            unfinished = self._folder / _UNFINISHED
            for folder in (unfinished, path.parent):
                folder.mkdir(parents=True, exist_ok=True)
            descriptor, name = tempfile.mkstemp(dir=unfinished)
            try:
                with open(descriptor, "wb") as file:
                    if isinstance(content, bytes):
                        file.write(content)
                    else:
                        with content.open("rb") as source:
                            shutil.copyfileobj(source, file)
                    file.flush()
                    os.fchmod(descriptor, 0o444)
                    os.fsync(descriptor)
                try:
                    os.link(name, path)
                except FileExistsError:
                    return False
                finally:
                    self._force(path.parent)  # sync another writer's link too, because we report that it exists
            finally:
                os.unlink(name)
        except OSError as error:
            raise self._unusable(error) from error
        return True

    def keys(self, prefix: str) -> list[str]:
        above, slash, _ = prefix.rpartition("/")
        return sorted(self._below(above + slash, prefix))

    def _below(self, above: str, prefix: str) -> Iterator[str]:
        """Yield the keys that begin with `prefix` in the folder `above`, which ends with a slash.

        pathlib's glob is not used because it skips unreadable folders: the registry would look empty.
        """
        try:
            with os.scandir(self._path(above)) as entries:
                names = [entry.name for entry in entries]
        except FileNotFoundError:  # no object was created below it yet
            return
        except OSError as error:
            raise self._unreadable(self._path(above), error) from error
        for key in (above + name for name in names if above or name != _UNFINISHED):
            if not key.startswith(prefix):
                continue
            try:
                mode = self._path(key).stat().st_mode
            except OSError as error:
                raise self._unreadable(self._path(key), error) from error
            if stat.S_ISDIR(mode):
                yield from self._below(f"{key}/", prefix)
            elif stat.S_ISREG(mode):
                yield key

    def _force(self, folder: Path) -> None:
        """Sync the entries of the folder and of the folders above, which may be new too."""
        while True:
            descriptor = os.open(folder, os.O_RDONLY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
            if folder == self._folder:
                return
            folder = folder.parent

    def _path(self, key: str) -> Path:
        return self._folder / key

    def _unreadable(self, path: Path, error: OSError) -> BadInput:
        return BadInput(f"cannot be read ({error.strerror})", "registry", str(path))

    def _unusable(self, error: OSError) -> BadInput:
        return BadInput(f"cannot be used ({error.strerror})", "registry", str(self._folder))


_: type[ObjectStore] = FolderObjects
