"""Objects of Python as the bytes that travel between the ranks of a group.

Bytes travel as they are, so that ranks of C++ read and send them. Other values travel as a mark and
the bytes of `cohort.values`. Bytes that begin with the mark travel as such a value, too. A rank
that cannot take part sends a refusal in place of its object, for which other ranks wait.
"""

import re
from contextlib import suppress
from operator import index
from typing import Any, Sequence, Tuple, Union

from cohort.errors import InvalidArgument
from cohort.timeouts import Timeout, seconds

BytesLike = Union[bytes, bytearray, memoryview]

_VALUE = b'\xc0\x8f\xffcohort value\0'
_REFUSAL = b'\xc0\x8f\xffcohort error\0'
_MARKS = (_VALUE, _REFUSAL)


def _is_marked(view: memoryview) -> bool:
    return (view.nbytes >= len(_VALUE)
            and bytes(view.cast('B')[:len(_VALUE)]).startswith(_MARKS))


def _contiguous(buffer: Any) -> BytesLike:
    view = memoryview(buffer)
    return view if view.c_contiguous else view.tobytes()


def pack(obj: Any, pickle: bool = False) -> BytesLike:
    """Returns the bytes of an object. Raises TypeError if `cohort.values` does not take it."""
    if isinstance(obj, (bytes, bytearray, memoryview)):
        view = _contiguous(obj)
        if not _is_marked(memoryview(view)):
            return view
        obj = bytes(view)
    from cohort import values  # pylint: disable=import-outside-toplevel  # loads json
    try:
        return _VALUE + values.encode(obj, allow_pickle=pickle)
    except TypeError as error:
        try:
            # The bytes of an array of numpy do not say what its elements are.
            if not hasattr(obj, '__array_interface__'):
                return _contiguous(obj)  # such as array.array
        except TypeError:
            pass
        raise TypeError(str(error).replace('allow_pickle', 'pickle=True')) from None


def pack_or_refuse(obj: Any, pickle: bool = False) -> BytesLike:
    """As `pack`, for a call for which other ranks wait: a refusal, which all ranks that get it
    raise, this one included."""
    try:
        return pack(obj, pickle)
    except Exception as error:  # pylint: disable=broad-exception-caught  # of the object's pickling
        is_known = isinstance(error, (TypeError, ValueError))
        return refusal(f'{error}' if is_known else f'{type(error).__name__}: {error}')


def refusal(text: str) -> bytes:
    """Returns what a rank that cannot take part sends."""
    return _REFUSAL + text.encode(errors='replace')


class Turn:
    """The turn of this rank in a call for which other ranks wait. With a wrong argument the rank
    brings a refusal, and the statement ends with its error:

        timeout, turn = check_round(group, "all_gather", timeout)
        with turn:
            objects = core.all_gather(turn.refusal or data, timeout)
    """

    def __init__(self, group: Any = None, operation: str = '', wrong: str = ''):
        self.refusal = refusal(wrong) if wrong else b''
        self._error = wrong and f'{operation} in group {group.name}: rank {group.rank}: {wrong}'

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        if self._error and (error is None or isinstance(error, Exception)):
            raise InvalidArgument(self._error) from None


_RIGHT = Turn()
_ALL = ()  # the one empty tuple: all ranks
_NAME = re.compile(r'[A-Za-z0-9._:/@+-]{0,128}')


# `root` in proto/cohort/v1/messaging.proto.
_NO_NUMBER = -1 << 31


def check_root(group: Any, operation: str, root: Any, timeout: Timeout
               ) -> Tuple[int, Timeout, Turn]:
    """As check_round, for a call with a root, which it returns first. The extension module refuses
    a number that is no rank, on all ranks."""
    timeout, turn = check_round(group, operation, timeout)
    with suppress(Exception):  # of its __index__
        number = index(root)
        if abs(number) < 1 << 31:
            return number, timeout, turn
    return _NO_NUMBER, timeout, turn if turn.refusal else Turn(
        group, operation, f'root: expected a rank, got {shown(root)}')


def check_round(group: Any, operation: str, timeout: Timeout) -> Tuple[Timeout, Turn]:
    """Checks the timeout of a call for which other ranks wait."""
    wrong = wrong_timeout(timeout)
    return (None, Turn(group, operation, wrong)) if wrong else (timeout, _RIGHT)


def wrong_timeout(timeout: Any) -> str:
    """Returns the fault of a timeout, or an empty text. Like the other checks of a round, it raises
    nothing, whatever the argument's own methods do: the rank has to take its turn."""
    try:
        limit = seconds(timeout, 0)
        if limit >= 0:
            float(limit)
            return ''
        return f'timeout: expected a number of seconds, at least 0, got {shown(timeout)}'
    except Exception:  # pylint: disable=broad-exception-caught
        return f'timeout: expected a number of seconds or a timedelta, got {shown(timeout)}'


