"""Fixtures of the tests of the admin port's page in a browser.

    tests/run --long integration

Needs chromium and chromium-driver of Debian.
"""

import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
for folder in ("tests/integration", "tests/page"):
    sys.path.insert(0, str(ROOT / folder))

from browser import Browser  # noqa: E402
from proxy import find_binary  # noqa: E402


def pytest_addoption(parser):
    parser.addoption("--binary", default=None)


@pytest.fixture(scope="session")
def binary(request):
    found = find_binary(request.config.getoption("--binary"))
    if found is None:
        pytest.fail("no proxy: build it first, or name it with --binary", pytrace=False)
    return found.resolve()


@pytest.fixture
def browser(tmp_path):
    made = Browser(tmp_path)
    yield made
    made.quit()
