"""Reads the part of a compose file that run_local knows. Other settings are an error, unless only
containers have them."""

import os
import re

import yaml

# These change the rights or the image of a container, not the environment of its program.
_ONLY_OF_CONTAINERS = {"attach", "build", "cap_drop", "image", "read_only", "restart", "security_opt", "user"}
_KNOWN = {
    "command",
    "depends_on",
    "entrypoint",
    "environment",
    "healthcheck",
    "stop_grace_period",
    "tmpfs",
    "volumes",
}
_UNITS = {"ms": 0.001, "s": 1, "m": 60}


class Error(Exception):
    pass


def interpolate(value):
    """NAME and NAME:-DEFAULT in ${}, and $$, in all texts below `value`."""

    def replace(match):
        if match[0] == "$$":
            return "$"
        name, _, default = match[1].partition(":-")
        return os.environ.get(name) or default

    if isinstance(value, str):
        return re.sub(r"\$\$|\$\{([^}]*)\}", replace, value)
    if isinstance(value, list):
        return [interpolate(item) for item in value]
    if isinstance(value, dict):
        return {name: interpolate(item) for name, item in value.items()}
    return value


def seconds(text):
    match = re.fullmatch(r"(\d+)(ms|s|m)", str(text))
    if not match:
        raise Error(f'"{text}" is no duration such as 500ms, 10s or 1m')
    return int(match[1]) * _UNITS[match[2]]


class Service:
    """name, words (the command), environment, volumes ((source, target), a name or a path), tmpfs (folders in memory),
    after (names with their conditions), health (words, or None) with its times, grace."""

    def __init__(self, name, spec, folder):
        unknown = set(spec) - _KNOWN - _ONLY_OF_CONTAINERS
        if unknown:
            raise Error(f"service {name}: unknown: {', '.join(sorted(unknown))}")
        self.name = name
        self.words = [str(word) for word in list(spec["entrypoint"]) + list(spec.get("command", []))]
        self.environment = {key: str(value) for key, value in spec.get("environment", {}).items()}
        self.volumes = [self._volume(text, folder) for text in spec.get("volumes", [])]
        self.tmpfs = [text.split(":")[0] for text in spec.get("tmpfs", [])]
        self.after = {other: how["condition"] for other, how in spec.get("depends_on", {}).items()}
        self.grace = seconds(spec.get("stop_grace_period", "10s"))
        health = spec.get("healthcheck")
        self.health = None
        if health is not None:
            kind, *self.health = health["test"]
            if kind != "CMD":
                raise Error(f"service {name}: a health check must be CMD")
            self.interval = seconds(health.get("interval", "30s"))
            self.probe_timeout = seconds(health.get("timeout", "30s"))
            self.retries = int(health.get("retries", 3))
            self.start_period = seconds(health.get("start_period", "0s"))

    @staticmethod
    def _volume(text, folder):
        source, target = text.split(":")[:2]
        if source.startswith("."):
            source = os.path.normpath(os.path.join(folder, source))
        return source, target


class ComposeFile:
    """services: name to Service, in an order in which each comes behind those it waits for."""

    def __init__(self, path, without):
        """`without`: says of a name whether that service is left out."""
        with open(path, encoding="utf-8") as file:
            document = interpolate(yaml.safe_load(file))
        folder = os.path.dirname(os.path.abspath(path))
        named = document.get("volumes", {})
        services = {
            name: Service(name, spec, folder) for name, spec in document["services"].items() if not without(name)
        }
        for service in services.values():
            service.after = {other: how for other, how in service.after.items() if not without(other)}
            for other, how in service.after.items():
                if other not in services:
                    raise Error(f"service {service.name} waits for {other}, which there is not")
                if how == "service_healthy" and services[other].health is None:
                    raise Error(f"service {service.name} waits for the health of {other}, which tells none")
            for source, _ in service.volumes:
                if not source.startswith("/") and source not in named:
                    raise Error(f"service {service.name}: there is no volume {source}")
        self.services = self._sorted(services)

    @staticmethod
    def _sorted(services):
        done = {}
        while len(done) < len(services):
            ready = [name for name in services if name not in done and set(services[name].after) <= set(done)]
            if not ready:
                raise Error("the services wait for each other in a circle")
            done.update((name, services[name]) for name in ready)
        return done
