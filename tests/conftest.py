"""What all tests share: how Hypothesis runs."""

from hypothesis import settings

# A busy machine makes any single example slow now and then; that says nothing about the code.
settings.register_profile("pocketmq", deadline=None, print_blob=True)
settings.load_profile("pocketmq")
