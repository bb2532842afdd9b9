#!/usr/bin/env python3
"""A process with an engine of vLLM, which does what its driver says over a socket.

    engine.py SOCKET MODEL SETTINGS      # SETTINGS: the arguments of vllm.LLM, as JSON

The driver sends pairs of a method's name and its arguments, and gets the result or the error.
It is started by `run.py`.
"""

import json
import os
import sys
import traceback
from multiprocessing.connection import Client


class Report:
    """Methods that vLLM adds to its workers (worker_extension_cls)."""

    def weight_report(self):
        """The last update of the worker: version, number of tensors, bytes, checksums."""
        received = self.weight_transfer_engine.received
        return None if received is None else list(received)

    def process(self):
        """Its process."""
        return os.getpid()

    def communicator(self):
        """The classes of the communicator and of the device group, of the group with two ranks."""
        # pylint: disable-next=import-outside-toplevel
        from vllm.distributed.parallel_state import get_pp_group, get_tp_group
        group = get_tp_group() if get_tp_group().world_size > 1 else get_pp_group()
        return [f'{type(each).__module__}.{type(each).__name__}'
                for each in (group.device_communicator, group.device_group)]


class Engine:
    """The methods that the driver calls. Those of weights have the names of vLLM's client."""

    def __init__(self, model, settings):
        from vllm import LLM  # pylint: disable=import-outside-toplevel
        self._llm = LLM(model, skip_tokenizer_init=True, worker_extension_cls='engine.Report',
                        **settings)

    def generate(self, prompts, tokens):
        """The tokens that follow each prompt; the most likely each time."""
        from vllm import SamplingParams  # pylint: disable=import-outside-toplevel
        outputs = self._llm.generate(
            [{'prompt_token_ids': prompt} for prompt in prompts],
            SamplingParams(temperature=0, max_tokens=tokens, ignore_eos=True, detokenize=False),
            use_tqdm=False)
        return [list(output.outputs[0].token_ids) for output in outputs]

    def init_weight_transfer_engine(self, init_info):
        """See vllm.LLM."""
        self._llm.init_weight_transfer_engine({'init_info': init_info})

    def start_weight_update(self):
        """See vllm.LLM."""
        self._llm.start_weight_update()

    def update_weights(self, update_info):
        """See vllm.LLM."""
        self._llm.update_weights({'update_info': update_info})

    def finish_weight_update(self):
        """See vllm.LLM."""
        self._llm.finish_weight_update()

    def weight_report(self):
        """By rank: see Report."""
        return self._llm.collective_rpc('weight_report')

    def processes(self):
        """By rank: its process."""
        return self._llm.collective_rpc('process')

    def communicator(self):
        """By rank: see Report."""
        return self._llm.collective_rpc('communicator')


def main(socket, model, settings):
    """Serves the driver until it closes the socket."""
    with Client(socket, 'AF_UNIX') as driver:
        try:
            engine = Engine(model, json.loads(settings))
            driver.send((True, None))
            while True:
                method, arguments = driver.recv()
                try:
                    driver.send((True, getattr(engine, method)(*arguments)))
                except Exception:  # pylint: disable=broad-exception-caught
                    driver.send((False, traceback.format_exc()))
        except EOFError:
            pass
        except BaseException:
            driver.send((False, traceback.format_exc()))
            raise


if __name__ == '__main__':
    main(*sys.argv[1:])
