"""cohort.vllm without vLLM: weights from a trainer to engines, and the functions of the plug-in. One
file, though long: its tests share the weights and a trainer."""

import concurrent.futures
import configparser
import importlib
import os
import threading

import pytest

import cohort
from cohort.vllm import plugins
from testing.coordinator import LONG, eventually, rank_process, run_ranks
from testing.fixtures import address_fixture, groups_fixture, joined_groups, run

torch = pytest.importorskip('torch', reason='PyTorch is not installed for this Python')
# pylint: disable=wrong-import-position
from cohort.vllm.late_engines import LateEngines, fetch  # noqa: E402
from cohort.vllm.update_decisions import UpdateDecisions  # noqa: E402
from cohort.vllm.weight_broadcast import Receiver, Sender  # noqa: E402

RANKS = 3
PART_BYTES = 300

_address = address_fixture()
_groups = groups_fixture('weights', RANKS)


def weights(seed):
    """Tensors of several types and shapes. One is larger than a part, and one has strides."""
    generator = torch.Generator().manual_seed(seed)  # ranks are threads

    def random(*shape):
        return torch.randn(shape, generator=generator)
    return [('matrix', random(5, 7).t()), ('half', random(33).to(torch.bfloat16)),
            ('large', random(200)), ('scalar', torch.tensor(seed)), ('empty', random(0, 4)),
            ('bytes', torch.arange(seed, seed + 5, dtype=torch.uint8)),
            ('parameter', torch.nn.Parameter(random(3)))]


def is_equal(found, expected):
    return list(found) == [name for name, _ in expected] and all(
        torch.equal(found[name], tensor) and found[name].dtype == tensor.dtype
        for name, tensor in expected)


def test_all_ranks_receive_the_weights_of_each_version(groups):
    def body(group, rank):
        if rank == 0:
            sender = Sender(group, PART_BYTES)
            for version in range(1, 4):
                sender.copy(str(version), weights(version))
                sender.send(group)
            return sender.bytes
        receiver, kept = Receiver(), []
        for version in range(1, 4):
            found, calls = {}, []
            received = receiver.receive(group, lambda tensors: (
                calls.append(len(tensors)), found.update(tensors)))
            assert received.version == str(version) and received.tensors == len(found) == 7
            assert list(received.checksums) == list(found) and len(calls) > 2
            kept.append(found)
        # Tensors that a model keeps are not overwritten by later versions.
        assert all(is_equal(found, weights(version)) for version, found in enumerate(kept, 1))
        return received.bytes
    assert len(set(run(groups, body))) == 1


@pytest.mark.parametrize('staging_bytes', [None, PART_BYTES])
def test_memory_is_used_again_when_no_tensor_is_on_it(groups, staging_bytes):
    def body(group, rank):
        if rank == 0:
            sender = Sender(group, PART_BYTES, checksums=False)
            sender.copy('1', weights(1))
            for _ in range(3):
                sender.send(group)
            return
        receiver, used = Receiver(staging_bytes=staging_bytes), []
        for _ in range(3):
            places = set()
            assert not receiver.receive(group, lambda tensors: places.update(
                tensor.untyped_storage().data_ptr() for _, tensor in tensors)).checksums
            used.append(places)
        assert used[0] == used[1] == used[2]
        # A larger update than staging_bytes takes one part's memory.
        assert len(used[0]) == 1 if staging_bytes else len(used[0]) > 2
    run(groups, body)


def test_no_rank_loads_an_update_with_a_wrong_checksum(groups):
    def body(group, rank):
        if rank == 0:
            sender = Sender(group, PART_BYTES)
            sender.copy('7', weights(1))
            sender._memory[0][3] ^= 1  # pylint: disable=protected-access
            with pytest.raises(cohort.DataLoss, match='version 7 in group weights: rank 2 got wrong'):
                sender.send(group)
            sender.copy('8', weights(2))
            sender.send(group)
            return
        receiver, found = Receiver(), {}
        with pytest.raises(cohort.DataLoss, match='version 7 in group weights, rank .: wrong '
                                                  'checksums of 1 of 7 tensors: matrix; this rank has '
                                                  'loaded none of it'):
            receiver.receive(group, found.update)
        assert not found
        receiver.receive(group, found.update)
        assert is_equal(found, weights(2))
    run(groups, body)


