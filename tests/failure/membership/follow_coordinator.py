"""Calls a coordinator over the channel that deploy/README.md shows, and follows it to another address.

follow_coordinator.py README TARGET METHOD REQUEST_HEX CA KEY CERTIFICATE

Prints "called" after the first call. After a line on standard input it repeats the call until one is
answered, and prints the seconds that this took.
"""
import sys
import time

import grpc


def snippet(readme):
    """The indented lines that make the channel."""
    lines = open(readme, encoding="utf-8").read().split("\n")
    first = next(i for i, line in enumerate(lines) if line.startswith("    credentials = grpc."))
    last = first
    while lines[last].startswith("    "):
        last += 1
    return "\n".join(line[4:] for line in lines[first:last])


def main():
    readme, target, method, request, *files = sys.argv[1:]
    code = snippet(readme)
    assert '"coordinator:7700"' in code, code
    names = {"grpc": grpc}
    for name, path in zip(("ca", "key", "certificate"), files, strict=True):
        with open(path, "rb") as file:
            names[name] = file.read()
    exec(code.replace('"coordinator:7700"', repr(target)), names)
    put = names["channel"].unary_unary(method)
    put(bytes.fromhex(request), timeout=20, wait_for_ready=True)
    print("called", flush=True)
    sys.stdin.readline()
    start = time.monotonic()
    while True:
        try:
            put(bytes.fromhex(request), timeout=20, wait_for_ready=True)
            break
        except grpc.RpcError as error:
            if error.code() != grpc.StatusCode.UNAVAILABLE or time.monotonic() - start > 20:
                raise
    print(f"{time.monotonic() - start:.3f}", flush=True)


main()
