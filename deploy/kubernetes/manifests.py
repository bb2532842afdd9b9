"""The manifests as documents, and the programs of the command line. Without PyYAML the process ends here, with 0."""

import os
import re
import sys

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
