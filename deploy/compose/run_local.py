"""The work of run_local.sh, which says how to call it.

A child of this process is the first in namespaces of its own (processes, network, mounts) and starts the services.
When it ends, however it does, the kernel ends everything in there and takes it all away."""

import argparse
import contextlib
import ctypes
import fnmatch
import ipaddress
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback

CANNOT = 77
_COMPLETION_SECONDS = 60
_NEW_MOUNTS, _NEW_USER, _NEW_PROCESSES, _NEW_NETWORK = 0x00020000, 0x10000000, 0x20000000, 0x40000000
_DIE_WITH_PARENT = 1  # PR_SET_PDEATHSIG
_TARGETS = {
    "cohort-coordinator": "coordinator/cohort-coordinator",
    "cohort-worker": "worker/daemon/cohort-worker",
    "cohort": "worker/cli/cohort",
    "cohort-health": "deploy/docker/cohort-health",
}
# No other network reaches the one of the services, so they may have the same addresses in each run.
_SUBNET = ipaddress.ip_network("10.78.0.0/24")
_libc = ctypes.CDLL(None, use_errno=True)


class Failure(Exception):
    """An error message with its exit code."""

    def __init__(self, text, code=1):
        super().__init__(text)
        self.code = code


class Stopped(Exception):
    pass


def say(text):
    print(f"run_local: {text}", file=sys.stderr, flush=True)


def unshare(flags):
    if _libc.unshare(flags) != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def run(*words):
    """A tool of the system, which must work."""
    done = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=30, check=False)
    if done.returncode != 0:
        raise Failure(f"{' '.join(words)}: {done.stderr.strip()}")


def make_mount_point(target, is_folder):
    """Makes a folder or file that is missing; its parent folder is then made in memory."""
    if not os.path.exists(target):
        above = os.path.dirname(target)
        while not os.path.isdir(above):
            above = os.path.dirname(above)
        if above == "/":
            raise Failure(f"cannot mount anything at {target}: there is no /{target.split('/')[1]} here", 2)
        if os.path.dirname(target) != above or not os.access(above, os.W_OK) or not os.path.ismount(above):
            run("mount", "-t", "tmpfs", "tmpfs", above)
        os.makedirs(target if is_folder else os.path.dirname(target), exist_ok=True)
        if not is_folder:
            with open(target, "x", encoding="utf-8"):
                pass


def become(service, address, folder):
    """In the process that will be the service's program: moves into a network and mounts of its own."""
    switch = os.open("/proc/self/ns/net", os.O_RDONLY)
    unshare(_NEW_NETWORK | _NEW_MOUNTS)
    link = "to-" + service.name[-12:]
    inside = ["nsenter", f"--net=/proc/{os.getpid()}/fd/{switch}", "ip", "link"]
    run(*inside, "add", link, "type", "veth", "peer", "name", "eth0", "netns", str(os.getpid()))
    run(*inside, "set", link, "master", "switch", "up")
    run("ip", "address", "add", f"{address}/{_SUBNET.prefixlen}", "dev", "eth0")
    run("ip", "link", "set", "lo", "up")
    run("ip", "link", "set", "eth0", "up")
    run("mount", "--bind", f"{folder}/hosts", "/etc/hosts")
    for source, target in service.volumes:
        source = source if source.startswith("/") else f"{folder}/volumes/{source}"
        make_mount_point(target, os.path.isdir(source))
        run("mount", "--bind", source, target)
    for target in service.tmpfs:
        make_mount_point(target, is_folder=True)
        run("mount", "-t", "tmpfs", "tmpfs", target)


def become_or_report(service, address, folder):
    """Prints the error, because the parent process sees only that the start failed."""
    try:
        become(service, address, folder)
    except (Failure, OSError) as error:
        say(error)
        raise


def environment(service, folder):
    """A container's, not ours."""
    return {"PATH": f"{folder}/bin:/usr/local/bin:/usr/bin:/bin", "HOSTNAME": service.name, **service.environment}


