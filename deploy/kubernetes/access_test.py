#!/usr/bin/env python3
"""The access policy, in the daemons with their arguments.

    access_test.py PROGRAM...          # cohort, cohort-coordinator, cohort-worker
"""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import unittest

from manifests import HERE, Manifests, PROGRAMS, flag, pod_template, resources


class AccessTest(unittest.TestCase):
    """The access policy, in the daemons with their arguments, whose files and addresses are those of the test."""

    manifests = Manifests(resources(os.path.join(HERE, "overlays", "supervised")))

    def policy(self):
        (config,) = self.manifests.of("ConfigMap")
        return config["data"]["policy.json"]

    def test_each_client_has_an_identity_and_a_role(self):
        rules = {}
        for rule in json.loads(self.policy())["rules"]:
            rules.setdefault(rule["identity"], []).append((rule["tenant"], rule["role"]))
        identities = {uri for document in self.manifests.of("Certificate") for uri in document["spec"].get("uris", [])}
        (operator,) = rules.keys() - identities
        self.assertEqual([rule for rule in sum(rules.values(), []) if "operator" in rule], rules[operator])
        self.assertEqual(identities, rules.keys() - {operator})
        for _, spec, container in self.manifests.containers():
            self.assertEqual(operator, f"uid:{spec['securityContext']['runAsUser']}")
            if container["command"][0] in ("cohort-coordinator", "cohort-worker"):
                (mount,) = [mount for mount in container["volumeMounts"] if mount["name"] == "access"]
                self.assertEqual(flag(container, "access-policy"), f"{mount['mountPath']}/policy.json")
        volumes = [volume for _, _, spec in self.manifests.pods() for volume in spec["volumes"]]
        secrets = [volume["secret"]["secretName"] for volume in volumes if "secret" in volume]
        self.assertEqual(len(secrets), len(set(secrets)))

    def start_daemon(self, program, folder, coordinator="", **variables):
        """Starts it with its arguments in the manifest. Returns its address."""
        (container,) = [each for _, _, each in self.manifests.containers() if each["command"] == [program]]
        name = program.removeprefix("cohort-")
        arguments = [re.sub(r"\[::\]:\d+$", "localhost:0", argument) for argument in container["args"]]
        own = {"/etc/cohort/tls": name, "/etc/cohort/access": "access", "/var/lib/cohort": "", "/run/cohort": ""}
        for place, mine in own.items():
            arguments = [argument.replace(place, os.path.join(folder, mine)) for argument in arguments]
        ports = os.path.join(folder, f"{name}.port")
        arguments = [argument.replace("cohort-coordinator:7700", coordinator) for argument in arguments]
        arguments += ["--port-file", ports]
        with open(os.path.join(folder, f"{name}.log"), "w", encoding="utf-8") as log:
            process = subprocess.Popen([PROGRAMS[program], *arguments], env={**os.environ, **variables}, stderr=log)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        deadline = time.monotonic() + 30
        while not os.path.exists(ports):
            if process.poll() is not None or time.monotonic() > deadline:
                with open(log.name, encoding="utf-8") as log:
                    self.fail(f"{program} does not start: {log.read()}")
            os.sched_yield()
        with open(ports, encoding="utf-8") as file:
            return "localhost:" + file.readline().strip().rsplit(":", 1)[1]

    def test_each_identity_may_do_its_work_and_no_more(self):
        if not {"cohort", "cohort-coordinator", "cohort-worker"} <= PROGRAMS.keys():
            self.skipTest("the programs are not given")
        folder = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, folder)
        # A ConfigMap's files are links.
        os.makedirs(os.path.join(folder, "access", "..data"))
        with open(os.path.join(folder, "access", "..data", "policy.json"), "w", encoding="utf-8") as file:
            file.write(self.policy().replace("uid:65532", f"uid:{os.getuid()}"))
        os.symlink("..data/policy.json", os.path.join(folder, "access", "policy.json"))
        names = ["coordinator=DNS:localhost", "worker=URI:spiffe://cohort/worker,DNS:localhost"]
        names += [f"{name}=URI:spiffe://cohort/{name}" for name in ("client", "perf", "watch", "prometheus", "other")]
        subprocess.run([os.path.join(HERE, "..", "certificates.sh"), folder, *names], check=True)

        def variables(name):
            files = {"CA": "ca.crt", "CERTIFICATE": "tls.crt", "KEY": "tls.key"}
            return {f"COHORT_TLS_{key}": os.path.join(folder, name, file) for key, file in files.items()}

        coordinator = self.start_daemon("cohort-coordinator", folder)
        worker = self.start_daemon("cohort-worker", folder, coordinator, **variables("worker"))

        def run(name, *arguments, address=coordinator, with_tls=True):
            return subprocess.run(
                [PROGRAMS["cohort"], *arguments],
                env={**os.environ, "COHORT_COORDINATOR": address, **(variables(name) if with_tls else {})},
                capture_output=True,
                text=True,
                timeout=60,
                check=False,
            )

        def may(name, *arguments, **options):
            done = run(name, *arguments, "--timeout=20s", **options)
            # A probe exits with 0 if it is denied.
            denied = "PERMISSION_DENIED" in done.stderr
            self.assertTrue(denied or done.returncode == 0, f"{name} {arguments}: {done.stdout}{done.stderr}")
            return not denied

        barrier = ("barrier", "g", "--rank=0", "--world-size=1")
        perf = ("perf", "all_reduce", "--sizes=8", "--iterations=1", "--members=2", "--form=remote")
        perf += (f"--worker={worker}",) * 2
        for name in ("client", "perf"):
            self.assertTrue(may(name, *barrier), name)
            self.assertTrue(may(name, *perf), name)
            self.assertTrue(may(name, "worker", "show", worker), name)
            self.assertFalse(may(name, *barrier, "--tenant=other"), name)
            self.assertFalse(may(name, "limits"), name)
        for name in ("watch", "prometheus"):
            self.assertTrue(may(name, "group", "list"), name)
            self.assertFalse(may(name, *barrier), name)
        for name in ("client", "watch"):
            self.assertTrue(may(name, "who-is-missing", "g", "--probe"), name)
        (watch,) = self.manifests.of("Deployment")
        for container in pod_template(watch)["spec"]["containers"]:
            probe = container["readinessProbe"]["exec"]["command"][1:]
            self.assertEqual(run("watch", *probe).returncode, 0)
            self.assertNotEqual(run("other", *probe).returncode, 0)
        self.assertFalse(may("other", "group", "list"))
        self.assertFalse(may("anonymous", "group", "list", with_tls=False))
        socket = f"unix:{folder}/coordinator.sock"
        self.assertTrue(may("operator", "limits", address=socket, with_tls=False))
        self.assertTrue(may("operator", "worker", "show", f"unix:{folder}/worker.sock", with_tls=False))
        if "cohort-health" in PROGRAMS:
            for address in (coordinator, worker):
                subprocess.run([PROGRAMS["cohort-health"], address], check=True)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
