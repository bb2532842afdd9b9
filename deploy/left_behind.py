#!/usr/bin/env python3
"""Lists what a run on this machine has left behind: processes, named shared memory, memory and sockets
without a file. Processes are known by a variable in their environment, which their children have too.

    deploy/left_behind.py --sockets > BEFORE                  # the present sockets
    deploy/left_behind.py NAME=VALUE BEFORE [--seconds 5]     # exits with 1 if anything is left after so long
"""

import os
import sys
import time


def read(path):
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError:  # gone, or another user's
        return b""


def processes():
    return [name for name in os.listdir("/proc") if name.isdigit() and int(name) != os.getpid()]


def marked(mark):
    """Ids of processes with the mark, without this process and those that started it."""
    asking = set()
    parent = os.getppid()
    while parent > 1:
        asking.add(str(parent))
        status = read(f"/proc/{parent}/status").decode(errors="replace")
        parent = next((int(line.split()[1]) for line in status.splitlines() if line.startswith("PPid:")), 0)
    return [
        process
        for process in processes()
        if process not in asking and mark.encode() in read(f"/proc/{process}/environ").split(b"\0")
    ]


def sockets():
    """Inode and name of the sockets that ranks listen on; they have no file."""
    found = {}
    for line in read("/proc/net/unix").decode(errors="replace").splitlines():
        words = line.split()
        if len(words) == 8 and words[7].startswith("@cohort-"):
            found[words[6]] = words[7]
    return found


def holders(inode):
    """Ids of the processes that hold a socket, of those that may be looked at."""
    result = []
    for process in processes():
        folder = f"/proc/{process}/fd"
        try:
            if any(os.readlink(f"{folder}/{fd}") == f"socket:[{inode}]" for fd in os.listdir(folder)):
                result.append(process)
        except OSError:
            continue
    return result


def left(mark, before, since):
    found = []
    ours = marked(mark)
    for process in ours:
        words = read(f"/proc/{process}/cmdline").replace(b"\0", b" ").decode(errors="replace").strip()
        found.append(f"process {process}: {words or 'ended, but its parent has not waited for it'}")
        if b"/memfd:cohort" in read(f"/proc/{process}/maps"):
            found.append(f"shared memory of process {process}")
    for inode, name in sockets().items():
        # A socket that another's process holds is another's.
        if inode not in before and not set(holders(inode)) - set(ours):
            found.append(f"socket {name}")
    for folder in ("/dev/shm", "/dev/mqueue"):
        for name in os.listdir(folder) if os.path.isdir(folder) else []:
            path = f"{folder}/{name}"
            try:
                facts = os.stat(path)
            except OSError:
                continue
            if "cohort" in name and facts.st_uid == os.getuid() and facts.st_mtime >= since:
                found.append(f"file {path}")
    return found


def main(arguments):
    if arguments == ["--sockets"]:
        print("\n".join(sockets()))
        return 0
    if len(arguments) not in (2, 4) or len(arguments) == 4 and arguments[2] != "--seconds":
        sys.exit(__doc__)
    mark, before_path = arguments[:2]
    before = set(read(before_path).decode().split())
    since = os.path.getmtime(before_path)
    deadline = time.monotonic() + float(arguments[3] if len(arguments) == 4 else 5)
    # A process that ends takes a moment to be gone.
    while True:
        found = left(mark, before, since)
        if not found or time.monotonic() >= deadline:
            break
        time.sleep(0.05)
    print("\n".join(found), end="\n" if found else "")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
