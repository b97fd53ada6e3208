"""Builds the images without an engine and without a registry: `make image`, `make spark-image`.

python -m release.image          dist/pocketmq-VERSION-image.tar
python -m release.image spark    dist/pocketmq-VERSION-spark-image.tar, with Java and PySpark

Two layers: Python and its libraries from Debian's packages, without shell, package manager and documentation; then the wheel of
`make wheels` with its libraries. deploy/Containerfile describes a similar image for people who have an engine.

It needs root, because it calls the Python of the new tree by chroot to compile modules, and mmdebstrap.
"""

import argparse
import os
import shutil
import sys
import tempfile
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, NamedTuple

import pocketmq
from release.installs import DEBIAN, wheel_for
from release.oci import Owner, make_layer, names_below, write_image
from release.programs import ROOT, WHEELS, Failed, main_of, run, say, source_date

VERSION: Final = pocketmq.__version__
USER: Final = 10001
PYTHON: Final = "/usr/bin/python3.11"
SITE: Final = "usr/local/lib/python3.11/dist-packages"
PLATFORMS: Final = ("manylinux2014_x86_64", "manylinux_2_28_x86_64", "manylinux_2_34_x86_64")
"""Wheels that Debian's C library can load."""
PYTHON_PACKAGES: Final = ("python3.11-minimal", "libpython3.11-stdlib")
JAVA_PACKAGES: Final = ("openjdk-17-jre-headless", "bash", "coreutils", "procps", "dash")
"""Spark starts Java by scripts."""
NOT_NEEDED: Final = (
    *(
        "usr/share/locale",
        "usr/share/man",
        "usr/share/info",
        "usr/share/lintian",
        "usr/share/bug",
        "usr/share/doc-base",
    ),
    *("var/cache", "var/log", "var/lib/apt", "var/lib/dpkg", "usr/share/perl5", "usr/bin/dpkg", "usr/bin/dpkg-deb"),
    *(f"usr/lib/python3.11/{name}" for name in ("ensurepip", "idlelib", "lib2to3", "pydoc_data", "turtledemo", "test")),
)
HEALTH: Final = (
    "import os, socket; socket.create_connection(('127.0.0.1', int(os.environ['POCKETMQ_HEALTH_PORT'])), 3).close()"
)
ENVIRONMENT: Final = {
    "PATH": "/usr/local/bin:/usr/bin:/bin",
    "LANG": "C.UTF-8",
    "HOME": "/tmp",
    "POCKETMQ_HOST": "0.0.0.0",
    "POCKETMQ_DATA": "/data",
    "POCKETMQ_HEALTH_PORT": "10911",
}
SPARK_ENVIRONMENT: Final = {
    "JAVA_HOME": "/usr/lib/jvm/java-17-openjdk-amd64",
    "SPARK_HOME": "/opt/spark",
    "PYSPARK_PYTHON": PYTHON,
}
SECOND_NS: Final = 1_000_000_000


class Kind(NamedTuple):
    suffix: str
    packages: Sequence[str]
    extras: str
    environment: dict[str, str]
    largest_mb: int
    """The limit for the compressed size."""


KINDS: Final = {
    "broker": Kind("", PYTHON_PACKAGES, "speed,compression,prometheus,console", ENVIRONMENT, 70),
    "spark": Kind(
        "-spark",
        (*PYTHON_PACKAGES, *JAVA_PACKAGES),
        "speed,compression,prometheus,spark,schemas",
        ENVIRONMENT | SPARK_ENVIRONMENT,
        700,
    ),
}


def image_file(kind: Kind) -> Path:
    return WHEELS / f"pocketmq-{VERSION}{kind.suffix}-image.tar"


def image_name(kind: Kind) -> str:
    return f"pocketmq{kind.suffix}:{VERSION}"


def build(kind: Kind) -> Path:
    """Build the image file."""
    if os.geteuid() != 0 or shutil.which("mmdebstrap") is None:
        raise Failed("an image is built by root with mmdebstrap: apt-get install mmdebstrap")
    made_s = source_date()
    target = image_file(kind)
    with tempfile.TemporaryDirectory(prefix="pocketmq-image-") as folder:
        tree = Path(folder, "tree")
        run(["mmdebstrap", "--quiet", "--variant=extract", f"--include={','.join(kind.packages)}", DEBIAN, tree])
        prepare_system(tree)
        system = names_below(tree)
        install_program(tree, kind, Path(folder))
        owners = {"data": Owner(USER, USER)}
        layers = [
            make_layer(tree, system, made_s, owners),
            make_layer(tree, names_below(tree) - system, made_s, owners),
        ]
        made = datetime.fromtimestamp(made_s, UTC).isoformat().replace("+00:00", "Z")
        write_image(target, image_name(kind), layers, settings(kind), "amd64", made)
    size_mb = target.stat().st_size / 1e6
    if size_mb > kind.largest_mb:
        raise Failed(f"{target.name} has {size_mb:.0f} MB, more than {kind.largest_mb}")
    say(f"{target.name}: {size_mb:.1f} MB")
    return target