class Altered:
    """A group whose broadcasts alter the received array."""

    def __init__(self, group):
        self._group = group

    def __getattr__(self, name):
        return getattr(self._group, name)

    def broadcast(self, array, root):
        """Its first byte becomes wrong."""
        self._group.broadcast(array, root)
        array[:1] ^= 1


def test_no_rank_loads_an_update_of_which_one_rank_got_a_wrong_checksum(groups):
    def body(group, rank):
        if rank == 0:
            sender = Sender(group, PART_BYTES)
            sender.copy('7', weights(1))
            with pytest.raises(cohort.DataLoss, match='rank 1 got wrong checksums, so no rank loads'):
                sender.send(group)
            return
        text = 'wrong checksums of . of 7' if rank == 1 else 'rank 1 got wrong checksums; this rank'
        with pytest.raises(cohort.DataLoss, match=text):
            Receiver().receive(Altered(group) if rank == 1 else group, None)
    run(groups, body)


def test_a_rank_that_cannot_load_ends_the_transfer_on_all(address):
    def body(group, rank):
        if rank == 0:
            sender = Sender(group, PART_BYTES)
            sender.copy('1', weights(1))
            sender.send(group)
            group.barrier()
        else:
            def load(_):
                if rank == 2:
                    raise KeyError('matrix')
            Receiver().receive(group, load)
            group.barrier()

    def caught(group, rank):
        with pytest.raises((cohort.Aborted, KeyError)) as error:
            body(group, rank)
        return str(error.value)
    with joined_groups('cannot-load', RANKS, address) as groups:
        errors = run(groups, caught)
    assert errors[2] == "'matrix'"
    assert all('rank 2 could not load weights of version 1' in error for error in errors[:2])


def test_nothing_to_send(groups):
    with pytest.raises(cohort.FailedPrecondition, match='no version has been copied yet'):
        Sender(groups[0], PART_BYTES).send(groups[0])


def test_a_version_of_which_a_part_was_copied_is_not_sent(groups):
    def broken():
        yield from weights(2)[:2]
        raise KeyError('matrix')

    def body(group, rank):
        if rank > 0:
            found = {}
            Receiver().receive(group, found.update)
            assert is_equal(found, weights(3))
            return
        sender = Sender(group, PART_BYTES)
        sender.copy('1', weights(1))
        with pytest.raises(KeyError):
            sender.copy('2', broken())
        assert sender.version is None
        with pytest.raises(cohort.FailedPrecondition):
            sender.send(group)
        sender.copy('3', weights(3))
        sender.send(group)
    run(groups, body)


# --- A trainer that is killed.

# Each line of its input has the value of all weights and a number. A child sends the ten parts, and
# kills itself before the part of this number, or after all ten.
TRAINER = '''
import os, signal, sys
import torch

def send(value, deadly):
    import cohort
    from cohort.vllm.weight_broadcast import Sender

    class Deadly:
        def __init__(self, group):
            self.group, self.parts, self.name = group, 0, group.name
        def __getattr__(self, name):
            return getattr(self.group, name)
        def broadcast(self, *arguments):
            self.parts += 1
            if self.parts == deadly:
                os.kill(os.getpid(), signal.SIGKILL)
            self.group.broadcast(*arguments)

    with cohort.Group('vllm-weights-job', rank=0, world_size=3, address=sys.argv[1],
                      timeout=60) as group:
        sender = Sender(group, 300)
        sender.copy(str(value), [(f'layer.{i}', torch.full((75,), float(value))) for i in range(10)])
        sender.send(Deadly(group))
        if deadly > 10:
            os.kill(os.getpid(), signal.SIGKILL)
        group.barrier()

for line in sys.stdin:
    child = os.fork()
    if child == 0:
        send(*map(int, line.split()))
        os._exit(0)
    os.waitpid(child, 0)
'''


@pytest.fixture(name='trainer')
def _trainer(address):
    """A function that sends weights of this value, and is killed in this part; 0: is not killed."""
    with rank_process(TRAINER, address) as process:
        def send(value, deadly):
            process.stdin.write(f'{value} {deadly}\n')
            process.stdin.flush()
        yield send


def values_of(model):
    return {float(element) for tensor in model.values() for element in tensor}


def receive_from_trainer(address, receiver, rank, model):
    with cohort.Group('vllm-weights-job', rank=rank, world_size=RANKS, address=address,
                      timeout=LONG) as group:
        received = receiver.receive(group, lambda tensors: model.update(
            (name, tensor.clone()) for name, tensor in tensors))
        group.barrier()
        return received


