"""What is published: wheels, an image and manifests, each built and tried by a command of make.

Modules in reading order:

    targets    the machines that have a wheel of their own, and how a cross compiler names them
    link       the cross compiler as one command
    programs   running other programs, and where files are
    contents   the bill of materials and the checksums of a folder of wheels
    checks     what a wheel must be before it is published
    wheels     `make wheels`: builds and checks all wheels on one Linux machine
    installs   `make installs`: installs the wheels as users do, each time into an empty environment
    pythons    `make pythons`: the core of the tests on each version of Python
    oci        an image as a file: layers, configuration, index
    image      `make image`, `make spark-image`: builds the images
    podman     podman with storage of its own
    containers starts an image and uses it, after it is built
    schemas    manifests compared with the schemas of Kubernetes
    chart      `make chart`: checks the Helm chart, and writes the plain manifests
"""