def shown(value: Any) -> str:
    """Returns a value as errors show it."""
    try:
        return repr(value)[:200]
    except Exception:  # pylint: disable=broad-exception-caught
        return f'an object of {type(value).__name__}'


class WrongRound(Exception):
    """A call of a round that this rank cannot make. It takes its turn in the rounds of `name`."""

    def __init__(self, group: Any, operation: str, wrong: str, name: str):
        super().__init__(wrong)
        self.turn = name, f'{operation}: {wrong}'
        self.error = InvalidArgument(
            f'{operation} in group {group.name}: rank {group.rank}: {wrong}')


def check_members(group: Any, operation: str, name: Any, participants: Any, wrong: str = ''
                  ) -> Sequence[int]:
    """Checks which round a call takes part in. Returns the participants, or raises WrongRound.
    `wrong`: the fault of another argument. A wrong name counts as the default one, because that of
    the other ranks is not known."""
    text = name.decode('ascii', 'replace') if isinstance(name, bytes) else name
    if not isinstance(text, str) or not _NAME.fullmatch(text):
        raise WrongRound(group, operation, 'name: expected at most 128 characters of '
                         f'A-Za-z0-9._:/@+-, got {shown(name)}', '')
    ranks: Sequence[int] = ()
    if participants is not _ALL and not wrong:
        try:
            ranks = [index(rank) for rank in participants]
        except Exception:  # pylint: disable=broad-exception-caught
            wrong = 'expected a sequence of ranks'
        else:
            wrong = _wrong_ranks(group, ranks)
        wrong = wrong and f'participants: {shown(participants)}: {wrong}'
    if wrong:
        raise WrongRound(group, operation, wrong, text)
    return ranks


def _wrong_ranks(group: Any, ranks: Sequence[int]) -> str:
    if len(set(ranks)) < len(ranks):
        return 'a rank comes twice'
    if ranks and (min(ranks) < 0 or max(ranks) >= group.size):
        return f'ranks are 0..{group.size - 1}'
    return '' if group.rank in ranks or not ranks else 'this rank is not among them'


def pack_all(objects: Any, pickle: bool) -> Any:
    """Returns the bytes, or the refusals, of a sequence of objects; else the object as it is, such
    as a str."""
    with suppress(Exception):  # of its iterator
        if not isinstance(objects, (str, bytes)):
            return [pack_or_refuse(obj, pickle) for obj in objects]
    return objects


def wrong_objects(each: Any) -> str:
    """Returns the fault of a result of `pack_all`, or an empty text."""
    return '' if isinstance(each, list) else (
        f'objs: expected a sequence of objects, got {shown(each)}')


def unpack(group: Any, operation: str, data: bytes, source: int, pickle: bool) -> Any:
    """Returns the object of the bytes that rank `source` sent. `group` and `operation` are for
    errors.

    Raises:
      InvalidArgument: the rank refused, or its object is pickled and `pickle` is false.
    """
    try:
        return _decode(data, pickle)
    except ValueError as error:
        text = str(error).replace('allow_pickle is off', 'pass pickle=True if you trust its rank')
        raise InvalidArgument(
            f'{operation} in group {group.name}: the object of rank {source}: {text}',
            culprit=source, operation=operation) from None


def unpack_of_queue(queue: Any, operation: str, data: bytes, pickle: bool) -> Any:
    """Returns the object of a value of a queue. Raises InvalidArgument as `unpack` does."""
    try:
        return _decode(data, pickle)
    except ValueError as error:
        text = str(error).replace('allow_pickle is off', 'pass pickle=True if you trust the writer')
        raise InvalidArgument(f'{queue.name}: {operation}: {text}', operation=operation) from None


def _decode(data: bytes, pickle: bool) -> Any:
    if not data.startswith(_MARKS):
        return data
    from cohort import values  # pylint: disable=import-outside-toplevel  # loads json
    if data.startswith(_REFUSAL):
        raise ValueError(data[len(_REFUSAL):].decode(errors='replace'))
    return values.decode(memoryview(data)[len(_VALUE):], allow_pickle=pickle)


def raise_refusal(group: Any, operation: str, data: BytesLike, rank: int) -> None:
    """Raises the refusal of this rank, `rank`, if `data` is one."""
    if isinstance(data, bytes) and data.startswith(_REFUSAL):
        unpack(group, operation, data, rank, False)


def unpack_all(group: Any, operation: str, objects: Sequence[bytes], pickle: bool,
               participants: Sequence[int] = ()) -> list:
    """Returns the objects of all participants, by rank; without `participants`, of all ranks."""
    ranks = sorted(participants) or range(len(objects))
    return [unpack(group, operation, data, rank, pickle) for rank, data in zip(ranks, objects)]
