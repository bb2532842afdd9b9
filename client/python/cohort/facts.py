"""The facts of a membership in a process group."""

from typing import Any


class Facts:
    """The facts of `ProcessGroup` and `aio.ProcessGroup`. They may change with the generation."""

    _core: Any

    @property
    def name(self) -> str:
        """The group's name."""
        return self._core.facts()[0]

    @property
    def member(self) -> str:
        """This member's name."""
        return self._core.facts()[1]

    @property
    def rank(self) -> int:
        """This member's rank, 0..size-1."""
        return self._core.facts()[2]

    @property
    def size(self) -> int:
        """How many members the generation has."""
        return self._core.facts()[3]

    @property
    def generation(self) -> int:
        """The number of the generation."""
        return self._core.facts()[4]
