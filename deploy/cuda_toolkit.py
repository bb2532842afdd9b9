#!/usr/bin/env python3
"""Finds the CUDA toolkit that GPU code is built with, and makes one where the machine has none.

    deploy/cuda_toolkit.py find    # prints the root of the first complete toolkit, else exits with 1
    deploy/cuda_toolkit.py make    # as bootstrap.sh calls it: makes a toolkit if none is complete

A toolkit is complete if it has the CUDA runtime and NCCL's header. Three places are looked at, in
order: $CUDA_HOME, /usr/local/cuda, and $COHORT_CUDA_CACHE (default: ~/.cache/cohort-cuda). `make`
fills the last one. It links the machine's runtime, if there is one, and takes the rest from the
wheels in cuda_wheels.txt; it keeps headers and the runtime's archive, at most 7 MiB.

With COHORT_WITHOUT_GPU=1 both succeed without a toolkit, and the build leaves GPU code out.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile

SYSTEM = "/usr/local/cuda"
RUNTIME = ("include/cuda_runtime.h", "lib64/libcudart_static.a")
NEEDED = RUNTIME + ("include/nccl.h",)
NCCL = "nvidia-nccl-cu13"
WHEELS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "cuda_wheels.txt")
# Lies in a folder that `make` has filled: the runtime it links, and the wheels it came from.
MADE_OF = "made-of"
DOWNLOAD_SECONDS = 900

# The members of wheels that are kept, and the folder of the toolkit where each goes.
KEPT = (
    (re.compile(r"nvidia/nccl/include/(nccl\.h)"), "include"),
    (re.compile(r"nvidia/cu\d+/include/([^/]+\.(?:h|hpp)|crt/[^/]+|(?:cccl/)?nv/.+)"), "include"),
    (re.compile(r"nvidia/cu\d+/lib/(libcudart_static\.a)"), "lib64"),
)


class Failure(Exception):
    """Its text names the missing files and the remedy."""


def without_gpu():
    value = os.environ.get("COHORT_WITHOUT_GPU", "")
    if value not in ("", "0", "1"):
        raise Failure(f"COHORT_WITHOUT_GPU is {value!r}, expected 1 (no GPU code), 0 or nothing")
    return value == "1"


def cache():
    """The folder that `make` fills."""
    folder = os.environ.get("COHORT_CUDA_CACHE") or os.path.expanduser("~/.cache/cohort-cuda")
    return os.path.abspath(folder)


def installed():
    """The places where a user installs a toolkit."""
    home = os.environ.get("CUDA_HOME")
    return ([home] if home else []) + [SYSTEM]


def lacks(root, files=NEEDED):
    return [file for file in files if not os.path.isfile(os.path.join(root, file))]


def find():
    """The root of the first complete toolkit, or None."""
    return next((root for root in installed() + [cache()] if not lacks(root)), None)


def what_is_missing():
    parts = []
    for root in installed() + [cache()]:
        if os.path.isdir(root):
            parts.append(f"{root} lacks {', '.join(lacks(root))}")
        else:
            parts.append(f"{root} does not exist")
    return "no CUDA toolkit with NCCL's header: " + "; ".join(parts)


def requirements():
    """The lines of cuda_wheels.txt, by the name of the wheel."""
    with open(WHEELS, encoding="utf-8") as file:
        text = file.read().replace("\\\n", " ")
    lines = [" ".join(line.split()) for line in text.splitlines()]
    return {line.split("==")[0]: line for line in lines if line and not line.startswith("#")}


def download(lines, folder):
    """Downloads the wheels of these requirements into `folder`, and returns their paths."""
    listed = os.path.join(folder, "requirements.txt")
    with open(listed, "w", encoding="utf-8") as file:
        file.write("\n".join(lines) + "\n")
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-input", "--no-cache-dir"]
    command += ["--disable-pip-version-check", "--progress-bar", "off", "--no-deps"]
    command += ["--only-binary", ":all:", "--require-hashes", "-r", listed, "-d", folder]
    names = ", ".join(line.split()[0] for line in lines)
    try:
        code = subprocess.run(command, check=False, timeout=DOWNLOAD_SECONDS).returncode
    except subprocess.TimeoutExpired:
        code = f"no answer within {DOWNLOAD_SECONDS} s"
    wheels = [os.path.join(folder, name) for name in os.listdir(folder) if name.endswith(".whl")]
    if code != 0 or len(wheels) != len(lines):
        raise Failure(
            f"{what_is_missing()}. pip could not download {names} ({code}). Is the network there? "
            "COHORT_WITHOUT_GPU=1 builds without GPU code."
        )
    return wheels


def unpack(wheel, root):
    with zipfile.ZipFile(wheel) as archive:
        for member in archive.namelist():
            for pattern, folder in KEPT:
                match = pattern.fullmatch(member)
                if match is None or ".." in member.split("/"):
                    continue
                path = os.path.join(root, folder, match.group(1))
                os.makedirs(os.path.dirname(path), exist_ok=True)
                with archive.open(member) as source, open(path, "wb") as target:
                    shutil.copyfileobj(source, target)


def link_runtime(runtime, root):
    """Links the machine's headers and archive, so that a program gets the runtime of its driver."""
    os.makedirs(os.path.join(root, "include"))
    os.makedirs(os.path.join(root, "lib64"))
    for name in os.listdir(os.path.join(runtime, "include")):
        os.symlink(os.path.join(runtime, "include", name), os.path.join(root, "include", name))
    archive = "lib64/libcudart_static.a"
    os.symlink(os.path.join(runtime, archive), os.path.join(root, archive))


