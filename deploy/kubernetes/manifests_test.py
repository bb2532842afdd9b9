#!/usr/bin/env python3
"""Without a cluster: whether the manifests can be read, the files that they name exist, and programs take
their flags. One file, though long: all tests read the same manifests, each of them across several files.

    manifests_test.py PROGRAM...       # those that are built; their flags are tried
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

from manifests import (
    ALSO_IN_IMAGES,
    HERE,
    Manifests,
    PROGRAMS,
    WORKLOADS,
    duration,
    flag,
    kustomization,
    pod_template,
    read,
    resources,
)
import yaml  # after it: without PyYAML, it has ended the process


NAMESPACE = kustomization(os.path.join(HERE, "base"))["namespace"]


def calls(container):
    """(host, port) of each address of a daemon in its arguments and environment. All workers stand for one."""
    texts = container.get("args", []) + [env.get("value", "") for env in container.get("env", [])]
    found = re.findall(r"(cohort-(?:[a-z0-9.-]|\{rank\})+):(\d+)", " ".join(texts))
    return [(host.replace("{rank}", "0"), int(port)) for host, port in found]


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

    def test_workers_prefer_nodes_of_their_own(self):
        (workers,) = [each for each in self.manifests.of("StatefulSet") if each["metadata"]["name"] == "cohort-worker"]
        (spread,) = pod_template(workers)["spec"]["topologySpreadConstraints"]
        self.assertEqual(spread["topologyKey"], "kubernetes.io/hostname")
        # More workers than nodes start, too.
        self.assertEqual(spread["whenUnsatisfiable"], "ScheduleAnyway")
        self.assertEqual(spread["labelSelector"], workers["spec"]["selector"])

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
                ports = {port["name"] for port in pods[0]["containers"][0].get("ports", [])}
                for rule in spec.get("ingress", []):
                    for port in rule.get("ports", []):
                        self.assertIn(port["port"], ports)

    def admits(self, daemon, port, pod, namespace):
        """Whether its policy admits a pod with these labels. `namespace`: the labels of another one, or None."""
        (policy,) = [each for each in self.manifests.of("NetworkPolicy") if each["metadata"]["name"] == daemon]

        def matches(selector, labels):
            return selector["matchLabels"].items() <= labels.items()

        def is_of(peer):
            if ("namespaceSelector" in peer) != (namespace is not None):
                return False
            if namespace is not None and not matches(peer["namespaceSelector"], namespace):
                return False
            return matches(peer["podSelector"], pod)

        return any(
            ("ports" not in rule or {"port": port} in rule["ports"])
            and ("from" not in rule or any(is_of(peer) for peer in rule["from"]))
            for rule in policy["spec"]["ingress"]
        )

    def test_clients_of_other_namespaces_need_the_label_on_the_pod_and_on_the_namespace(self):
        member = {"cohort.dev/member": "true"}
        for daemon in ("cohort-coordinator", "cohort-worker"):
            self.assertTrue(self.admits(daemon, "grpc", member, None), daemon)
            self.assertTrue(self.admits(daemon, "grpc", {"app.kubernetes.io/part-of": "cohort"}, None), daemon)
            self.assertTrue(self.admits(daemon, "grpc", member, member), daemon)
            self.assertFalse(self.admits(daemon, "grpc", {}, None), daemon)
            self.assertFalse(self.admits(daemon, "grpc", member, {}), daemon)
            self.assertFalse(self.admits(daemon, "grpc", {}, member), daemon)
            self.assertFalse(self.admits(daemon, "grpc", {"app.kubernetes.io/part-of": "cohort"}, {}), daemon)
            self.assertTrue(self.admits(daemon, "metrics", {}, {}), daemon)
        # The ports of ranks have no names.
        self.assertTrue(self.admits("cohort-worker", 45678, member, member))
        self.assertFalse(self.admits("cohort-worker", 45678, {}, member))
        self.assertFalse(self.admits("cohort-coordinator", 45678, member, member))
        with open(os.path.join(HERE, "..", "README.md"), encoding="utf-8") as file:
            self.assertIn("kubectl label namespace NAMESPACE cohort.dev/member=true", file.read())

    def test_pods_that_only_call_admit_nothing(self):
        policies = [policy["spec"] for policy in self.manifests.of("NetworkPolicy")]
        for name, labels, spec in self.manifests.pods():
            mine = [each for each in policies if each["podSelector"]["matchLabels"].items() <= labels.items()]
            self.assertEqual([each["policyTypes"] for each in mine], [["Ingress"]], name)
            serves = any("ports" in container for container in spec["containers"])
            self.assertEqual("ingress" in mine[0], serves, name)

    def test_a_restart_needs_no_registry(self):
        """Without a tag, the default is to pull an image at each start."""
        for name, _, container in self.manifests.containers():
            self.assertEqual(container["imagePullPolicy"], "IfNotPresent", name)

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
                if kind in container and ports:
                    probe = ["cohort-health", f"127.0.0.1:{ports['grpc']}"]
                    self.assertEqual(container[kind]["exec"]["command"], probe, f"{name}: {kind}")
                    # The probe itself gives up after two seconds.
                    self.assertGreater(container[kind]["timeoutSeconds"], 2, f"{name}: {kind}")
            if ports:
                self.assertIn("livenessProbe", container, name)
                self.assertEqual(flag(container, "listen"), f"[::]:{ports['grpc']}")
                self.assertEqual(flag(container, "metrics-listen"), f"[::]:{ports['metrics']}")

    def test_the_watch_is_ready_while_it_may_ask_the_coordinator(self):
        (watch,) = self.manifests.of("Deployment")
        for container in pod_template(watch)["spec"]["containers"]:
            # Nothing mends a watch that cannot reach the coordinator, so it is not restarted for that.
            self.assertNotIn("livenessProbe", container)
            probe = container["readinessProbe"]
            program, *arguments = probe["exec"]["command"]
            self.assertEqual((program, arguments[:-1]), ("cohort", ["can-i", "WhoIsMissing"]))
            self.assertGreater(probe["timeoutSeconds"], duration(arguments[-1].removeprefix("--timeout=")))

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
        return {name for document in self.manifests.of("Certificate") for name in document["spec"].get("dnsNames", [])}

    def test_clients_call_the_names_in_the_certificates(self):
        for name, _, container in self.manifests.containers():
            for host, _ in calls(container):
                self.assertTrue({host, "*." + host.split(".", 1)[-1]} & self.certified(), f"{name}: {host}")

    def test_one_name_is_for_any_number_of_workers(self):
        """OpenSSL and gRPC refuse an asterisk with one dot behind it, as in *.cohort-worker."""
        (names,) = [
            document["spec"]["dnsNames"]
            for document in self.manifests.of("Certificate")
            if document["metadata"]["name"] == "cohort-worker"
        ]
        self.assertFalse([name for name in names if re.search(r"\d", name)])
        (name,) = [name for name in names if "*" in name]
        with tempfile.TemporaryDirectory() as folder:
            subprocess.run([os.path.join(HERE, "..", "certificates.sh"), folder, f"worker=DNS:{name}"], check=True)

            def fits(host):
                done = subprocess.run(
                    ["openssl", "x509", "-noout", "-checkhost", host, "-in", f"{folder}/worker/tls.crt"],
                    capture_output=True,
                    text=True,
                    timeout=30,
                    check=True,
                )
                return "does match" in done.stdout

            for rank in (0, 11):
                self.assertTrue(fits(name.replace("*", f"cohort-worker-{rank}")))
            self.assertFalse(fits(name.replace("*", "a.b")))
        self.assertGreaterEqual(name.count("."), 2)

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
        services = [service["metadata"]["name"] for service in self.manifests.of("Service")]
        # A worker's name is below its service's.
        names = {f"*.{name}" if name == "cohort-worker" else name for name in services}
        self.assertLessEqual({f"{name}.{NAMESPACE}.svc" for name in names}, self.certified())

    def test_addresses_are_those_of_services(self):
        ports = {
            service["metadata"]["name"]: {port["port"] for port in service["spec"]["ports"]}
            for service in self.manifests.of("Service")
        }
        count = 0
        for name, _, container in self.manifests.containers():
            for host, port in calls(container):
                service = host.removesuffix(f".{NAMESPACE}.svc").split(".")[-1]
                self.assertIn(port, ports.get(service, {}), f"{name}: {host}:{port}")
                count += 1
        self.assertGreaterEqual(count, 5)

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
        (job,) = Manifests(resources(self.folder)).of("CronJob")
        args = pod_template(job)["spec"]["containers"][0]["args"]
        workers = [arg for arg in args if arg.startswith("--worker=")]
        self.assertEqual(workers, [f"--worker=cohort-worker-{{rank}}.cohort-worker.{NAMESPACE}.svc:7800"])
        self.assertIn("--members=$(WORKERS)", args)

    def test_the_number_of_workers_has_one_place(self):
        (entry,) = kustomization(self.folder)["replicas"]
        documents = Manifests(resources(os.path.join(HERE, "overlays", "supervised")))
        places = {}
        for overlay in ("example", "supervised"):
            (replacement,) = kustomization(os.path.join(HERE, "overlays", overlay))["replacements"]
            source = {"kind": "StatefulSet", "name": entry["name"], "fieldPath": "spec.replicas"}
            self.assertEqual(replacement["source"], source)
            for target in replacement["targets"]:
                places[target["select"]["name"]] = target["fieldPaths"]
        wanted = {}
        for name, _, container in documents.containers():
            numbers = [env for env in container.get("env", []) if env["name"] == "WORKERS"]
            if numbers:
                # As rendered, so that the file reads well.
                self.assertEqual(numbers, [{"name": "WORKERS", "value": str(entry["count"])}])
                wanted.setdefault(name, []).append(f"[name={container['name']}].env.[name=WORKERS].value")
            self.assertFalse([arg for arg in container.get("args", []) if re.search(r"cohort-worker-\d", arg)], name)
        self.assertEqual(set(wanted), {"cohort-perf", "cohort-watch"})
        for name, paths in places.items():
            self.assertEqual([path.split("containers.")[1] for path in paths], wanted[name])

    def test_all_pods_may_pull_from_a_registry_with_a_password(self):
        documents = Manifests(resources(os.path.join(HERE, "overlays", "supervised")))
        accounts = {account["metadata"]["name"]: account for account in documents.of("ServiceAccount")}
        for name, _, spec in documents.pods():
            secrets = accounts[spec.get("serviceAccountName", "default")]["imagePullSecrets"]
            self.assertEqual(secrets, [{"name": "cohort-registry"}], name)
        self.assertIs(accounts["default"]["automountServiceAccountToken"], False)
        with open(os.path.join(HERE, "..", "README.md"), encoding="utf-8") as file:
            self.assertIn("create secret docker-registry cohort-registry ", file.read())

    def test_the_job_can_be_applied_again(self):
        """A Job's template is immutable, that of a CronJob is not."""
        documents = Manifests(resources(self.folder))
        self.assertFalse(documents.of("Job"))
        (job,) = documents.of("CronJob")
        self.assertIs(job["spec"]["suspend"], True)
        self.assertGreater(job["spec"]["jobTemplate"]["spec"]["ttlSecondsAfterFinished"], 0)

    def render(self, workers):
        """The supervised overlay with this number of workers, which is changed in one place."""
        with tempfile.TemporaryDirectory() as home:
            # A copy: in a sandbox, files are links, which kustomize does not follow.
            for folder in ("base", "overlays"):
                shutil.copytree(os.path.join(HERE, folder), os.path.join(home, folder))
            path = os.path.join(home, "overlays", "example", "kustomization.yaml")
            with open(path, encoding="utf-8") as file:
                text = file.read()
            self.assertEqual(text.count("count: 8"), 1)
            os.chmod(path, 0o644)
            with open(path, "w", encoding="utf-8") as file:
                file.write(text.replace("count: 8", f"count: {workers}"))
            done = subprocess.run(
                ["kubectl", "kustomize", os.path.join(home, "overlays", "supervised")],
                env={**os.environ, "HOME": home},
                capture_output=True,
                text=True,
                timeout=60,
                check=False,
            )
        self.assertEqual(done.returncode, 0, done.stderr)
        return Manifests([document for document in yaml.safe_load_all(done.stdout) if document])

    @unittest.skipIf(shutil.which("kubectl") is None, "no kubectl here to render it")
    def test_another_number_of_workers_needs_one_edit(self):
        rendered = self.render(11)
        sets = {document["metadata"]["name"]: document for document in rendered.of("StatefulSet")}
        self.assertEqual(sets["cohort-worker"]["spec"]["replicas"], 11)
        numbers = [
            env["value"]
            for _, _, container in rendered.containers()
            for env in container.get("env", [])
            if env["name"] == "WORKERS"
        ]
        self.assertEqual(numbers, ["11"] * len(numbers))
        self.assertGreaterEqual(len(numbers), 2)
        (role,) = rendered.of("Role")
        self.assertIn("cohort-worker-10", role["rules"][0]["resourceNames"])

    @unittest.skipIf(shutil.which("kubectl") is None, "no kubectl here to render it")
    def test_kubectl_renders_it(self):
        rendered = self.render(8)
        for document in rendered.documents:
            cluster_wide = document["kind"] == "Namespace"
            self.assertEqual(document["metadata"].get("namespace"), None if cluster_wide else NAMESPACE)
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