@pytest.fixture(name='receivers')
def _receivers(address):
    with cohort.Store(address) as store:
        yield [Receiver(UpdateDecisions(store, 'job').decide) for _ in range(RANKS - 1)]


def test_engines_keep_the_old_weights_if_the_trainer_is_killed_in_an_update(address, trainer,
                                                                            receivers):
    models = [{} for _ in receivers]

    def update(value, deadly):
        def receive(engine):
            try:
                return receive_from_trainer(address, receivers[engine], engine + 1, models[engine])
            except cohort.Error as error:
                return error
        trainer(value, deadly)
        return run_ranks(len(models), receive)
    assert [each.version for each in update(1, 0)] == ['1', '1']
    for rank, error in enumerate(update(2, 3), 1):
        assert isinstance(error, cohort.Aborted) and error.culprit == 0
        assert (f'version 2 in group vllm-weights-job, rank {rank}: part 3 of 10 did not arrive; this '
                'rank has loaded none of it: ') in str(error)
        assert 'rank 0' in str(error)
    assert [values_of(model) for model in models] == [{1}, {1}]
    # A new trainer, with the same name at once.
    assert [each.version for each in update(3, 0)] == ['3', '3']
    assert [values_of(model) for model in models] == [{3}, {3}]
    # Killed when all may have received it: all ranks have loaded it, or none.
    for value in range(4, 9):
        update(value, 11)
        assert values_of(models[0]) == values_of(models[1]) and len(values_of(models[0])) == 1


def test_an_update_larger_than_staging_bytes_is_loaded_part_by_part(address, trainer):
    models = [{} for _ in range(RANKS - 1)]

    def receive(engine):
        receiver = Receiver(staging_bytes=10 * 300 - 1)
        with pytest.raises(cohort.Aborted, match='part 3 of 10 did not arrive; this rank has loaded 2 '
                                                 'parts, because the update exceeds staging_bytes'):
            receive_from_trainer(address, receiver, engine + 1, models[engine])
    trainer(1, 3)
    run_ranks(len(models), receive)
    assert [list(model) for model in models] == [['layer.0', 'layer.1']] * len(models)


class InDoubt:
    """A group in which the last collective of an update succeeds for all ranks but rank 2."""

    def __init__(self, group):
        self._group = group

    def __getattr__(self, name):
        return getattr(self._group, name)

    def all_reduce(self, *arguments, **options):
        """As Group.all_reduce."""
        result = self._group.all_reduce(*arguments, **options)
        if self._group.rank == 2:
            raise cohort.Aborted('rank 0 was lost')
        return result


@pytest.mark.parametrize('first', [1, 2])
def test_ranks_that_hear_different_ends_of_an_update_decide_alike(groups, address, first):
    decided = threading.Event()

    def body(group, rank):
        if rank == 0:
            sender = Sender(group, PART_BYTES)
            sender.copy('1', weights(1))
            sender.send(group)
            return None
        with cohort.Store(address) as store:
            decisions = UpdateDecisions(store, 'in-doubt')

            def decide(*arguments):
                if rank != first:
                    assert decided.wait(LONG)
                result = decisions.decide(*arguments)
                decided.set()
                return result
            found = {}
            try:
                Receiver(decide).receive(InDoubt(group), found.update)
                assert is_equal(found, weights(1))
                return 'new'
            except cohort.Aborted as error:
                assert 'this rank has loaded none of it' in str(error) and not found
                return 'old'
    assert run(groups, body)[1:] == ['new' if first == 1 else 'old'] * 2


def test_a_rank_that_cannot_ask_for_the_decision_keeps_its_weights(groups, tmp_path):
    def body(group, rank):
        if rank == 0:
            sender = Sender(group, PART_BYTES)
            sender.copy('1', weights(1))
            sender.send(group)
            return
        with cohort.Store(f'unix:{tmp_path}/none', timeout=0.1) as store:
            with pytest.raises(cohort.Unavailable, match='did not say whether the other ranks load'):
                Receiver(UpdateDecisions(store, 'away').decide).receive(group, None)
    run(groups, body)


# --- Late engines.

@pytest.fixture(name='late')
def _late(address):
    with joined_groups('trainer', 1, address) as groups:
        sender = Sender(groups[0], PART_BYTES)
        late = LateEngines(sender, 'job', address, '', LONG)
        yield sender, late
        late.close()


