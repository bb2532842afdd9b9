#!/usr/bin/env python3
"""The commands of the supervised overlay, with a real group.

    supervised_test.py PROGRAM...      # cohort, cohort-coordinator
"""

import json
import os
import subprocess
import sys
import tempfile
import time
import unittest

from manifests import HERE, Manifests, PROGRAMS, kustomization, pod_template, read, resources


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
        (workers,) = [env["value"] for env in container["env"] if env["name"] == "WORKERS"]
        variables, _ = self.start_group()
        variables["WORKERS"] = workers
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
        wanted = {f"delete pod --wait=false --request-timeout=30s cohort-worker-{rank}" for rank in range(2)}
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
        (account,) = [each for each in self.manifests.of("ServiceAccount") if each["metadata"]["name"] != "default"]
        (watch,) = self.manifests.of("Deployment")
        (rule,) = role["rules"]
        self.assertEqual((rule["resources"], rule["verbs"]), (["pods"], ["delete"]))
        # A rule has no selector, and names of pods that do not exist do no harm.
        self.assertEqual(rule["resourceNames"], [f"cohort-worker-{rank}" for rank in range(64)])
        overlay = kustomization(os.path.join(HERE, "overlays", "example"))
        (count,) = [entry["count"] for entry in overlay["replicas"] if entry["name"] == "cohort-worker"]
        self.assertLessEqual(count, len(rule["resourceNames"]))
        self.assertEqual(binding["roleRef"]["name"], role["metadata"]["name"])
        self.assertEqual([subject["name"] for subject in binding["subjects"]], [account["metadata"]["name"]])
        self.assertEqual(watch["spec"]["template"]["spec"]["serviceAccountName"], account["metadata"]["name"])


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