class Cluster:
    """The services that run. Must be closed."""

    def __init__(self, services, addresses, folder):
        self._services = services
        self._addresses = addresses
        self._folder = folder
        self._processes = {}
        self._completed = set()

    def start(self, service):
        address = self._addresses[service.name]
        for other, condition in service.after.items():
            if condition == "service_healthy":
                self._await_health(self._services[other])
            elif condition == "service_completed_successfully":
                self._await_success(other)
        output = None
        if service.name != "tests":
            output = open(self._log(service.name), "wb")
        try:
            self._processes[service.name] = subprocess.Popen(
                service.words,
                env=environment(service, self._folder),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT if output else None,
                # In a process group of its own, so that Ctrl-C reaches only this script, which ends all in order.
                start_new_session=True,
                preexec_fn=lambda: become_or_report(service, address, self._folder),
            )
        except (OSError, subprocess.SubprocessError) as error:
            self.show_log(service.name)
            raise Failure(f"{service.name} cannot be started: {error}") from error
        finally:
            if output:
                output.close()
        say(f"{service.name} runs at {address}")

    def _log(self, name):
        return f"{self._folder}/log.{name}"

    def show_log(self, name):
        with contextlib.suppress(OSError), open(self._log(name), encoding="utf-8", errors="replace") as file:
            for line in file.readlines()[-30:]:
                print(f"  {name} | {line.rstrip()}", file=sys.stderr, flush=True)

    def _await_health(self, service):
        process = self._processes[service.name]
        until = time.monotonic() + service.start_period + service.retries * (service.interval + service.probe_timeout)
        # Into the service's namespaces, as Docker would run it there.
        words = ["nsenter", f"--target={process.pid}", "--net", "--mount", "--", *service.health]
        while process.poll() is None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                probe = subprocess.run(
                    words,
                    env=environment(service, self._folder),
                    stdin=subprocess.DEVNULL,
                    capture_output=True,
                    timeout=service.probe_timeout,
                    check=False,
                )
                if probe.returncode == 0:
                    return
            if time.monotonic() > until:
                self.show_log(service.name)
                raise Failure(f"{service.name} is not healthy")
            time.sleep(min(service.interval, 0.2))
        raise Failure(f"{service.name} ended with status {process.returncode} before it was healthy")

    def _await_success(self, name):
        try:
            status = self._processes[name].wait(timeout=_COMPLETION_SECONDS)
        except subprocess.TimeoutExpired:
            status = f"nothing within {_COMPLETION_SECONDS} s"
        if status != 0:
            self.show_log(name)
            raise Failure(f"{name} ended with {status}, and other services need its success")
        self._completed.add(name)

    def wait(self, name):
        return self._processes[name].wait()

    def close(self):
        """Asks all to end, first those that no other waits for; kills those that do not end. Returns the errors."""
        wrong = []
        left = dict(self._processes)
        while left:
            awaited = {other for name in left for other in self._services[name].after}
            ending = {name: left.pop(name) for name in list(left) if name not in awaited}
            by_itself = {name for name, process in ending.items() if process.poll() is not None}
            for name in ending.keys() - by_itself:
                ending[name].terminate()
            for name, process in ending.items():
                how = self._end(name, process)
                if name == "tests" or (how == 0 and (name not in by_itself or name in self._completed)):
                    continue
                self.show_log(name)
                wrong.append(f"{name} ended {'by itself' if name in by_itself else 'when asked to'}, with {how}")
        return wrong

    def _end(self, name, process):
        try:
            return process.wait(self._services[name].grace)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            return f"a kill after {self._services[name].grace} s"


def collect_programs(compose, binaries, folder):
    """Puts the programs in use under one folder."""
    os.mkdir(f"{folder}/bin")
    for service in compose.services.values():
        for word in {service.words[0], *(service.health or [])[:1], *(("cohort",) if service.name == "tests" else ())}:
            if word not in _TARGETS or os.path.exists(f"{folder}/bin/{word}"):
                continue
            found = [path for path in (f"{binaries}/{word}", f"{binaries}/{_TARGETS[word]}") if os.path.isfile(path)]
            if not found:
                raise Failure(
                    f"service {service.name} needs {word}, which is not in {binaries}; "
                    f"bazel build --config=opt //{':'.join(_TARGETS[word].rsplit('/', 1))}"
                )
            os.symlink(os.path.realpath(found[0]), f"{folder}/bin/{word}")


