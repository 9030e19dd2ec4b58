"""The order of the tests."""


def pytest_collection_modifyitems(items):
    """Begin with what is slow, so that at the end no worker is left alone with it."""
    items.sort(key=lambda item: item.get_closest_marker("slow") is None)
