"""Seed what measured code draws from. Loaded by every measured process, so it imports next to nothing."""

from __future__ import annotations

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


class Seeds:
    """Seeds the generators, each once: those that are loaded now, and the others when they are imported.

    Importing them here would cost every worker. What is imported later is met as a finder of modules, which
    finds nothing itself; `close` takes it away.
    """

    def __init__(self, seed: int) -> None:
        small = seed % 2**32
        self.left = {
            "random": ("seed", small),
            "numpy.random": ("seed", small),
            "cupy.random": ("seed", small),
            "torch": ("manual_seed", small),
        }
        self._looking = False

    def watch(self) -> None:
        """Seed also what is imported from now on, at once."""
        sys.meta_path.insert(0, self)

    def sow(self) -> None:
        """Seed what is loaded and was not seeded yet."""
        for name in self.left.keys() & sys.modules.keys():
            self._seed(name, sys.modules[name])

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        """What the other finders find, with a generator's seeding behind its import."""
        if name not in self.left or self._looking:
            return None
        others = [each for each in sys.meta_path if each is not self]
        self._looking = True  # another finder may ask all finders, us among them
        try:
            spec = next((found for each in others if (found := each.find_spec(name, path, target))), None)
        finally:
            self._looking = False
        loader: Any = spec.loader if spec else None
        if hasattr(loader, "__dict__") and hasattr(loader, "exec_module") and not isinstance(loader, type):
            run = loader.exec_module

            def exec_module(module: Any) -> None:
                vars(loader).pop("exec_module", None)
                run(module)
                self._seed(name, module)

            loader.exec_module = exec_module
        return spec

    def _seed(self, name: str, module: Any) -> None:
        give, seed = self.left.pop(name, ("", 0))
        seeding = getattr(module, give, None) if give else None
        if seeding is not None:
            seeding(seed)

    def close(self) -> None:
        """Let later imports be."""
        if self in sys.meta_path:
            sys.meta_path.remove(self)
