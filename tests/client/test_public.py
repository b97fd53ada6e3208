"""The public names of the client: all exist, each is the same object everywhere, and unused ones are not imported."""

import subprocess
import sys
import textwrap

import pytest

from pocketmq import client


def test_every_public_name_exists() -> None:
    assert [name for name in client.__all__ if not hasattr(client, name)] == []


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match=r"'pocketmq.client' has no attribute 'Prodcuer'"):
        _ = client.Prodcuer  # type: ignore[attr-defined]


def test_importing_a_module_of_the_client_does_not_import_all_others() -> None:
    code = (
        "import sys, pocketmq.client.cluster.instance; print('pocketmq.client.consumer.push_consumer' in sys.modules)"
    )

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)

    assert done.stdout.strip() == "False"


@pytest.mark.parametrize("module", ["pocketmq", "pocketmq.client"])
def test_dir_and_help_list_the_public_classes_before_their_first_use(module: str) -> None:
    code = f"""
        import pydoc, {module} as module
        assert set(module.__all__) <= set(dir(module)), set(module.__all__) - set(dir(module))
        text = pydoc.plain(pydoc.render_doc(module))
        assert all(f"class {{name}}" in text for name in ("Producer", "AsyncPushConsumer", "LitePullConsumer", "Admin")), text
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, check=False, timeout=60
    )

    assert done.returncode == 0, done.stderr