def fetch_all(address, engine, ranks, load):
    return run_ranks(ranks, lambda rank: fetch('job', engine, rank, ranks, address, '', LONG,
                                               lambda tensors: load(rank, tensors)))


def test_engines_fetch_alone(late, address):
    sender, served = late
    for version, (engine, ranks) in enumerate([('first', 2), ('second', 1), ('first', 2)], 1):
        with served.lock:
            sender.copy(str(version), weights(version))
        found = [{} for _ in range(ranks)]
        received = fetch_all(address, engine, ranks, lambda rank, each: found[rank].update(each))
        assert {each.version for each in received} == {str(version)}
        assert all(is_equal(each, weights(version)) for each in found)


def test_the_trainer_copies_no_new_version_while_a_late_engine_fetches(late, address, monkeypatch):
    sender, served = late
    sender.copy('1', weights(1))
    fetching, fetched = threading.Event(), threading.Event()
    send = sender.send

    def send_slowly(group):
        fetching.set()
        assert fetched.wait(LONG)
        send(group)
    monkeypatch.setattr(sender, 'send', send_slowly)
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        found = {}
        engine = pool.submit(fetch_all, address, 'slow', 1, lambda rank, each: found.update(each))

        def copy():
            with served.lock:
                sender.copy('2', weights(2))
        assert fetching.wait(LONG)
        trainer = pool.submit(copy)
        locked = served.lock.locked()
        fetched.set()
        assert locked and engine.result()[0].version == '1' and is_equal(found, weights(1))
        trainer.result()
    assert fetch_all(address, 'next', 1, lambda rank, each: None)[0].version == '2'


def test_a_late_engine_of_which_a_rank_cannot_load_does_not_disturb_the_next(late, address):
    sender, served = late
    sender.copy('1', weights(1))

    def load(rank, _):
        raise KeyError(rank)
    with pytest.raises((KeyError, cohort.Aborted)):
        fetch_all(address, 'broken', 2, load)
    eventually(lambda: served.failure is not None)
    found = {}
    fetch_all(address, 'next', 1, lambda rank, each: found.update(each))
    assert is_equal(found, weights(1))
    eventually(lambda: served.failure is None)


@pytest.mark.parametrize('request_', [b'no JSON', b'{}', b'[]', b'{"group": 1, "world_size": "x"}'])
def test_a_malformed_request_does_not_end_the_thread(late, address, request_):
    sender, served = late
    sender.copy('1', weights(1))
    with cohort.Store(address) as store:
        store.queue_push('vllm/weights/job/late', request_)
    eventually(lambda: served.failure is not None)
    found = {}
    fetch_all(address, 'next', 1, lambda rank, each: found.update(each))
    assert is_equal(found, weights(1))


def test_an_engine_that_asks_before_there_are_weights(late, address):
    with pytest.raises(cohort.Aborted):
        fetch_all(address, 'early', 1, lambda rank, each: None)
    late[0].copy('1', weights(1))
    assert fetch_all(address, 'early', 1, lambda rank, each: None)[0].version == '1'


def test_close_ends_the_thread(address):
    with joined_groups('closing', 1, address) as groups:
        LateEngines(Sender(groups[0], PART_BYTES), 'closing', address, '', LONG).close()
    assert 'cohort-late-engines' not in [thread.name for thread in threading.enumerate()]


# --- The plug-in.

def test_the_plug_in_is_off_unless_vllm_plugins_names_it(monkeypatch):
    monkeypatch.delenv('VLLM_PLUGINS', raising=False)
    assert plugins.platform() is None
    plugins.register()  # would import vllm
    monkeypatch.setenv('VLLM_PLUGINS', 'other')
    assert plugins.platform() is None
    monkeypatch.setenv('VLLM_PLUGINS', 'other,cohort')
    expected = 'cohort.vllm.platform.CohortCpuPlatform'
    assert plugins.platform() == (None if torch.version.cuda else expected)


def test_entry_points_exist():
    parser = configparser.ConfigParser()
    assert parser.read(os.path.join(os.path.dirname(cohort.__file__), '..', 'entry_points.txt'))
    for group in ('vllm.platform_plugins', 'vllm.general_plugins'):
        for target in parser[group].values():
            module, function = target.split(':')
            assert callable(getattr(importlib.import_module(module), function)), target
