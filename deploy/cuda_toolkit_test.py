#!/usr/bin/env python3
"""bootstrap.sh and cuda_toolkit.py on small wheels, with the real pip and without a network.

    cuda_toolkit_test.py
"""

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import unittest
import zipfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
import cuda_toolkit  # noqa: E402

# As in Debian's packages; another Python in the path may have no pip.
PYTHON = "/usr/bin/python3"
LIMIT = 60
RUNTIME = {
    "include/cuda_runtime.h": "the machine's",
    "include/crt/host_config.h": "the machine's",
    "lib64/libcudart_static.a": "the machine's",
}
COMPLETE = {**RUNTIME, "include/nccl.h": "the machine's"}
# The members of each wheel. Libraries and most headers of CCCL are not kept.
WHEELS = {
    "nvidia-nccl-cu13": ["nvidia/nccl/include/nccl.h", "nvidia/nccl/lib/libnccl.so.2"],
    "nvidia-cuda-runtime": [
        "nvidia/cu13/include/cuda_runtime.h",
        "nvidia/cu13/include/cuda_fp16.hpp",
        "nvidia/cu13/include/cooperative_groups/details/scan.h",
        "nvidia/cu13/lib/libcudart.so.13",
        "nvidia/cu13/lib/libcudart_static.a",
    ],
    "nvidia-cuda-crt": ["nvidia/cu13/include/crt/host_config.h"],
    "nvidia-cuda-cccl": [
        "nvidia/cu13/include/nv/detail/__preprocessor",
        "nvidia/cu13/include/cccl/nv/target",
        "nvidia/cu13/include/cccl/cub/cub.cuh",
    ],
}


def write(root, files):
    for path, text in files.items():
        path = os.path.join(root, path)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)


def files_of(root):
    return sorted(
        os.path.relpath(os.path.join(folder, name), root)
        for folder, _, names in os.walk(root, followlinks=True)
        for name in names
    )


def read(*path):
    with open(os.path.join(*path), encoding="utf-8") as file:
        return file.read()


