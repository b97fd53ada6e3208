"""The broker under load, beside the Apache broker where Java is."""