def prepare_system(tree: Path) -> None:
    for name in NOT_NEEDED:
        path = tree / name
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
    for path in (tree / "usr/share/doc").rglob("*"):
        if path.name != "copyright" and not path.is_dir():
            path.unlink()
    for name in ("data", "tmp", "var/tmp", "etc", "usr/bin", "opt"):
        (tree / name).mkdir(parents=True, exist_ok=True)
    (tree / "tmp").chmod(0o1777)
    (tree / "data").chmod(0o755)
    (tree / "etc/passwd").write_text(f"root:x:0:0::/:/sbin/nologin\npocketmq:x:{USER}:{USER}::/tmp:/sbin/nologin\n")
    (tree / "etc/group").write_text(f"root:x:0:\npocketmq:x:{USER}:\n")
    for name in ("python3", "python"):
        (tree / "usr/bin" / name).unlink(missing_ok=True)
        (tree / "usr/bin" / name).symlink_to("python3.11")
    compile_modules(tree, "/usr/lib/python3.11")


def install_program(tree: Path, kind: Kind, folder: Path) -> None:
    """The wheel and its libraries, for the Python of the tree."""
    built = folder / "wheels"
    built.mkdir()
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    pins = f"--constraint={ROOT / 'constraints.txt'}"
    if "spark" in kind.extras:  # distributed as source only
        run([*pip, "wheel", "--no-deps", pins, f"--wheel-dir={built}", "pyspark"], timeout_s=1800)
    options = [*(f"--platform={one}" for one in PLATFORMS), "--python-version=3.11", "--only-binary=:all:", pins]
    wanted = f"pocketmq[{kind.extras}] @ {wheel_for(PLATFORMS[0]).as_uri()}"
    where = [f"--find-links={built}", f"--target={tree / SITE}"]
    run([*pip, "install", "--no-compile", *options, *where, wanted], timeout_s=1800)
    shutil.rmtree(tree / SITE / "bin", ignore_errors=True)
    program = tree / "usr/local/bin/pocketmq"
    program.parent.mkdir(parents=True, exist_ok=True)
    program.write_text(f"#!{PYTHON}\nfrom pocketmq.cli import main\n\nmain()\n")
    program.chmod(0o755)
    if "SPARK_HOME" in kind.environment:
        (tree / "opt/spark").symlink_to(f"/{SITE}/pyspark")
    compile_modules(tree, f"/{SITE}")


def compile_modules(tree: Path, folder: str) -> None:
    """Users of the image cannot write, so Python would compile each module at each start."""
    options = ["-q", "--invalidation-mode", "unchecked-hash"]
    run(["chroot", tree, PYTHON, "-m", "compileall", *options, folder])


def settings(kind: Kind) -> dict[str, Any]:
    return {
        "User": f"{USER}:{USER}",
        "Env": [f"{name}={text}" for name, text in kind.environment.items()],
        "Entrypoint": [PYTHON, "-m", "pocketmq"],
        "Cmd": ["serve"],
        "WorkingDir": "/data",
        "Volumes": {"/data": {}},
        "ExposedPorts": {"9876/tcp": {}, "10911/tcp": {}},
        "StopSignal": "SIGTERM",
        "Healthcheck": {
            "Test": ["CMD", PYTHON, "-c", HEALTH],
            "Interval": 10 * SECOND_NS,
            "Timeout": 5 * SECOND_NS,
            "StartPeriod": 60 * SECOND_NS,
            "Retries": 3,
        },
        "Labels": {
            "org.opencontainers.image.title": "PocketMQ",
            "org.opencontainers.image.version": VERSION,
            "org.opencontainers.image.licenses": "Apache-2.0",
        },
    }


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kind", nargs="?", choices=list(KINDS), default="broker")
    options = parser.parse_args(arguments)
    return main_of(lambda: build(KINDS[options.kind]))


if __name__ == "__main__":
    sys.exit(main())