def serve(compose, binaries, folder):
    """In the namespaces: runs everything, and returns the exit status of `tests`."""
    # In memory, so that nothing stays on a disk whatever happens.
    run("mount", "-t", "tmpfs", "tmpfs", folder)
    collect_programs(compose, binaries, folder)
    for service in compose.services.values():
        for source, _ in service.volumes:
            if not source.startswith("/"):
                os.makedirs(f"{folder}/volumes/{source}", exist_ok=True)
    addresses = dict(zip(compose.services, _SUBNET.hosts()))
    with open(f"{folder}/hosts", "w", encoding="utf-8") as hosts:
        hosts.write("127.0.0.1 localhost\n")
        hosts.writelines(f"{address} {name}\n" for name, address in addresses.items())
    run("ip", "link", "add", "switch", "type", "bridge")
    run("ip", "link", "set", "switch", "up")
    run("ip", "link", "set", "lo", "up")
    cluster = Cluster(compose.services, addresses, folder)
    wrong = []
    try:
        for service in compose.services.values():
            cluster.start(service)
        status = cluster.wait("tests")
        say(f"tests ended with status {status}")
    finally:
        wrong = cluster.close()
        for text in wrong:
            say(text)
    return status or (1 if wrong else 0)


def enter_namespaces():
    """Enters new namespaces; the next child is the first process in them."""
    user, group = os.getuid(), os.getgid()
    try:
        unshare(_NEW_NETWORK | _NEW_PROCESSES | (_NEW_USER if user != 0 else 0))
    except OSError as error:
        raise Failure(f"no namespaces here, neither by being root nor by a user namespace: {error}", CANNOT) from error
    if user != 0:
        for name, text in (("setgroups", "deny"), ("uid_map", f"0 {user} 1"), ("gid_map", f"0 {group} 1")):
            with open(f"/proc/self/{name}", "w", encoding="ascii") as file:
                file.write(text)


_STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def stop(_signal, _frame):
    raise Stopped


def stop_once(_signal, _frame):
    """A Ctrl-C comes to both processes, and again from one to the other."""
    for number in _STOP_SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    raise Stopped


def on_stop(handler):
    for number in _STOP_SIGNALS:
        signal.signal(number, handler)


def first_process(compose, binaries, folder):
    _libc.prctl(_DIE_WITH_PARENT, signal.SIGKILL)
    try:
        on_stop(stop_once)
        unshare(_NEW_MOUNTS)
        run("mount", "--make-rprivate", "/")
        run("mount", "-t", "proc", "proc", "/proc")
        return serve(compose, binaries, folder)
    except Failure as failure:
        say(failure)
        return failure.code
    except Stopped:
        say("stopped")
        return 130
    except Exception:
        traceback.print_exc()
        return 1


def guard(child):
    """Waits for the child, and ends it when a signal asks this process to end: first by SIGTERM, then by SIGKILL."""
    asked = 0
    while True:
        try:
            _, status = os.waitpid(child, 0)
            return os.waitstatus_to_exitcode(status)
        except Stopped:
            asked += 1
            os.kill(child, signal.SIGTERM if asked == 1 else signal.SIGKILL)


def parse(arguments):
    here = os.path.dirname(os.path.abspath(__file__))
    parser = argparse.ArgumentParser(prog="run_local.sh", description="see the head of run_local.sh")
    parser.add_argument("--binaries", default=os.path.join(here, "..", "..", "bazel-bin"))
    parser.add_argument("--without", action="append", default=[], metavar="SERVICE")
    parser.add_argument("--file", default=os.path.join(here, "docker-compose.yml"))
    return parser.parse_args(arguments)


def main(arguments):
    options = parse(arguments)
    try:
        import compose_file
    except ImportError as error:
        say(f"{error}; Debian's package is python3-yaml")
        return CANNOT
    for tool in ("ip", "mount", "nsenter"):
        if shutil.which(tool) is None:
            say(f"there is no {tool}; Debian's packages are iproute2, mount and util-linux")
            return CANNOT
    try:
        compose = compose_file.ComposeFile(
            options.file, lambda name: any(fnmatch.fnmatch(name, pattern) for pattern in options.without)
        )
        if "tests" not in compose.services:
            raise compose_file.Error("there is no service tests")
    except (compose_file.Error, KeyError, OSError) as error:
        say(f"{options.file}: {error!r}" if isinstance(error, KeyError) else f"{options.file}: {error}")
        return 2
    say("this is not Docker: the services are processes, each in a network namespace")
    folder = tempfile.mkdtemp(prefix="cohort-compose-")
    try:
        on_stop(stop)
        enter_namespaces()
        child = os.fork()
        if child == 0:
            os._exit(first_process(compose, os.path.realpath(options.binaries), folder))
        return guard(child)
    except Failure as failure:
        say(failure)
        return failure.code
    except Stopped:
        return 130
    finally:
        os.rmdir(folder)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
