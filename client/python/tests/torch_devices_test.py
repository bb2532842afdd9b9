"""The GPU of a process group, and work on its streams. PyTorch's CUDA is stood in for."""

import contextlib
import datetime
import types

import pytest

torch = pytest.importorskip('torch', reason='PyTorch is not installed for this Python')
dist = torch.distributed

import cohort.torch  # pylint: disable=wrong-import-position
from cohort.torch import backend, process_group  # pylint: disable=wrong-import-position
from cohort.torch.work import AllOf, StreamWork  # pylint: disable=wrong-import-position


@pytest.fixture(name='cuda')
def _cuda(monkeypatch):
    """A machine with GPUs. `used` says whether the program has used them."""
    state = types.SimpleNamespace(used=False, stream=Stream('default'))
    monkeypatch.setattr(torch.cuda, 'is_available', lambda: True)
    monkeypatch.setattr(torch.cuda, 'is_initialized', lambda: state.used)

    def current_device():
        state.used = True
        return 3

    @contextlib.contextmanager
    def stream(chosen):
        before, state.stream = state.stream, chosen
        yield
        state.stream = before
    monkeypatch.setattr(torch.cuda, 'current_device', current_device)
    monkeypatch.setattr(torch.cuda, 'current_stream', lambda device=None: state.stream)
    monkeypatch.setattr(torch.cuda, 'stream', stream)
    return state


class Stream:
    """A stream that notes for which events it waits."""

    def __init__(self, name):
        self.name = name
        self.awaited = []
        self.done = False

    def record_event(self):
        return types.SimpleNamespace(stream=self, query=lambda: self.done)

    def wait_event(self, event):
        self.awaited.append(event.stream.name)


def test_a_program_that_has_not_used_its_gpu_does_not_use_it_for_a_group(cuda):
    assert backend.device_of(cohort.torch.Options(), None) is None
    assert not cuda.used
    cuda.used = True
    assert backend.device_of(cohort.torch.Options(), None) == 3


def test_the_options_come_before_the_bound_device_and_that_before_the_current_one(cuda):
    cuda.used = True
    bound = torch.device('cuda', 1)
    assert backend.device_of(cohort.torch.Options(), bound) == 1
    assert backend.device_of(cohort.torch.Options(device='cpu'), bound) == 'cpu'
    assert backend.device_of(cohort.torch.Options(device=2), bound) == 2


@pytest.mark.parametrize('of_default_group', [False, True])
def test_device_id_of_pytorch_reaches_the_group(monkeypatch, of_default_group):
    """PyTorch's helper has the device in a local variable while it calls the backend."""
    asked = []

    class Made:
        """Takes the place of the ProcessGroup."""

        def __init__(self, *arguments):
            self.cohort_group = types.SimpleNamespace(device='cuda:1')

    def connect(*arguments):
        asked.append(arguments[-1])
        return ()
    monkeypatch.setattr(backend, 'connect', connect)
    monkeypatch.setattr(backend, 'ProcessGroup', Made)
    given = types.SimpleNamespace(
        store=None, group_rank=0, group_size=1, timeout=datetime.timedelta(seconds=1), group_id='0',
        global_ranks_in_group=[])
    device_id = None if of_default_group else torch.device('cuda', 1)
    if of_default_group:
        monkeypatch.setattr(backend, '_bound_device_of_default_group',
                            lambda: torch.device('cuda', 1))
    made = backend.create(given, None)
    assert device_id in (None, made.bound_device_id)
    assert asked == [torch.device('cuda', 1)] == [made.bound_device_id]


def test_pytorch_has_the_name_device_id():
    helper = dist.distributed_c10d._new_process_group_helper  # pylint: disable=protected-access
    assert 'device_id' in helper.__code__.co_varnames


def test_wait_makes_the_waiting_stream_wait_and_keeps_tensors_until_then(cuda):
    cuda.stream = side = Stream('side')
    kept = torch.ones(1)
    work = StreamWork([torch.ones(1)], torch.device('cuda', 0), [kept])
    cuda.stream = Stream('main')
    assert not work.is_completed() and work._keep  # pylint: disable=protected-access
    assert work.wait()
    assert cuda.stream.awaited == ['side']
    assert work._keep is None  # pylint: disable=protected-access
    side.done = True
    assert work.is_completed() and work.is_success()
    both = AllOf([work, StreamWork([], torch.device('cuda', 0))])
    both.wait(datetime.timedelta(seconds=1))
    assert cuda.stream.awaited == ['side', 'side', 'main']


class Group(process_group.ProcessGroup):
    """A process group whose exchange is noted."""

    def __init__(self):  # pylint: disable=super-init-not-called
        dist.ProcessGroup.__init__(self, 0, 2)
        self.exchanges = []
        self.cohort_group = types.SimpleNamespace(
            exchange=lambda sends, receives, timeout: self.exchanges.append(
                ([peer for _, peer in sends], [peer for _, peer in receives])))
        self._calls = types.SimpleNamespace(busy=0, settle=lambda: None)
        self._size, self._coalesced, self._collected, self._seconds = 2, None, [], 9


class OnGpu:
    """A tensor that says that it is on a GPU."""
    is_cuda, device, dtype, requires_grad = True, torch.device('cuda', 0), torch.float32, False

    def detach(self):
        return self


def test_messages_of_a_batch_are_one_exchange(cuda, monkeypatch):
    monkeypatch.setattr(process_group, 'movable', lambda tensor: tensor)
    group = Group()
    group._start_coalescing(torch.device('cuda', 0))  # pylint: disable=protected-access
    group.send([OnGpu()], 1)
    group.recv([OnGpu()], 1)
    assert not group.exchanges
    work = group._end_coalescing(torch.device('cuda', 0))  # pylint: disable=protected-access
    assert group.exchanges == [([1], [1])]
    assert work.wait() and cuda.stream.awaited == ['default']
    group.batch_isend_irecv([
        types.SimpleNamespace(tensor=OnGpu(), op=op, group_peer=1, tag=0)
        for op in (dist.isend, dist.irecv, dist.irecv)])
    assert group.exchanges[1:] == [([1], [1, 1])]
