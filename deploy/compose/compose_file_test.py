#!/usr/bin/env python3
"""Without Docker: whether the files that the compose file and the Dockerfiles name exist, and programs take
their flags.

    compose_file_test.py PROGRAM...       # those that are built; their flags are tried
"""

import json
import os
import re
import subprocess
import sys
import tempfile
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
try:
    import yaml

    import compose_file
except ImportError as error:
    print(f"SKIPPED: {error}; Debian's package is python3-yaml")
    sys.exit(0)

WORKER_SOCKET = "unix:/run/cohort/worker.sock"
DOCKER = os.path.join(HERE, "..", "docker")
PROGRAMS = {os.path.basename(path): os.path.abspath(path) for path in sys.argv[1:]}


def check_config(test, program, flags):
    # Each port serves IPv4 and IPv6.
    test.assertEqual(set(re.findall(r"listen[= ](\S+):\d+", " ".join(flags))), {"[::]"})
    if program not in PROGRAMS:
        print(f"{program} is not given, its flags are not tried")
        return
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            [PROGRAMS[program], *flags, "--check-config"],
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
        )
    test.assertEqual(done.returncode, 0, f"{program}: {done.stderr}")


class ComposeFileTest(unittest.TestCase):
    path = os.path.join(HERE, "docker-compose.yml")

    def setUp(self):
        os.environ.pop("COHORT_FORM", None)
        self.compose = compose_file.ComposeFile(self.path, lambda name: False)
        self.services = self.compose.services

    def test_services_come_behind_those_they_wait_for(self):
        names = list(self.services)
        self.assertEqual(names[:2], ["certificates", "coordinator"])
        self.assertEqual(names[-1], "tests")
        self.assertEqual(set(self.services["tests"].after), set(names) - {"tests"})

    def test_two_projects_can_run_at_once(self):
        """The engine chooses the networks and addresses, and names containers after the project."""
        with open(self.path, encoding="utf-8") as file:
            text = file.read()
        self.assertEqual(set(re.findall(r"\d+(?:\.\d+){3}", text)), {"127.0.0.1"})
        document = yaml.safe_load(text)
        self.assertNotIn("networks", document)
        for name, service in document["services"].items():
            self.assertFalse({"container_name", "hostname", "networks", "ports"} & set(service), name)

    def test_daemons_start_again(self):
        with open(self.path, encoding="utf-8") as file:
            services = yaml.safe_load(file)["services"]
        for name, service in services.items():
            self.assertEqual(service.get("restart"), "unless-stopped" if "healthcheck" in service else None, name)

    def test_the_readme_names_the_least_compose(self):
        """The key `attach` is of Compose 2.20; without it, the end of `certificates` would end the tests."""
        with open(self.path, encoding="utf-8") as file:
            services = yaml.safe_load(file)["services"]
        self.assertIs(services["certificates"]["attach"], False)
        with open(os.path.join(HERE, "..", "README.md"), encoding="utf-8") as file:
            self.assertIn("with Compose 2.20 or newer |", file.read())

    def test_programs_take_their_flags(self):
        for name, service in self.services.items():
            if name not in ("certificates", "tests"):
                with self.subTest(name):
                    check_config(self, service.words[0], service.words[1:])
                    self.assertIn("--tls-client-ca", " ".join(service.words))

    def test_workers_advertise_names_of_their_certificate(self):
        (names,) = [word for word in self.services["certificates"].words if word.startswith("worker=")]
        workers = [name for name in self.services if name.startswith("worker-")]
        self.assertEqual(names, "worker=URI:spiffe://cohort/worker," + ",".join(f"DNS:{name}" for name in workers))
        for name in workers:
            self.assertIn(f"--advertise={name}", self.services[name].words)

    def test_each_client_has_an_identity_and_a_role(self):
        with open(os.path.join(HERE, "access-policy.json"), encoding="utf-8") as file:
            identities = {rule["identity"] for rule in json.load(file)["rules"]}
        certified = set(re.findall(r"URI:([^\s,]+)", " ".join(self.services["certificates"].words)))
        self.assertEqual(identities, certified | {"uid:65532"})
        for name, service in self.services.items():
            if service.health is not None:
                self.assertIn("--access-policy=/srv/cohort/access-policy.json", service.words, name)

    def test_workers_serve_a_socket_in_their_container(self):
        for name, service in self.services.items():
            if name.startswith("worker-"):
                self.assertIn(f"--listen={WORKER_SOCKET}", service.words)
                self.assertEqual(service.tmpfs, ["/run/cohort"])

    def test_files_that_are_mounted_are_there(self):
        for service in self.services.values():
            for source, _ in service.volumes:
                self.assertTrue(not source.startswith("/") or os.path.exists(source), source)

    def test_workers_that_tests_use_are_there(self):
        environment = self.services["tests"].environment
        self.assertEqual(environment["COHORT_FORM"], "remote")
        workers = [word.split(":")[0] for word in environment["COHORT_WORKERS"].split()]
        self.assertEqual(workers, [name for name in self.services if name.startswith("worker-")])
        self.assertEqual(environment["COHORT_COORDINATOR"], "coordinator:7700")

    def test_dockerfiles_are_there(self):
        with open(self.path, encoding="utf-8") as file:
            services = yaml.safe_load(file)["services"]
        for service in services.values():
            name = os.path.basename(service["build"]["dockerfile"])
            with open(os.path.join(DOCKER, name), encoding="utf-8") as dockerfile:
                text = dockerfile.read()
            self.assertRegex(text, rf"(?m)^FROM \S+ AS {service['build']['target']}$")

    def test_grace_is_longer_than_the_drain(self):
        for name, service in self.services.items():
            for word in service.words:
                match = re.fullmatch(r"--drain-grace=(\w+)", word)
                if match:
                    self.assertGreater(service.grace, compose_file.seconds(match[1]), name)

    def test_what_is_not_known_is_an_error(self):
        known = {"entrypoint": ["x"]}
        compose_file.Service("x", known, HERE)
        with self.assertRaisesRegex(compose_file.Error, "service x: unknown: ports"):
            compose_file.Service("x", {**known, "ports": ["1:1"]}, HERE)

    def test_interpolation(self):
        os.environ["COHORT_COMPOSE_TEST"] = "set"
        os.environ.pop("COHORT_COMPOSE_ABSENT", None)
        text = ["${COHORT_COMPOSE_TEST:-no} ${COHORT_COMPOSE_ABSENT:-else} $$1"]
        self.assertEqual(compose_file.interpolate(text), ["set else $1"])


