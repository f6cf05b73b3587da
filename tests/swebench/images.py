"""Images that look like the published ones, made on this machine: a Debian with git and pytest."""

from __future__ import annotations

import fcntl
import hashlib
import io
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from .. import sandbox
from .projects import Project

_PACKAGES = "python3,git,python3-pytest,patch"
_SUITE = "bookworm"
_ACTIVATE = """\
conda() {
    [ "$1" = activate ] || return 1
    export CONDA_DEFAULT_ENV=$2 PATH="/opt/miniconda3/envs/$2/bin:$PATH"
}
"""
_BASHRC = """\
source /opt/miniconda3/bin/activate
conda activate testbed
"""
_PYTEST = """\
#!/bin/sh
exec /usr/bin/python3 -m pytest -p no:cacheprovider "$@"
"""


def image_of(project: Project) -> str:
    """Make the image of a project unless the daemon has it, give it its published name, and return that."""
    base = _base_image()
    name = f"agentcompass-test/swebench:{hashlib.sha256(f'{base} {project.key}'.encode()).hexdigest()[:12]}"
    with _one_process_at_a_time():
        if not _has(name):
            with tempfile.TemporaryDirectory() as folder:
                context = Path(folder)
                (context / "root.tar").write_bytes(_project_archive(project))
                (context / "Dockerfile").write_text(f"FROM {base}\nADD root.tar /\nWORKDIR /testbed\n")
                _docker("build", "-q", "-t", name, str(context))
        _docker("tag", name, project.image)
    return project.image


@contextmanager
def _one_process_at_a_time() -> Iterator[None]:
    """Let one of several test processes make an image while the others wait for it."""
    with (Path(tempfile.gettempdir()) / "agentcompass-test-images.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _base_image() -> str:
    recipe = f"{_SUITE} {_PACKAGES} {_ACTIVATE} {_BASHRC} {_PYTEST}"
    name = f"agentcompass-test/debian:{hashlib.sha256(recipe.encode()).hexdigest()[:12]}"
    with _one_process_at_a_time():
        if not _has(name):
            _make_base(name)
    return name


def _make_base(name: str) -> None:
    if shutil.which("debootstrap") is None:
        sandbox.skip("no debootstrap to make an image of (apt-get install debootstrap)")
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder) / "root"
        command = ["debootstrap", "--variant=minbase", f"--include={_PACKAGES}", _SUITE, str(root)]
        done = subprocess.run(command, check=False, capture_output=True, text=True)
        if done.returncode != 0:
            sandbox.skip(f"debootstrap cannot make an image: {done.stdout[-300:]}{done.stderr[-300:]}")
        for waste in ("var/cache/apt", "var/lib/apt/lists", "usr/share/doc", "usr/share/locale"):
            shutil.rmtree(root / waste, ignore_errors=True)
        conda = root / "opt/miniconda3"
        programs = conda / "envs/testbed/bin"
        (conda / "bin").mkdir(parents=True)
        programs.mkdir(parents=True)
        (conda / "bin/activate").write_text(_ACTIVATE)
        (root / "root/.bashrc").write_text(_BASHRC)
        (programs / "python").symlink_to("/usr/bin/python3")
        (programs / "pytest").write_text(_PYTEST)
        (programs / "pytest").chmod(0o755)
        with subprocess.Popen(["tar", "-C", str(root), "-c", "."], stdout=subprocess.PIPE) as tar:
            subprocess.run(["docker", "import", "-", name], stdin=tar.stdout, check=True, capture_output=True)


def _project_archive(project: Project) -> bytes:
    """Pack a work tree as /testbed."""
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as tar:
        for path in sorted(project.folder.rglob("*")):
            info = tar.gettarinfo(str(path), f"testbed/{path.relative_to(project.folder)}")
            info.uid = info.gid = 0
            info.uname = info.gname = ""
            info.mtime = 0
            if info.isreg():
                with path.open("rb") as file:
                    tar.addfile(info, file)
            else:
                tar.addfile(info)
    return stream.getvalue()


def _has(name: str) -> bool:
    done = subprocess.run(["docker", "image", "inspect", name], check=False, capture_output=True)
    return done.returncode == 0


def _docker(*arguments: str) -> None:
    done = subprocess.run(["docker", *arguments], check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
