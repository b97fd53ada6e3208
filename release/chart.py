"""Checks the Helm chart and writes the plain manifests from it: `make chart`.

    helm lint, helm template    with each set of values below
    values that are wrong       must be refused with a sentence that names them
    what is rendered            is compared with the schemas of Kubernetes
    deploy/kubernetes/          is written anew: the chart for people without Helm

Go builds helm from its module proxy, once: some minutes.
"""

import argparse
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import pocketmq
from release.programs import ROOT, Failed, main_of, run, say
from release.schemas import VERSION, check_manifests

TOOLS: Final = ROOT / ".venv" / "tools"
HELM: Final = "helm.sh/helm/v3/cmd/helm@v3.22.0"
CHART: Final = ROOT / "deploy" / "helm"
PLAIN: Final = ROOT / "deploy" / "kubernetes"
ARCHIVE: Final = ("archive.enabled=true", "archive.topics={orders}", "archive.accountSecret=archive-account")
CONSOLE: Final = ("console.enabled=true", "console.accountSecret=console-account")
VALUES: Final[Mapping[str, Sequence[str]]] = {
    "default": (),
    "open": ("accounts.secret=", "accounts.openWithoutAuthentication=true", "metrics.enabled=false"),
    "whole": (
        *(*ARCHIVE, *CONSOLE),
        *("tls.secret=pocketmq-tls", "metrics.scrapeAnnotations=true", "console.allowedHosts={mq.example.com}"),
        *("disk.storageClass=fast", "archive.lake.storageClass=slow", "broker.settings.fileReservedTime=72"),
    ),
}
WRONG: Final = {
    "broker.flsh=sync": "flsh",
    "disk.size=much": "disk",
    "broker.flush=never": "flush",
    "replicas=3": "replicas",
    "accounts.secret=": "accounts.secret is empty",
    "console.enabled=true": "console.accountSecret is empty",
    "archive.enabled=true": "archive.topics is empty",
}
"""A value, and what the refusal must contain."""
HEADER: Final = "# Written by `make chart` from deploy/helm, {what}. Change the chart, not this file.\n#\n{use}"
PARTS: Final = {
    "pocketmq.yaml": (
        ("templates/service.yaml", "templates/broker.yaml"),
        (),
        "with its default values",
        (
            "#   kubectl create namespace messaging\n"
            "#   kubectl -n messaging create secret generic pocketmq-accounts --from-file=accounts.toml\n"
            "#   kubectl -n messaging apply -f pocketmq.yaml\n"
        ),
    ),
    "archive.yaml": (
        ("templates/archive.yaml",),
        ARCHIVE,
        "with an archive of the topic orders",
        (
            "#   kubectl -n messaging create secret generic archive-account"
            " --from-literal=access-key=… --from-literal=secret-key=…\n"
            "#   kubectl -n messaging apply -f archive.yaml\n"
        ),
    ),
}


def helm_program() -> Path:
    """helm, built if it is missing."""
    if not (TOOLS / "helm").exists():
        say(f"building {HELM}")
        environ = os.environ | {"GOBIN": str(TOOLS), "GOFLAGS": "-mod=mod -buildvcs=false"}
        run(["go", "install", "-trimpath", "-ldflags=-s -w", HELM], folder=Path("/"), environ=environ, timeout_s=3600)
    return TOOLS / "helm"


def rendered(helm: Path, values: Sequence[str], templates: Sequence[str] = ()) -> str:
    options = [option for value in values for option in ("--set", value)]
    options += [option for template in templates for option in ("--show-only", template)]
    return run([helm, "template", "pocketmq", CHART, "--namespace", "messaging", *options])


def check_values(helm: Path) -> None:
    for name, values in VALUES.items():
        options = [option for value in values for option in ("--set", value)]
        run([helm, "lint", "--strict", CHART, *options])
        count = check_manifests(rendered(helm, values))
        say(f"{name:8} linted, rendered, {count} manifests are valid for Kubernetes {VERSION}")


def check_refusals(helm: Path) -> None:
    for value, expected in WRONG.items():
        try:
            rendered(helm, [value])
        except Failed as failure:
            if expected not in str(failure):
                raise Failed(f"{value} was refused without the words {expected!r}: {failure}") from failure
            [*_, last] = [line for line in str(failure).splitlines() if expected in line]
            say(f"refused  {value}: {last.strip()}")
        else:
            raise Failed(f"the chart accepts {value}")


def plain_manifest(helm: Path, name: str) -> str:
    templates, values, what, use = PARTS[name]
    lines = [line for line in rendered(helm, values, templates).splitlines() if not line.startswith("# Source: ")]
    return HEADER.format(what=what, use=use) + "\n".join(lines).removeprefix("---\n") + "\n"


def make(*, only_check: bool) -> None:
    helm = helm_program()
    version = f'"{pocketmq.__version__}"'
    if f"appVersion: {version}" not in (CHART / "Chart.yaml").read_text("utf-8"):
        raise Failed(f"deploy/helm/Chart.yaml must have appVersion: {version}")
    check_values(helm)
    check_refusals(helm)
    for name in PARTS:
        text = plain_manifest(helm, name)
        if only_check and text != (PLAIN / name).read_text("utf-8"):
            raise Failed(f"deploy/kubernetes/{name} is not what the chart renders: run `make chart`")
        (PLAIN / name).write_text(text, "utf-8")
        say(f"written  deploy/kubernetes/{name}")


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="fail if the manifests are not up to date")
    options = parser.parse_args(arguments)
    return main_of(lambda: make(only_check=options.check))


if __name__ == "__main__":
    sys.exit(main())
