"""cohort.vllm without vLLM: weights from a trainer to engines, and the functions of the plug-in."""

import configparser
import importlib
import os
import threading

import pytest

import cohort
from cohort.vllm import plugins
from testing.coordinator import LONG, eventually, run_ranks
from testing.fixtures import address_fixture, groups_fixture, joined_groups, run

torch = pytest.importorskip('torch', reason='PyTorch is not installed for this Python')
# pylint: disable=wrong-import-position
from cohort.vllm.late_engines import LateEngines, fetch  # noqa: E402
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
        receiver, kept = Receiver(group), []
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


def test_memory_is_used_again_when_no_tensor_is_on_it(groups):
    def body(group, rank):
        if rank == 0:
            sender = Sender(group, PART_BYTES, checksums=False)
            sender.copy('1', weights(1))
            for _ in range(3):
                sender.send(group)
            return 1
        allocations = []

        class Counting:
            """A group that counts allocations."""
            def empty(self, *arguments):
                allocations.append(arguments)
                return group.empty(*arguments)
        receiver = Receiver(Counting())
        for _ in range(3):
            assert not receiver.receive(group, lambda tensors: None).checksums
        return len(allocations)
    assert run(groups, body) == [1] * RANKS


def test_a_wrong_checksum_names_the_tensor(groups):
    def body(group, rank):
        if rank == 0:
            sender = Sender(group, PART_BYTES)
            sender.copy('7', weights(1))
            sender._memory[0][3] ^= 1  # pylint: disable=protected-access
            sender.send(group)
            sender.copy('8', weights(2))
            sender.send(group)
            return
        receiver, found = Receiver(group), {}
        with pytest.raises(cohort.DataLoss, match='version 7 in group weights, rank .: wrong '
                                                  'checksums of 1 of 7 tensors: matrix'):
            receiver.receive(group, found.update)
        assert is_equal(found, weights(1)[1:])
        receiver.receive(group, found.update)
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
            Receiver(group).receive(group, load)
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


def test_a_late_engine_of_which_a_rank_cannot_load_does_not_disturb_the_next(late, address):
    sender, _ = late
    sender.copy('1', weights(1))

    def load(rank, _):
        raise KeyError(rank)
    with pytest.raises((KeyError, cohort.Aborted)):
        fetch_all(address, 'broken', 2, load)
    found = {}
    fetch_all(address, 'next', 1, lambda rank, each: found.update(each))
    assert is_equal(found, weights(1))


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
