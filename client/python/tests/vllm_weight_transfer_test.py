"""cohort.vllm.weight_transfer with stand-ins for vLLM: when an engine's model changes."""

import contextlib
import dataclasses
import importlib
import sys
import types

import pytest

import cohort
from testing.coordinator import LONG, eventually, run_ranks
from testing.fixtures import address_fixture

torch = pytest.importorskip('torch', reason='PyTorch is not installed for this Python')

RANKS = 2  # of the engine

_address = address_fixture()


class Model:
    """A model that notes what vLLM does to it."""

    def __init__(self):
        self.log = []
        self.weights = {}
        self.refused = None

    def load_weights(self, tensors):
        """As vLLM's models."""
        for name, tensor in tensors:
            if name == self.refused:
                raise KeyError(name)
            self.log.append(name)
            self.weights[name] = tensor.clone()


class Base:
    """The base classes of both sides."""

    def __class_getitem__(cls, _):
        return cls

    def __init__(self, model=None, rank=0, client=None, source=None, is_sender=True):
        self.model, self.model_config = model, 'config'
        self.client, self.source, self.is_sender = client, source, is_sender
        self.parallel_config = types.SimpleNamespace(
            data_parallel_index=0, data_parallel_size=1, world_size=RANKS, rank=rank)

    def parse_init_info(self, options):
        """As vLLM's."""
        return self.init_info_cls(**options)

    def parse_update_info(self, options):
        """As vLLM's."""
        return self.update_info_cls(**options)


@dataclasses.dataclass
class Options:
    """The base class of options."""


@dataclasses.dataclass
class TrainerOptions(Options):
    """The base class of a trainer's options."""
    rank: int = dataclasses.field(kw_only=True)
    is_sender = True


@pytest.fixture(name='transfer')
def _transfer(monkeypatch):
    """The module with stand-ins for vLLM."""
    modules = {
        'vllm.distributed.weight_transfer.base': {
            'TrainerInitInfo': TrainerOptions, 'TrainerWeightTransferEngine': Base,
            'WeightTransferEngine': Base, 'WeightTransferInitInfo': Options,
            'WeightTransferUpdateInfo': Options},
        'vllm.model_executor.model_loader.reload': {
            'initialize_layerwise_reload': lambda model: model.log.append('initialize'),
            'finalize_layerwise_reload': lambda model, config: model.log.append('finalize')}}
    for name, contents in modules.items():
        parts = name.split('.')
        for end in range(1, len(parts)):
            monkeypatch.setitem(sys.modules, '.'.join(parts[:end]), types.ModuleType(parts[end - 1]))
        module = types.ModuleType(name)
        vars(module).update(contents)
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.delitem(sys.modules, 'cohort.vllm.weight_transfer', raising=False)
    yield importlib.import_module('cohort.vllm.weight_transfer')
    del sys.modules['cohort.vllm.weight_transfer']


class Client:
    """The ranks of an engine, which are threads."""

    def __init__(self, transfer):
        self.models = [Model() for _ in range(RANKS)]
        self.receivers = [transfer.WeightReceiver(model, rank)
                          for rank, model in enumerate(self.models)]

    def init_weight_transfer_engine(self, options):
        """As vLLM's clients."""
        run_ranks(RANKS, lambda rank: self.receivers[rank].init_transfer_engine(
            self.receivers[rank].parse_init_info(options)))

    def start_weight_update(self):
        """As vLLM's clients."""
        for receiver in self.receivers:
            receiver.start_weight_update()

    def update_weights(self, options):
        """As vLLM's clients."""
        run_ranks(RANKS, lambda rank: self.receivers[rank].update_weights(options))

    def finish_weight_update(self):
        """As vLLM's clients."""
        for receiver in self.receivers:
            receiver.finish_weight_update()

    def close(self):
        """Ends the receivers."""
        for receiver in self.receivers:
            receiver.shutdown()


class EndingGroup:
    """The trainer's group, which ends before part `part`, when all ranks have loaded `loaded` tensors
    of the earlier ones."""

    def __init__(self, group, models, part, loaded):
        self._group, self._models, self._left, self._loaded = group, models, part, loaded

    def __getattr__(self, name):
        return getattr(self._group, name)

    def broadcast(self, *arguments):
        """Sends a part."""
        self._left -= 1
        if self._left == 0:
            eventually(lambda: all(len(model.weights) == self._loaded for model in self._models))
            self._group.abort('the trainer ends')
        self._group.broadcast(*arguments)


@contextlib.contextmanager
def trainer(transfer, client, address, value, ends_in=0, loaded=0, **options):
    """A trainer with ten weights of this value, each of which is a part."""
    source = [(f'layer.{i}', torch.full((75,), float(value))) for i in range(10)]
    sender = transfer.WeightSender.trainer_init(
        transfer.TrainerOptions(name='job', engine_ranks=RANKS, address=address, rank=0,
                                part_bytes=300, timeout=LONG, **options),
        client=client, source=source)
    # pylint: disable=protected-access
    sender._group = EndingGroup(sender._group, client.models, ends_in, loaded)
    with contextlib.closing(sender):
        yield sender


def send(*arguments, **options):
    """Sends the weights of a trainer."""
    with trainer(*arguments, **options) as sender:
        sender.send_weights()


@pytest.fixture(name='client')
def _client(transfer):
    client = Client(transfer)
    yield client
    client.close()


LAYERS = [f'layer.{i}' for i in range(10)]


def weights_of(client):
    """The different values of each rank's weights."""
    return [{float(each) for tensor in model.weights.values() for each in tensor}
            for model in client.models]


def test_the_model_does_not_change_before_all_weights_have_arrived(transfer, client, address):
    send(transfer, client, address, 1)
    with pytest.raises(cohort.Aborted):
        send(transfer, client, address, 2, ends_in=3, loaded=len(LAYERS))
    assert weights_of(client) == [{1}, {1}]
    for model in client.models:
        assert model.log == ['initialize', *LAYERS, 'finalize']
    send(transfer, client, address, 3)
    assert weights_of(client) == [{3}, {3}]
    assert [receiver.received.version for receiver in client.receivers] == ['1', '1']
    for model in client.models:
        assert model.log == ['initialize', *LAYERS, 'finalize'] * 2


def test_layers_are_completed_after_an_error_in_an_update_larger_than_staging_bytes(transfer, client,
                                                                                   address):
    with pytest.raises(cohort.Aborted):
        send(transfer, client, address, 2, ends_in=3, loaded=2, staging_bytes=300)
    for model in client.models:
        assert model.log == ['initialize', *LAYERS[:2], 'finalize']


def test_layers_are_completed_if_a_rank_cannot_load(transfer, client, address):
    client.models[1].refused = 'layer.4'
    with pytest.raises((KeyError, cohort.Aborted)):
        send(transfer, client, address, 1)
    assert client.models[1].log == ['initialize', *LAYERS[:4], 'finalize']


def test_a_late_engine_loads_all_weights_and_completes_its_layers(transfer, client, address):
    with trainer(transfer, client, address, 4) as sender, \
            contextlib.closing(Client(transfer)) as late:
        sender.send_weights()
        late.init_weight_transfer_engine({'name': 'job', 'address': address, 'engine': 'late'})
        late.start_weight_update()
        late.update_weights({})
        late.finish_weight_update()
        assert weights_of(late) == [{4}, {4}]
        for model in late.models:
            assert model.log == ['initialize', *LAYERS, 'finalize']
