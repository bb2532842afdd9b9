"""A rank in Python: what member_main.h is for programs in C++.

    member.py --implementation cohort-numpy|cohort-torch|torch-gloo --package FOLDER
              --control SOCKET --folder FOLDER --members N --rank R

`--package` is the folder that holds the package `cohort`.
"""

import argparse
import os
import socket
import sys
import time

import groups
import work as works


class Prepared:
    """A piece of work with its arrays."""

    def __init__(self, group, work):
        extents = works.extents(work, group.rank, group.size)
        self.input, self.output = (group.array(count, work.memory) for count in extents)
        if work.collective == 'all_reduce' and group.in_place:
            self.input = self.output
        self.call = group.call(work, self.input, self.output)

    def run(self, iterations):
        call = self.call
        for _ in range(iterations):
            call()


class CommandLoop:
    """The commands of the driver. Each method returns the words of its answer."""

    def __init__(self, group):
        self.group = group
        self.prepared = {}

    def prepare(self, number, *words):
        work = works.parse(words)
        prepared = Prepared(self.group, work)
        works.spoil(self.group.numpy(prepared.output))
        works.fill(work, self.group, self.group.numpy(prepared.input))
        self.group.barrier()
        prepared.run(1)
        works.check(work, self.group, self.group.numpy(prepared.output))
        self.prepared[number] = prepared
        return []

    def run(self, number, iterations):
        prepared, iterations = self.prepared[number], int(iterations)
        # Warms the caches, which other members have used since.
        prepared.run(max(1, iterations // 16))
        self.group.barrier()
        begin = time.perf_counter()
        prepared.run(iterations)
        return [str(time.perf_counter() - begin)]

    def forget(self, number):
        del self.prepared[number]
        return []

    def answer(self, command):
        name, *words = command.split()
        if name not in ('prepare', 'run', 'forget'):
            return f'unimplemented {name}'
        try:
            return ' '.join(['ok', *getattr(self, name)(*words)])
        except Exception as error:  # pylint: disable=broad-exception-caught
            return f'error {error}'


def main():
    parser = argparse.ArgumentParser()
    for name in ('implementation', 'package', 'control', 'folder', 'address'):
        parser.add_argument(f'--{name}')
    for name in ('members', 'rank'):
        parser.add_argument(f'--{name}', type=int)
    options = parser.parse_args()
    sys.path.insert(0, options.package)

    control = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    control.connect(options.control)
    try:
        group = groups.make(options)
    except Exception as error:  # pylint: disable=broad-exception-caught
        control.send(f'error {error}'.encode())
        raise
    control.send(f'hello {group.rank}'.encode())
    loop = CommandLoop(group)
    while True:
        command = control.recv(4096).decode()
        if command in ('', 'quit'):
            break
        control.send(loop.answer(command).encode())
    sys.stderr.flush()
    # Not through the end of a group that others may no longer be in.
    os._exit(0)


if __name__ == '__main__':
    main()