def read(path):
    try:
        with open(path, encoding="utf-8") as file:
            return file.read()
    except OSError:
        return None


def replace(made, target):
    """Puts the folder `made` where `target` is. Removes no folder but one that `make` has filled."""
    if os.path.isdir(target) and os.listdir(target):
        if not os.path.isfile(os.path.join(target, MADE_OF)):
            raise Failure(f"{target} is not empty and not from bootstrap; name another COHORT_CUDA_CACHE")
        os.rename(target, made + ".old")
    os.rename(made, target)


def make():
    """Makes the toolkit in the cache, unless one is complete and up to date. Returns a line about its work."""
    if any(not lacks(root) for root in installed()):
        return None
    target = cache()
    runtime = next((os.path.realpath(r) for r in installed() if not lacks(r, RUNTIME)), None)
    wanted = requirements()
    lines = [wanted[NCCL]] if runtime else list(wanted.values())
    made_of = "\n".join([f"runtime {runtime or 'from wheels'}", *lines]) + "\n"
    if not lacks(target) and read(os.path.join(target, MADE_OF)) == made_of:
        return None

    began = time.monotonic()
    os.makedirs(os.path.dirname(target), exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="cohort-cuda.", dir=os.path.dirname(target)) as scratch:
        wheels = download(lines, scratch)
        size = sum(os.path.getsize(wheel) for wheel in wheels)
        made = os.path.join(scratch, "made")
        os.makedirs(made)
        if runtime:
            link_runtime(runtime, made)
        for wheel in wheels:
            unpack(wheel, made)
        with open(os.path.join(made, MADE_OF), "w", encoding="utf-8") as file:
            file.write(made_of)
        if lacks(made):
            raise Failure(f"the wheels in {WHEELS} lack {', '.join(lacks(made))}")
        replace(made, target)
    names = ", ".join(line.split()[0] for line in lines)
    seconds = time.monotonic() - began
    return f"made {target} from {names}: {size >> 20} MiB downloaded, {seconds:.0f} s"


def main(arguments):
    if arguments not in (["find"], ["make"]):
        print(__doc__, file=sys.stderr)
        return 2
    try:
        if without_gpu():
            print("COHORT_WITHOUT_GPU=1: the build leaves GPU code out", file=sys.stderr)
        elif arguments == ["make"]:
            said = make()
            if said:
                print(f"bootstrap: {said}")
        elif find():
            print(find())
        else:
            raise Failure(
                f"{what_is_missing()}. Run deploy/bootstrap.sh, which takes missing packages from PyPI, "
                "or set COHORT_WITHOUT_GPU=1 to build without GPU code."
            )
    except (Failure, OSError, zipfile.BadZipFile) as failure:
        print(f"{os.path.basename(sys.argv[0])}: {failure}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