class HostFolderOverlayTest(unittest.TestCase):
    """The patches apply to the documents as they are, so that a test needs no kubectl."""

    folder = os.path.join(HERE, "overlays", "host-folder")

    def test_workers_have_the_folder_that_they_name(self):
        changes = {change["path"]: change["value"] for change in read(os.path.join(self.folder, "worker.yaml"))[0]}
        container = "/spec/template/spec/containers/0"
        variable, mount = changes[f"{container}/env/-"], changes[f"{container}/volumeMounts/-"]
        volume = changes["/spec/template/spec/volumes/-"]
        self.assertEqual(variable, {"name": "COHORT_HOST_FOLDER", "value": mount["mountPath"]})
        self.assertEqual(mount["name"], volume["name"])
        self.assertEqual(volume["hostPath"]["type"], "Directory")

    def test_what_it_changes_is_there(self):
        documents = resources(self.folder)
        there = {(document["kind"], document["metadata"]["name"]) for document in documents}
        for patch in kustomization(self.folder)["patches"]:
            self.assertIn((patch["target"]["kind"], patch["target"]["name"]), there)
        (namespace,) = [document for document in documents if document["kind"] == "Namespace"]
        for change in read(os.path.join(self.folder, "namespace.yaml"))[0]:
            label = change["path"].split("/")[-1].replace("~1", "/")
            self.assertEqual(change["op"] == "replace", label in namespace["metadata"]["labels"])

    def test_the_readme_tells_how_a_node_gets_the_folder(self):
        (change,) = [
            change for change in read(os.path.join(self.folder, "worker.yaml"))[0] if "hostPath" in change["value"]
        ]
        with open(os.path.join(HERE, "..", "README.md"), encoding="utf-8") as file:
            self.assertIn(f"d {change['value']['hostPath']['path']} 1777", file.read())


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
