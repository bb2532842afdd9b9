"""One rank of torch.distributed for gpu_benchmark: torch_implementation.py MOST_BYTES nccl|cohort

Says "ok" once it is there; then answers one line for each of standard input:

    prepare OPERATION BYTES   ok
    blocking CALLS            ok SECONDS             each waited for before the next
    queued CALLS              ok SECONDS SECONDS     until the last returned; until the device was through
    verify                    ok
"""

import contextlib
import os
import sys
import tempfile
import time

import torch
import torch.distributed as dist


class Rank:
    def __init__(self, most_bytes, backend):
        store = dist.FileStore(os.path.join(tempfile.mkdtemp(), "store"), 1)
        torch.cuda.set_device(0)
        dist.init_process_group(backend, store=store, rank=0, world_size=1)
        count = most_bytes // 4
        self.all_inputs = (torch.arange(count, device="cuda") % 4093).float()
        self.all_outputs = torch.zeros(count, device="cuda")
        self.call = None

    def prepare(self, operation, size):
        count = int(size) // 4
        given = self.all_inputs[:count]
        taken = self.all_outputs[:count]
        taken.zero_()
        self.given, self.taken = given, taken
        self.call = {
            # PyTorch has no form with a separate output, so the bytes are copied first.
            "all_reduce": lambda: dist.all_reduce(taken.copy_(given)),
            "all_gather": lambda: dist.all_gather_into_tensor(taken, given),
            "reduce_scatter": lambda: dist.reduce_scatter_tensor(taken, given),
            "broadcast": lambda: dist.broadcast(taken.copy_(given), 0),
        }[operation]
        torch.cuda.synchronize()
        return []

    def blocking(self, calls):
        begin = time.perf_counter()
        for _ in range(int(calls)):
            self.call()
            torch.cuda.synchronize()
        return [time.perf_counter() - begin]

    def queued(self, calls):
        begin = time.perf_counter()
        for _ in range(int(calls)):
            self.call()
        enqueued = time.perf_counter() - begin
        torch.cuda.synchronize()
        return [enqueued, time.perf_counter() - begin]

    def verify(self):
        if not torch.equal(self.given, self.taken):
            raise ValueError("the result differs from the input")
        return []


@contextlib.contextmanager
def coordinator():
    # pylint: disable=import-outside-toplevel
    import cohort.torch  # noqa: F401
    from testing.coordinator import coordinator as running
    with running() as address:
        os.environ["COHORT_ADDRESS"] = address
        yield


def answer_commands(backend):
    rank = Rank(int(sys.argv[1]), backend)
    print("ok", flush=True)
    for line in sys.stdin:
        command, *words = line.split()
        try:
            answer = getattr(rank, command)(*words)
            print("ok", *answer, flush=True)
        except Exception as error:  # reported to the driver
            print("failed", str(error).replace("\n", " "), flush=True)
    dist.destroy_process_group()


def main():
    backend = sys.argv[2]
    with coordinator() if backend == "cohort" else contextlib.nullcontext():
        answer_commands(backend)


if __name__ == "__main__":
    main()