class CudaToolkitTest(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp(dir=os.environ.get("TEST_TMPDIR"))
        self.addCleanup(shutil.rmtree, self.folder)
        self.cache = os.path.join(self.folder, "home/.cache/cohort-cuda")
        self.system = os.path.join(self.folder, "system")
        self.wheels = os.path.join(self.folder, "wheels")
        self.deploy = os.path.join(self.folder, "deploy")
        os.makedirs(self.wheels)
        os.makedirs(self.deploy)
        for name in ("bootstrap.sh", "cuda_toolkit.py"):
            shutil.copy(os.path.join(HERE, name), self.deploy)
        self.edit("cuda_toolkit.py", f'"{cuda_toolkit.SYSTEM}"', f'"{self.system}"')
        # This test is not about packages.
        write(self.deploy, {"packages.txt": ""})
        self.make_wheels("1.0")

    def edit(self, name, old, new):
        text = read(self.deploy, name)
        self.assertIn(old, text)
        with open(os.path.join(self.deploy, name), "w", encoding="utf-8") as file:
            file.write(text.replace(old, new))

    def make_wheels(self, version):
        lines = []
        for name, members in WHEELS.items():
            file_name = f"{name.replace('-', '_')}-{version}"
            path = os.path.join(self.wheels, f"{file_name}-py3-none-any.whl")
            with zipfile.ZipFile(path, "w") as wheel:
                for member in members:
                    wheel.writestr(member, f"{name} {version}")
                about = f"{file_name}.dist-info"
                wheel.writestr(
                    f"{about}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
                )
                wheel.writestr(
                    f"{about}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
                )
                wheel.writestr(f"{about}/RECORD", "")
            with open(path, "rb") as file:
                digest = hashlib.sha256(file.read()).hexdigest()
            lines.append(f"{name}=={version} \\\n    --hash=sha256:{digest}")
        write(self.deploy, {"cuda_wheels.txt": "# A comment.\n" + "\n\n".join(lines) + "\n"})

    def run_program(self, command, environment):
        base = {
            "PATH": "/usr/sbin:/usr/bin:/sbin:/bin",
            "HOME": os.path.join(self.folder, "home"),
            "PIP_CONFIG_FILE": os.devnull,
            "PIP_NO_INDEX": "1",
            "PIP_FIND_LINKS": self.wheels,
        }
        return subprocess.run(
            command,
            env={**base, **environment},
            capture_output=True,
            text=True,
            timeout=LIMIT,
            check=False,
        )

    def bootstrap(self, **environment):
        return self.run_program([os.path.join(self.deploy, "bootstrap.sh")], environment)

    def find(self, **environment):
        program = os.path.join(self.deploy, "cuda_toolkit.py")
        return self.run_program([PYTHON, program, "find"], environment)

    def expect_made(self, **environment):
        done = self.bootstrap(**environment)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("bootstrap: made ", done.stdout)

    def expect_nothing_to_do(self, **environment):
        done = self.bootstrap(PIP_FIND_LINKS="", **environment)
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "", ""))

    def test_an_empty_machine_gets_headers_and_the_archive_from_wheels(self):
        self.expect_made()
        self.assertEqual(
            files_of(self.cache),
            [
                "include/cccl/nv/target",
                "include/crt/host_config.h",
                "include/cuda_fp16.hpp",
                "include/cuda_runtime.h",
                "include/nccl.h",
                "include/nv/detail/__preprocessor",
                "lib64/libcudart_static.a",
                "made-of",
            ],
        )
        self.assertEqual(self.find().stdout.strip(), self.cache)
        self.assertEqual(os.listdir(os.path.dirname(self.cache)), ["cohort-cuda"], "left behind")
        self.expect_nothing_to_do()

    def test_a_machine_with_a_runtime_keeps_it_and_gets_the_header_of_nccl(self):
        write(self.system, RUNTIME)
        self.expect_made()
        self.assertEqual(read(self.cache, "include/cuda_runtime.h"), "the machine's")
        self.assertEqual(read(self.cache, "include/crt/host_config.h"), "the machine's")
        self.assertEqual(read(self.cache, "lib64/libcudart_static.a"), "the machine's")
        self.assertEqual(read(self.cache, "include/nccl.h"), "nvidia-nccl-cu13 1.0")
        self.expect_nothing_to_do()

    def test_a_folder_of_the_users_choice(self):
        chosen = os.path.join(self.folder, "chosen")
        self.expect_made(COHORT_CUDA_CACHE=chosen)
        self.assertEqual(self.find(COHORT_CUDA_CACHE=chosen).stdout.strip(), chosen)
        self.assertFalse(os.path.exists(self.cache))

    def test_a_complete_toolkit_needs_no_network(self):
        write(self.system, COMPLETE)
        self.expect_nothing_to_do()
        self.assertFalse(os.path.exists(self.cache))

    def test_the_first_complete_toolkit_is_taken(self):
        home = os.path.join(self.folder, "cuda-home")
        self.expect_made()
        self.assertEqual(self.find(CUDA_HOME=home).stdout.strip(), self.cache)
        write(self.system, COMPLETE)
        write(home, RUNTIME)
        self.assertEqual(self.find(CUDA_HOME=home).stdout.strip(), self.system)
        write(home, COMPLETE)
        self.assertEqual(self.find(CUDA_HOME=home).stdout.strip(), home)

    def test_without_a_toolkit_it_fails_and_says_what_to_do(self):
        write(self.system, RUNTIME)
        home = os.path.join(self.folder, "cuda-home")
        done = self.find(CUDA_HOME=home)
        self.assertEqual((done.returncode, done.stdout), (1, ""))
        self.assertIn(f"{home} does not exist", done.stderr)
        self.assertIn(f"{self.system} lacks include/nccl.h;", done.stderr)
        self.assertIn(f"{self.cache} does not exist", done.stderr)
        self.assertIn("Run deploy/bootstrap.sh", done.stderr)
        self.assertIn("COHORT_WITHOUT_GPU=1", done.stderr)

        done = self.bootstrap(PIP_FIND_LINKS="")
        self.assertNotEqual(done.returncode, 0)
        self.assertIn(f"{self.system} lacks include/nccl.h;", done.stderr)
        self.assertIn("pip could not download nvidia-nccl-cu13==1.0", done.stderr)
        self.assertIn("COHORT_WITHOUT_GPU=1", done.stderr)
        self.assertFalse(os.path.exists(self.cache))

    def test_a_build_without_gpu_code_is_asked_for_by_name(self):
        for program in (self.bootstrap, self.find):
            done = program(PIP_FIND_LINKS="", COHORT_WITHOUT_GPU="1")
            self.assertEqual((done.returncode, done.stdout), (0, ""), done.stderr)
            self.assertIn("leaves GPU code out", done.stderr)
            done = program(PIP_FIND_LINKS="", COHORT_WITHOUT_GPU="0")
            self.assertNotEqual(done.returncode, 0)
            done = program(PIP_FIND_LINKS="", COHORT_WITHOUT_GPU="yes")
            self.assertNotEqual(done.returncode, 0)
            self.assertIn("COHORT_WITHOUT_GPU is 'yes', expected 1", done.stderr)

    def test_a_wheel_with_another_hash_is_refused(self):
        with zipfile.ZipFile(
            os.path.join(self.wheels, "nvidia_nccl_cu13-1.0-py3-none-any.whl"), "a"
        ) as wheel:
            wheel.writestr("nvidia/nccl/include/more.h", "")
        done = self.bootstrap()
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("THESE PACKAGES DO NOT MATCH THE HASHES", done.stderr)
        self.assertFalse(os.path.exists(self.cache))
        self.assertEqual(os.listdir(os.path.dirname(self.cache)), [], "left behind")

    def test_it_is_made_again_when_its_sources_change(self):
        self.expect_made()
        self.make_wheels("1.1")
        self.expect_made()
        self.assertEqual(read(self.cache, "include/nccl.h"), "nvidia-nccl-cu13 1.1")
        write(self.system, RUNTIME)
        self.expect_made()
        self.assertEqual(read(self.cache, "include/cuda_runtime.h"), "the machine's")
        os.remove(os.path.join(self.cache, "include/nccl.h"))
        self.expect_made()
        shutil.rmtree(self.system)
        self.expect_made()
        self.assertEqual(read(self.cache, "include/cuda_runtime.h"), "nvidia-cuda-runtime 1.1")
        self.assertEqual(os.listdir(os.path.dirname(self.cache)), ["cohort-cuda"], "left behind")
        self.expect_nothing_to_do()

    def test_a_folder_with_other_files_is_left_alone(self):
        write(self.cache, {"thesis.tex": "mine"})
        done = self.bootstrap()
        self.assertNotEqual(done.returncode, 0)
        self.assertIn(f"{self.cache} is not empty and not from bootstrap", done.stderr)
        self.assertEqual(files_of(self.cache), ["thesis.tex"])

    def test_each_wheel_that_is_named_has_a_version_and_hashes(self):
        lines = cuda_toolkit.requirements()
        self.assertEqual(set(lines), set(WHEELS))
        for name, line in lines.items():
            self.assertRegex(line, rf"^{name}==[0-9.]+( --hash=sha256:[0-9a-f]{{64}}){{2}}$")


if __name__ == "__main__":
    unittest.main()
