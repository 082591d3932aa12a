"""Fixtures of the tests of what is shipped: the Debian package, the image, a shard behind them.

    tests/run package

Needs root rights and programs of Debian: mmdebstrap, dpkg-dev, lintian, buildah, mandoc. One that is
missing fails the test that needs it, by name. The first run downloads packages; build/roots keeps them.
"""

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
for folder in ("tests/integration", "bench", "tests/package"):
    sys.path.insert(0, str(ROOT / folder))

import roots  # noqa: E402
from binary_fixture import binary  # noqa: E402, F401
from shards import BUILD, ShardError, ShardSet, find_go  # noqa: E402


def pytest_addoption(parser):
    parser.addoption("--binary", default=None)
    parser.addoption("--long", action="store_true", help="also what takes many minutes (tests marked long)")


def pytest_configure(config):
    config.addinivalue_line("markers", "long: builds the product or a large tool anew; only with --long")


def pytest_collection_modifyitems(config, items):
    if not config.getoption("--long"):
        long = [item for item in items if item.get_closest_marker("long")]
        config.hook.pytest_deselected(items=long)
        items[:] = [item for item in items if item not in long]


@pytest.fixture(scope="session")
def shard():
    """One FerretDB on loopback, which every root and container here shares."""
    try:
        shards = ShardSet("ferretdb", 1).start()
    except ShardError as error:
        pytest.fail(str(error), pytrace=False)
    yield shards[0]
    shards.stop()


def need(*programs):
    missing = roots.missing_tools(*programs)
    if missing:
        pytest.fail(f"missing: {', '.join(missing)} (conf/quickstart.d/packages.sh lists the "
                    "packages)", pytrace=False)


def go_program(name):
    """The path of a program in Go of this folder, built here."""
    go = find_go()
    if not go:
        pytest.fail("missing: go >= 1.22", pytrace=False)
    made = BUILD / f"package/{name}"
    done = subprocess.run([go, "build", "-trimpath", "-o", str(made), "."], cwd=ROOT / f"tests/package/{name}",
                          capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    return made


@pytest.fixture(scope="session")
def decode():
    """Reads manifests as the API server does: exit code, what was said, objects."""
    decoder = go_program("manifests")

    def run(*paths):
        done = subprocess.run([decoder, *paths], capture_output=True, text=True)
        return done.returncode, done.stderr, json.loads(done.stdout or "[]")
    return run


@pytest.fixture(scope="session")
def deb(binary):
    """The package, made of the build that the binary belongs to."""
    need("cpack", "dpkg-deb", "dpkg-shlibdeps")
    build = binary.parent
    for old in (build / "package").glob("*.deb"):
        old.unlink()
    done = subprocess.run(["cpack", "--config", str(build / "CPackConfig.cmake")],
                          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, cwd=build)
    assert done.returncode == 0, done.stdout[-4000:]
    made = list((build / "package").glob("spillway_*.deb"))
    assert len(made) == 1, made
    return made[0]


@pytest.fixture(scope="module")
def empty_root():
    need("mmdebstrap", "unshare", "chroot")
    try:
        with roots.fresh_root() as root:
            yield root
    except roots.RootError as error:
        pytest.fail(str(error), pytrace=False)