def stages(name):
    """(base, stage name, instructions) of each stage of a Dockerfile."""
    with open(os.path.join(DOCKER, name), encoding="utf-8") as file:
        text = file.read().replace("\\\n", "")
    return re.findall(r"(?ms)^FROM (\S+)(?: AS (\S+))?$(.*?)(?=^FROM |\Z)", text)


class DockerfileTest(unittest.TestCase):
    stages = {stage: (base, body) for base, stage, body in stages("Dockerfile")}

    def test_commands_are_taken_by_the_programs(self):
        for name, program in (("coordinator", "cohort-coordinator"), ("worker", "cohort-worker")):
            with self.subTest(name):
                _, body = self.stages[name]
                (entrypoint,) = re.findall(r"(?m)^ENTRYPOINT (.*)$", body)
                (command,) = re.findall(r"(?m)^CMD (.*)$", body)
                self.assertEqual(json.loads(entrypoint), [program])
                check_config(self, program, json.loads(command))
                self.assertRegex(body, r"(?m)^USER [1-9]\d*:[1-9]\d*$")

    def test_the_drain_ends_before_docker_stop_kills(self):
        """A drain with stuck calls takes all of its time; two seconds are left for the end."""
        for name in ("coordinator", "worker"):
            (command,) = re.findall(r"(?m)^CMD (.*)$", self.stages[name][1])
            flags = json.loads(command)
            self.assertIn("--drain-grace", flags, name)
            grace = compose_file.seconds(flags[flags.index("--drain-grace") + 1])
            docker_stop = compose_file.Service("x", {"entrypoint": ["x"]}, HERE).grace
            self.assertLessEqual(grace, docker_stop - 2, name)

    def test_the_worker_serves_the_socket_that_the_documents_name(self):
        _, body = self.stages["worker"]
        self.assertIn(f'"--listen", "{WORKER_SOCKET}"', body)
        self.assertIn("\nVOLUME /run/cohort\n", body)
        with open(os.path.join(HERE, "..", "README.md"), encoding="utf-8") as file:
            self.assertIn(f"cohort worker show {WORKER_SOCKET}`", file.read())

    def test_the_documents_name_the_user_who_reads_the_certificates(self):
        with open(os.path.join(HERE, "..", "README.md"), encoding="utf-8") as file:
            (user,) = re.findall(r"chown -R (\d+) ", file.read())
        for name in ("coordinator", "worker"):
            self.assertIn(f"\nUSER {user}:", self.stages[name][1])

    def test_images_come_from_one_compile_and_from_debian_alone(self):
        self.assertEqual(list(self.stages), ["build", "coordinator", "worker", "tests"])
        for name, (base, body) in self.stages.items():
            self.assertIn(base, ("debian:12", "debian:12-slim", "scratch"), name)
            self.assertEqual("bazel build" in body, name == "build", name)
            self.assertLessEqual(set(re.findall(r"--from=(\S+)", body)), {"build"}, name)

    def test_images_have_labels_of_oci(self):
        with open(os.path.join(HERE, "..", "..", "CHANGELOG.md"), encoding="utf-8") as file:
            version = re.search(r"(?m)^## (\d+\.\d+\.\d+)", file.read())[1]
        with open(os.path.join(DOCKER, "Dockerfile"), encoding="utf-8") as file:
            self.assertEqual(re.findall(r"(?m)^ARG VERSION=(.*)$", file.read().split("FROM ")[0]), [version])

        def labels(body):
            return dict(re.findall(r'org\.opencontainers\.image\.(\w+)="([^"]*)"', body))

        for name, (_, body) in self.stages.items():
            if name != "build":
                wanted = {"title": f"cohort-{name}", "version": "$VERSION", "licenses": "Apache-2.0"}
                self.assertEqual(labels(body), wanted)
                self.assertIn("\nARG VERSION\n", body)
        # It has the others from the image that it builds on.
        ((_, _, watch),) = stages("watch.Dockerfile")
        self.assertEqual(labels(watch), {"title": "cohort-watch"})

    def test_nothing_replaces_libraries_of_debian(self):
        base, body = self.stages["tests"]
        self.assertEqual(base, "debian:12-slim")
        ((_, target),) = re.findall(r"(?m)^COPY --from=build (\S+) (\S+)$", body)
        self.assertEqual(target, "/opt/cohort")
        self.assertIn(f"ENV PATH={target}/bin:", body)

    def test_the_watch_adds_to_the_image_of_the_tests(self):
        ((base, _, body),) = stages("watch.Dockerfile")
        self.assertEqual(base, "cohort-tests")
        self.assertIn("/bin/kubectl", body)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
