"""What all tests share: how Hypothesis runs, and one Spark session for the connector, the pipelines and the demo."""

import signal

from hypothesis import settings

pytest_plugins = ("tests.spark_fixtures", "tests.twins")

# A busy machine makes any single example slow now and then; that says nothing about the code.
settings.register_profile("pocketmq", deadline=None, print_blob=True)
settings.register_profile("thorough", parent=settings.get_profile("pocketmq"), max_examples=500)
settings.register_profile("short", parent=settings.get_profile("pocketmq"), max_examples=10)
settings.load_profile("pocketmq")

# A shell that starts the tests in the background lets them ignore SIGINT, and every program that they start.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
