#!/usr/bin/env python3
"""Without a cluster: whether the manifests can be read, the files that they name exist, and programs take
their flags.

    manifests_test.py PROGRAM...       # those that are built; their flags are tried
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

try:
    import yaml
except ImportError:
    print("SKIPPED: no PyYAML here; Debian's package is python3-yaml")
    sys.exit(0)

HERE = os.path.dirname(os.path.abspath(__file__))
PROGRAMS = {os.path.basename(path): os.path.abspath(path) for path in sys.argv[1:]}
# The programs of an image beside its own one.
ALSO_IN_IMAGES = {"cohort", "cohort-health"}


def read(path):
    with open(path, encoding="utf-8") as file:
        return [document for document in yaml.safe_load_all(file) if document]


def kustomization(folder):
    (document,) = read(os.path.join(folder, "kustomization.yaml"))
    return document


def resources(folder):
    """All documents of a kustomization, those that it builds on included, as they are written."""
    documents = []
    for name in kustomization(folder)["resources"]:
        path = os.path.join(folder, name)
        documents += resources(path) if os.path.isdir(path) else read(path)
    return documents


def duration(text):
    return int(re.fullmatch(r"(\d+)s", text)[1])


def flag(container, name):
    return next((arg.split("=", 1)[1] for arg in container.get("args", []) if arg.startswith(f"--{name}=")), None)


WORKLOADS = ("StatefulSet", "CronJob", "Deployment")


def pod_template(workload):
    spec = workload["spec"]
    return spec.get("jobTemplate", {"spec": spec})["spec"]["template"]


class Manifests:
    def __init__(self, documents):
        self.documents = documents

    def of(self, *kinds):
        return [document for document in self.documents if document["kind"] in kinds]

    def pods(self):
        """(name, labels, spec) of each template."""
        for workload in self.of(*WORKLOADS):
            template = pod_template(workload)
            yield workload["metadata"]["name"], template["metadata"]["labels"], template["spec"]

    def containers(self):
        for name, _, spec in self.pods():
            for container in spec["containers"]:
                yield name, spec, container

    def selected(self, labels):
        return [spec for _, own, spec in self.pods() if labels.items() <= own.items()]


class ManifestsTest(unittest.TestCase):
    # It builds on overlays/example.
    manifests = Manifests(resources(os.path.join(HERE, "overlays", "supervised")))

    def test_names_are_unique(self):
        names = [(document["kind"], document["metadata"]["name"]) for document in self.manifests.documents]
        self.assertEqual(len(names), len(set(names)))
        self.assertGreaterEqual(len(names), 9)

    def test_services_select_pods_with_such_ports(self):
        for service in self.manifests.of("Service"):
            with self.subTest(service["metadata"]["name"]):
                pods = self.manifests.selected(service["spec"]["selector"])
                self.assertEqual(len(pods), 1)
                ports = {port["name"]: port["containerPort"] for port in pods[0]["containers"][0]["ports"]}
                for port in service["spec"]["ports"]:
                    self.assertEqual(ports.get(port["targetPort"]), port["port"])

    def test_sets_have_a_headless_service_and_select_their_own_pods(self):
        services = {service["metadata"]["name"]: service for service in self.manifests.of("Service")}
        for workload in self.manifests.of("StatefulSet"):
            with self.subTest(workload["metadata"]["name"]):
                spec = workload["spec"]
                self.assertEqual(services[spec["serviceName"]]["spec"]["clusterIP"], "None")
                own = spec["template"]["metadata"]["labels"]
                self.assertLessEqual(spec["selector"]["matchLabels"].items(), own.items())
                self.assertLessEqual(services[spec["serviceName"]]["spec"]["selector"].items(), own.items())

    def test_stubs_reach_the_coordinator_at_an_address_that_stays(self):
        services = {service["metadata"]["name"]: service["spec"] for service in self.manifests.of("Service")}
        stable, headless = services["cohort-coordinator-stable"], services["cohort-coordinator"]
        self.assertNotIn("clusterIP", stable)
        self.assertEqual(stable["selector"], headless["selector"])

    def test_one_coordinator_and_workers_at_once(self):
        sets = {workload["metadata"]["name"]: workload["spec"] for workload in self.manifests.of("StatefulSet")}
        self.assertEqual(sets["cohort-coordinator"]["replicas"], 1)
        self.assertEqual(sets["cohort-worker"]["podManagementPolicy"], "Parallel")
        # A new version breaks a group once, and not once for each worker.
        self.assertEqual(sets["cohort-worker"]["updateStrategy"], {"type": "OnDelete"})

    def test_a_disk_of_the_node_can_hold_the_journal(self):
        """Its volumes, which no CSI driver provides, offer ReadWriteOnce and not ReadWriteOncePod."""
        for workload in self.manifests.of("StatefulSet"):
            for claim in workload["spec"].get("volumeClaimTemplates", []):
                self.assertEqual(claim["spec"]["accessModes"], ["ReadWriteOnce"])

    def test_policies_and_budgets_select_pods(self):
        for document in self.manifests.of("NetworkPolicy", "PodDisruptionBudget"):
            with self.subTest(document["metadata"]["name"]):
                spec = document["spec"]
                pods = self.manifests.selected(spec.get("podSelector", spec.get("selector"))["matchLabels"])
                self.assertEqual(len(pods), 1)
                ports = {port["name"] for port in pods[0]["containers"][0]["ports"]}
                for rule in spec.get("ingress", []):
                    for port in rule.get("ports", []):
                        self.assertIn(port["port"], ports)

    def test_mounts_have_their_volumes(self):
        for workload in self.manifests.of(*WORKLOADS):
            spec = pod_template(workload)["spec"]
            volumes = {volume["name"] for volume in spec.get("volumes", [])}
            volumes |= {claim["metadata"]["name"] for claim in workload["spec"].get("volumeClaimTemplates", [])}
            mounted = set()
            for container in spec["containers"]:
                mounted |= {mount["name"] for mount in container.get("volumeMounts", [])}
            self.assertEqual(mounted, volumes, workload["metadata"]["name"])

    def test_files_that_programs_write_are_on_volumes(self):
        for name, _, container in self.manifests.containers():
            mounts = [mount["mountPath"] for mount in container.get("volumeMounts", [])]
            written = [arg.split("unix:", 1)[1] for arg in container.get("args", []) if "=unix:" in arg]
            written += [path for path in [flag(container, "journal-path")] if path]
            for path in written:
                self.assertTrue(any(path.startswith(mount + "/") for mount in mounts), f"{name}: {path}")

    def test_probes_and_listeners_are_the_ports(self):
        for name, _, container in self.manifests.containers():
            ports = {port["name"]: port["containerPort"] for port in container.get("ports", [])}
            for kind in ("startupProbe", "readinessProbe", "livenessProbe"):
                if kind in container:
                    probe = ["cohort-health", f"127.0.0.1:{ports['grpc']}"]
                    self.assertEqual(container[kind]["exec"]["command"], probe, f"{name}: {kind}")
                    # The probe itself gives up after two seconds.
                    self.assertGreater(container[kind]["timeoutSeconds"], 2, f"{name}: {kind}")
            if ports:
                self.assertIn("livenessProbe", container, name)
                self.assertEqual(flag(container, "listen"), f"[::]:{ports['grpc']}")
                self.assertEqual(flag(container, "metrics-listen"), f"[::]:{ports['metrics']}")

    def test_daemons_and_clients_have_the_files_of_a_certificate(self):
        secrets = {document["spec"]["secretName"] for document in self.manifests.of("Certificate")}
        for name, spec, container in self.manifests.containers():
            with self.subTest(name):
                (volume,) = [volume for volume in spec["volumes"] if volume["name"] == "tls"]
                self.assertIn(volume["secret"]["secretName"], secrets)
                # The key is for the group of the program.
                self.assertEqual(volume["secret"]["defaultMode"], 0o440)
                self.assertEqual(spec["securityContext"]["fsGroup"], spec["securityContext"]["runAsGroup"])
                (mount,) = [mount for mount in container["volumeMounts"] if mount["name"] == "tls"]
                files = [mount["mountPath"] + file for file in ("/ca.crt", "/tls.crt", "/tls.key")]
                if container["command"][0] in ("cohort-coordinator", "cohort-worker"):
                    names = ("tls-client-ca", "tls-certificate", "tls-key")
                    self.assertEqual([flag(container, name) for name in names], files)
                if container["command"][0] != "cohort-coordinator":
                    values = {env["name"]: env.get("value") for env in container["env"]}
                    names = ("COHORT_TLS_CA", "COHORT_TLS_CERTIFICATE", "COHORT_TLS_KEY")
                    self.assertEqual([values[name] for name in names], files)

    def certified(self):
        """The names in the certificates of overlays/example."""
        names = {name for document in self.manifests.of("Certificate") for name in document["spec"].get("dnsNames", [])}
        for file in ("coordinator-names.yaml", "worker-names.yaml"):
            (patch,) = read(os.path.join(HERE, "overlays", "example", file))
            names |= {change["value"] for change in patch}
        return names

    def test_clients_call_the_names_in_the_certificates(self):
        for name, _, container in self.manifests.containers():
            texts = container.get("args", []) + [env.get("value", "") for env in container.get("env", [])]
            for host in re.findall(r"(cohort-[a-z0-9.-]+):\d+", " ".join(texts)):
                self.assertIn(host, self.certified(), name)

    def test_the_commands_without_cert_manager_make_the_same_certificates(self):
        with open(os.path.join(HERE, "..", "README.md"), encoding="utf-8") as file:
            (commands,) = re.findall(r"(?ms)^deploy/certificates.sh FOLDER .*?^done$", file.read())
        made = {}
        with tempfile.TemporaryDirectory() as place:
            # In the place of the programs, a script that reports its arguments, one in a line.
            for program in ("certificates", "kubectl"):
                with open(os.path.join(place, program), "w", encoding="utf-8") as file:
                    file.write("#!/bin/sh\nprintf '%s\\n' \"$@\"\n")
                os.chmod(os.path.join(place, program), 0o755)
            output = subprocess.run(
                ["bash", "-ec", commands.replace("deploy/certificates.sh", "certificates")],
                env={**os.environ, "PATH": f"{place}:{os.environ['PATH']}"},
                capture_output=True,
                text=True,
                timeout=30,
                check=True,
            ).stdout.split("\n")
        for line in output:
            match = re.fullmatch(r"([a-z]+)=(.*)", line)
            if match:
                made[f"cohort-{match[1]}-tls"] = set(match[2].split(","))
        wanted = {}
        for certificate in self.manifests.of("Certificate"):
            spec = certificate["spec"]
            if not spec.get("isCA"):
                wanted[spec["secretName"]] = {f"DNS:{name}" for name in spec.get("dnsNames", [])}
                wanted[spec["secretName"]] |= {f"URI:{name}" for name in spec.get("uris", [])}
        self.assertEqual(made, wanted)
        for secret in wanted:
            self.assertIn(secret, output)
            self.assertIn(f"--from-file=FOLDER/{secret.split('-')[1]}", output)

    def test_certificates_have_the_names_for_other_namespaces(self):
        namespace = kustomization(os.path.join(HERE, "overlays", "example"))["namespace"]
        services = [service["metadata"]["name"] for service in self.manifests.of("Service")]
        # A worker's name is below its service's.
        names = {f"*.{name}" if name == "cohort-worker" else name for name in services}
        self.assertLessEqual({f"{name}.{namespace}.svc" for name in names}, self.certified())

    def test_addresses_are_those_of_services(self):
        ports = {
            service["metadata"]["name"]: {port["port"] for port in service["spec"]["ports"]}
            for service in self.manifests.of("Service")
        }
        count = 0
        for name, _, container in self.manifests.containers():
            texts = container.get("args", []) + [env.get("value", "") for env in container.get("env", [])]
            for host, port in re.findall(r"(cohort-[a-z0-9.-]+):(\d+)", " ".join(texts)):
                service = host.split(".")[-1]
                self.assertIn(int(port), ports.get(service, {}), f"{name}: {host}:{port}")
                count += 1
        self.assertGreaterEqual(count, 10)

    def test_pods_are_confined_and_end_in_time(self):
        for name, spec, container in self.manifests.containers():
            with self.subTest(name):
                self.assertIs(spec["securityContext"]["runAsNonRoot"], True)
                self.assertGreater(spec["securityContext"]["runAsUser"], 0)
                own = container["securityContext"]
                self.assertIs(own["readOnlyRootFilesystem"], True)
                self.assertIs(own["allowPrivilegeEscalation"], False)
                self.assertEqual(own["capabilities"]["drop"], ["ALL"])
                self.assertIn("memory", container["resources"]["limits"])
                self.assertIn("requests", container["resources"])
                grace = flag(container, "drain-grace")
                if grace is not None:
                    self.assertGreater(spec["terminationGracePeriodSeconds"], duration(grace))

    def test_programs_take_their_flags(self):
        for name, _, container in self.manifests.containers():
            program = container["command"][0]
            if program == "bash":
                continue  # SupervisedTest runs it
            self.assertTrue(program in ALSO_IN_IMAGES or program == container["image"], f"{name}: {program}")
            if program not in PROGRAMS or program == "cohort":
                print(f"{name}: {program} is not given, its flags are not tried")
                continue
            with tempfile.TemporaryDirectory() as folder:
                done = subprocess.run(
                    [PROGRAMS[program], *container["args"], "--check-config"],
                    cwd=folder,
                    capture_output=True,
                    text=True,
                    timeout=30,
                    check=False,
                )
            self.assertEqual(done.returncode, 0, f"{name}: {done.stderr}")


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
            time.sleep(0.05)
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

        def may(name, *arguments, address=coordinator, with_tls=True):
            done = subprocess.run(
                [PROGRAMS["cohort"], *arguments, "--timeout=20s"],
                env={**os.environ, "COHORT_COORDINATOR": address, **(variables(name) if with_tls else {})},
                capture_output=True,
                text=True,
                timeout=60,
                check=False,
            )
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
        self.assertFalse(may("other", "group", "list"))
        self.assertFalse(may("anonymous", "group", "list", with_tls=False))
        socket = f"unix:{folder}/coordinator.sock"
        self.assertTrue(may("operator", "limits", address=socket, with_tls=False))
        self.assertTrue(may("operator", "worker", "show", f"unix:{folder}/worker.sock", with_tls=False))
        if "cohort-health" in PROGRAMS:
            for address in (coordinator, worker):
                subprocess.run([PROGRAMS["cohort-health"], address], check=True)


class SupervisedTest(unittest.TestCase):
    """The watch, with a real group of two ranks that wait for each other."""

    manifests = Manifests(resources(os.path.join(HERE, "overlays", "supervised")))

    def start(self, command, **options):
        process = subprocess.Popen(command, text=True, stderr=subprocess.DEVNULL, **options)
        self.addCleanup(process.communicate)
        self.addCleanup(process.kill)
        return process

    def run_cohort(self, *arguments, **variables):
        return subprocess.run(
            [PROGRAMS["cohort"], *arguments],
            env={**os.environ, **variables},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    def until(self, code, *arguments, **variables):
        """Runs the command until it exits with `code`, for 30 seconds at most. Returns its output."""
        deadline = time.monotonic() + 30
        while True:
            done = self.run_cohort(*arguments, **variables)
            if done.returncode == code or time.monotonic() > deadline:
                self.assertEqual(done.returncode, code, f"{arguments}: {done.stdout}{done.stderr}")
                return done.stdout

    def start_group(self):
        """Returns the variables of the workers, and the process of rank 1."""
        if not {"cohort", "cohort-coordinator"} <= PROGRAMS.keys():
            self.skipTest("cohort and cohort-coordinator are not given")
        place = tempfile.TemporaryDirectory()
        self.addCleanup(place.cleanup)
        address = f"unix:{place.name}/coordinator"
        self.start(
            [PROGRAMS["cohort-coordinator"], "--listen", address, "--metrics-listen", ""], stdout=subprocess.DEVNULL
        )
        variables = {"COHORT_COORDINATOR": address}
        for rank in range(2):
            receive = ["object", "recv", "trainer", "--world-size=2", f"--rank={rank}", f"--from={1 - rank}"]
            last = self.start(
                [PROGRAMS["cohort"], *receive, "--timeout=2m"],
                env={**os.environ, **variables},
                stdout=subprocess.DEVNULL,
            )
        self.until(3, "who-is-missing", "trainer", "--rank=1", **variables)
        return variables, last

    def watch_container(self, name):
        (watch,) = self.manifests.of("Deployment")
        (container,) = [each for each in pod_template(watch)["spec"]["containers"] if each["name"] == name]
        return container

    def fake_kubectl(self):
        """In the place of kubectl, a script that reports its arguments. Returns its folder and the file of reports."""
        place = tempfile.TemporaryDirectory()
        self.addCleanup(place.cleanup)
        calls = os.path.join(place.name, "calls")
        os.mkfifo(calls)
        kubectl = os.path.join(place.name, "kubectl")
        with open(kubectl, "w", encoding="utf-8") as file:
            file.write(f'#!/bin/sh\necho "$@" > {calls}\n')
        os.chmod(kubectl, 0o755)
        return place.name, calls

    def test_the_watch_deletes_the_pod_of_a_lost_rank(self):
        container = self.watch_container("lost")
        variables, rank = self.start_group()
        place, calls = self.fake_kubectl()
        # It begins with an event of the past, which shows that it watches.
        revision = json.loads(self.run_cohort("group", "show", "trainer", "--json", **variables).stdout)["revision"]
        process = self.start(
            [PROGRAMS["cohort"], *container["args"], f"--from={revision - 1}"],
            env={**os.environ, **variables, "PATH": f"{place}:{os.environ['PATH']}"},
            stdout=subprocess.PIPE,
        )
        # Rank 1 may still have been on its way.
        next(line for line in process.stdout if "active" in line)
        rank.kill()
        with open(calls, encoding="utf-8") as file:
            self.assertEqual(file.read(), "delete pod --wait=false cohort-worker-1\n")

    def test_the_watch_deletes_the_pods_for_which_the_group_waits(self):
        container = self.watch_container("missing")
        (script,) = container["args"]
        overlay = kustomization(os.path.join(HERE, "overlays", "example"))
        (count,) = [entry["count"] for entry in overlay["replicas"] if entry["name"] == "cohort-worker"]
        self.assertIn(f"{{0..{count - 1}}}", script)
        variables, _ = self.start_group()
        place, calls = self.fake_kubectl()
        os.symlink(PROGRAMS["cohort"], os.path.join(place, "cohort"))
        # The same, without waiting for five minutes.
        soon = script.replace("--older-than=5m", "--older-than=100ms").replace("pause=390", "pause=0.1")
        self.assertEqual(soon.count("100ms"), 2)
        self.start(
            [*container["command"], soon],
            env={**os.environ, **variables, "PATH": f"{place}:{os.environ['PATH']}"},
            stdout=subprocess.DEVNULL,
        )
        wanted = {f"delete pod --wait=false cohort-worker-{rank}" for rank in range(2)}
        seen = set()
        while not wanted <= seen:
            with open(calls, encoding="utf-8") as file:
                seen.update(file.read().splitlines())
        self.assertEqual(seen, wanted)

    def test_the_watch_leaves_the_probes_of_the_daemons(self):
        overlay = kustomization(os.path.join(HERE, "overlays", "supervised"))
        self.assertNotIn("patches", overlay)

    def test_the_watch_may_delete_the_workers_and_nothing_else(self):
        (role,) = self.manifests.of("Role")
        (binding,) = self.manifests.of("RoleBinding")
        (account,) = self.manifests.of("ServiceAccount")
        (watch,) = self.manifests.of("Deployment")
        (rule,) = role["rules"]
        self.assertEqual((rule["resources"], rule["verbs"]), (["pods"], ["delete"]))
        overlay = kustomization(os.path.join(HERE, "overlays", "example"))
        (count,) = [entry["count"] for entry in overlay["replicas"] if entry["name"] == "cohort-worker"]
        self.assertEqual(rule["resourceNames"], [f"cohort-worker-{rank}" for rank in range(count)])
        self.assertEqual(binding["roleRef"]["name"], role["metadata"]["name"])
        self.assertEqual([subject["name"] for subject in binding["subjects"]], [account["metadata"]["name"]])
        self.assertEqual(watch["spec"]["template"]["spec"]["serviceAccountName"], account["metadata"]["name"])


class OverlayTest(unittest.TestCase):
    folder = os.path.join(HERE, "overlays", "example")

    def test_what_it_changes_is_there(self):
        overlay = kustomization(self.folder)
        documents = Manifests(resources(self.folder))
        images = {container["image"] for _, _, container in documents.containers()}
        self.assertEqual({image["name"] for image in overlay["images"]}, images)
        sets = {document["metadata"]["name"] for document in documents.of("StatefulSet")}
        self.assertLessEqual({entry["name"] for entry in overlay["replicas"]}, sets)
        for patch in overlay["patches"]:
            self.assertTrue(read(os.path.join(self.folder, patch["path"])))
            self.assertIn(patch["target"]["name"], sets)

    def test_the_job_uses_all_workers(self):
        overlay = kustomization(self.folder)
        (count,) = [entry["count"] for entry in overlay["replicas"] if entry["name"] == "cohort-worker"]
        (job,) = Manifests(resources(self.folder)).of("CronJob")
        args = pod_template(job)["spec"]["containers"][0]["args"]
        workers = [arg for arg in args if arg.startswith("--worker=")]
        self.assertEqual(workers, [f"--worker=cohort-worker-{i}.cohort-worker:7800" for i in range(count)])
        self.assertIn(f"--members={count}", args)

    def test_the_job_can_be_applied_again(self):
        """A Job's template is immutable, that of a CronJob is not."""
        documents = Manifests(resources(self.folder))
        self.assertFalse(documents.of("Job"))
        (job,) = documents.of("CronJob")
        self.assertIs(job["spec"]["suspend"], True)
        self.assertGreater(job["spec"]["jobTemplate"]["spec"]["ttlSecondsAfterFinished"], 0)

    @unittest.skipIf(shutil.which("kubectl") is None, "no kubectl here to render it")
    def test_kubectl_renders_it(self):
        with tempfile.TemporaryDirectory() as home:
            done = subprocess.run(
                # A copy: in a sandbox, files are links, which kustomize does not follow.
                [
                    "sh",
                    "-ec",
                    f'cp -RL "{HERE}/base" "{HERE}/overlays" "{home}"; kubectl kustomize "{home}/overlays/supervised"',
                ],
                env={**os.environ, "HOME": home},
                capture_output=True,
                text=True,
                timeout=60,
                check=False,
            )
        self.assertEqual(done.returncode, 0, done.stderr)
        rendered = Manifests([document for document in yaml.safe_load_all(done.stdout) if document])
        sets = {document["metadata"]["name"]: document for document in rendered.of("StatefulSet")}
        self.assertEqual(sets["cohort-worker"]["spec"]["replicas"], 8)
        claim = sets["cohort-coordinator"]["spec"]["volumeClaimTemplates"][0]
        self.assertEqual(claim["spec"]["storageClassName"], "local-ssd")
        (worker,) = sets["cohort-worker"]["spec"]["template"]["spec"]["containers"]
        self.assertEqual(worker["livenessProbe"]["exec"]["command"][0], "cohort-health")
        self.assertEqual(worker["readinessProbe"]["exec"]["command"][0], "cohort-health")
        for _, labels, _ in rendered.pods():
            self.assertTrue("app.kubernetes.io/part-of" in labels or "cohort.dev/member" in labels)
        for _, _, container in rendered.containers():
            self.assertTrue(container["image"].startswith("registry.example.com/"))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
