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

from binary_fixture import binary  # noqa: E402, F401
from browser import Browser  # noqa: E402


def pytest_addoption(parser):
    parser.addoption("--binary", default=None)


@pytest.fixture
def browser(tmp_path):
    made = Browser(tmp_path)
    yield made
    made.quit()
