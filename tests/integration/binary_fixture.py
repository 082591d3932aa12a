"""The proxy under test: the binary that --binary names, else the newest build. For the conftest.py of a folder."""

import pytest

from proxy import find_binary


@pytest.fixture(scope="session")
def binary(request):
    found = find_binary(request.config.getoption("--binary"))
    if found is None:
        pytest.fail("no proxy: build it first, or name it with --binary", pytrace=False)
    return found.resolve()
