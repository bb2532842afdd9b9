"""The facts of a membership, of `Group`, `ProcessGroup` and their forms for asyncio."""

from typing import Any, ClassVar, Optional

from cohort.errors import Error


class Facts:
    """The facts of a membership. They may change with the generation, and stay readable when the
    object is closed: they are then those of its end."""

    _core: Any
    _class_name: ClassVar[str]
    # The name first, and at the end rank, size and generation.
    _last_facts: Optional[tuple] = None
    _closed = False

    def _facts(self) -> tuple:
        if self._last_facts is not None:
            return self._last_facts
        try:
            return self._core.facts()
        except Error:
            if self._last_facts is None:  # another thread may have closed it
                raise
            return self._last_facts

    def _keep_facts(self) -> None:
        """Before the object of the extension module is released."""
        if not self._closed:
            try:
                self._last_facts = self._core.facts()
            except Error:
                pass  # it was closed in another way
            self._closed = True

    @property
    def name(self) -> str:
        """The group's name."""
        return self._facts()[0]

    @property
    def rank(self) -> int:
        """This process's rank, 0..size-1."""
        return self._facts()[-3]

    @property
    def size(self) -> int:
        """How many ranks the generation has."""
        return self._facts()[-2]

    @property
    def world_size(self) -> int:
        """As `size`: the name of the constructor's argument and of torch.distributed."""
        return self._facts()[-2]

    @property
    def generation(self) -> int:
        """The number of the generation."""
        return self._facts()[-1]

    @property
    def closed(self) -> bool:
        """Whether `close` was called. Its facts stay readable."""
        return self._closed

    def __repr__(self) -> str:
        try:
            facts = self._facts()
        except (Error, AttributeError, RuntimeError):
            return f'<{self._class_name}, {"closed" if self._closed else "not joined"}>'
        return (f'<{self._class_name} {facts[0]!r}: rank {facts[-3]} of {facts[-2]}, generation '
                f'{facts[-1]}, {"closed" if self._closed else "open"}>')
