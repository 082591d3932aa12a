"""Fixtures: three shards, the proxy in front of them, clients.

Options
  --target proxy|shard   what the tests talk to: the proxy (default), or one shard alone, to tell
                         a shard's own limits from the proxy's faults
  --shards KIND          ferretdb (default), javaserver or all
  --binary PATH          the proxy; default: the newest build/<preset>/spillway
"""

import sys
import threading
from pathlib import Path

import pymongo
import pytest

sys.path.insert(0, str(Path(__file__).parent))

import proxy as proxy_module  # noqa: E402
from binary_fixture import binary  # noqa: E402, F401
from replaced import Replaced  # noqa: E402
from shards import KINDS, ShardError, ShardSet  # noqa: E402


def pytest_addoption(parser):
    parser.addoption("--target", choices=["proxy", "shard"], default="proxy")
    parser.addoption("--shards", choices=[*KINDS, "all"], default="ferretdb")
    parser.addoption("--binary", default=None)


def pytest_configure(config):
    config.addinivalue_line("markers", "proxy_only: needs the proxy, means nothing on a shard")
    config.addinivalue_line("markers", "ferretdb_only: needs a shard that keeps data on disk")
    config.addinivalue_line("markers", "differs_alone(kind, reason): one shard of that kind "
                            "answers this otherwise; nothing to test where it answers alone")
    config.addinivalue_line("markers", "slow: takes more than a few seconds")


def pytest_generate_tests(metafunc):
    if "shard_kind" not in metafunc.fixturenames:
        return
    chosen = metafunc.config.getoption("--shards")
    kinds = KINDS if chosen == "all" else [chosen]
    if metafunc.definition.get_closest_marker("ferretdb_only"):
        kinds = [kind for kind in kinds if kind == "ferretdb"]
    metafunc.parametrize("shard_kind", kinds, scope="session")


def pytest_collection_modifyitems(config, items):
    if config.getoption("--target") == "shard":
        skip = pytest.mark.skip(reason="runs only through the proxy")
        for item in items:
            if item.get_closest_marker("proxy_only"):
                item.add_marker(skip)


@pytest.fixture(scope="session")
def shard_set(shard_kind):
    """Three shards for the whole run: tests that hurt their shards make their own."""
    try:
        shards = ShardSet(shard_kind, 3).start()
    except ShardError as error:
        pytest.fail(str(error), pytrace=False)
    yield shards
    shards.stop()


@pytest.fixture(scope="session")
def target(request, shard_set):
    """What the tests talk to: an object with .port, .uri and, for a proxy, .rss_bytes()."""
    if request.config.getoption("--target") == "shard":
        yield shard_set[0]
        return
    binary_path = request.getfixturevalue("binary")
    routed = proxy_module.routing([shard.uri for shard in shard_set])
    proxy = proxy_module.Proxy(binary_path, {"routing": routed}).start()
    yield proxy
    proxy.stop()


@pytest.fixture(autouse=True)
def still_alive(request):
    """A proxy that died names the test that killed it."""
    yield
    if "target" in request.fixturenames:
        target = request.getfixturevalue("target")
        if isinstance(target, proxy_module.Proxy) and not target.alive():
            pytest.fail("the proxy died:\n" + target.log_path.read_text(errors="replace")[-3000:])


@pytest.fixture
def client(target):
    with pymongo.MongoClient(target.uri, serverSelectionTimeoutMS=10000,
                             socketTimeoutMS=60000) as made:
        yield made


@pytest.fixture
def other_client(target):
    """A second client: its own pool, hence other connections and maybe another worker."""
    with pymongo.MongoClient(target.uri, serverSelectionTimeoutMS=10000,
                             socketTimeoutMS=60000) as made:
        yield made


# Every layout a collection can have in the routing table of proxy.routing().
LAYOUTS = {
    "hashed": ("app", "users"),
    "ranged": ("app", "ranged"),
    "unsharded": ("app", "plain"),
    "first_shard": ("elsewhere", "plain"),
}


SPREAD = ("hashed", "ranged")


@pytest.fixture(params=sorted(LAYOUTS))
def collection(request, client, shard_kind):
    """An empty collection in each layout."""
    one_shard = request.config.getoption("--target") == "shard" or request.param not in SPREAD
    for marker in request.node.iter_markers("differs_alone"):
        if one_shard and marker.args[0] == shard_kind:
            pytest.skip(f"{shard_kind}: {marker.args[1]}")
    database, name = LAYOUTS[request.param]
    made = client[database][name]
    made.drop()
    yield made
    made.drop()


@pytest.fixture
def make_proxy(request):
    """make_proxy(config) starts a proxy of its own, which must end cleanly."""
    made = []

    def start(config, **keywords):
        proxy = proxy_module.Proxy(request.getfixturevalue("binary"), config, **keywords)
        made.append(proxy)
        return proxy.start()

    yield start
    failures = []
    for proxy in made:
        try:
            proxy.stop()
        except AssertionError as error:
            failures.append(str(error))
    assert not failures, "\n".join(failures)


class Background:
    """Runs a function in threads until stop(); collects what it raises."""

    def __init__(self, function, threads=1):
        self.stopping, self.errors, self._threads = threading.Event(), [], []
        for index in range(threads):
            thread = threading.Thread(target=self._run, args=(function, index), daemon=True)
            self._threads.append(thread)
            thread.start()

    def _run(self, function, index):
        try:
            function(self.stopping, index)
        except Exception as error:  # reported by stop()
            self.errors.append(error)

    def stop(self, timeout_s=60):
        self.stopping.set()
        for thread in self._threads:
            thread.join(timeout_s)
            assert not thread.is_alive(), "a client hangs"
        if self.errors:
            raise self.errors[0]


@pytest.fixture
def replaced(binary, shard_set):
    """Starts a proxy whose process is replaced."""
    made = []

    def start(**config):
        made.append(Replaced(binary, {"routing": proxy_module.routing([s.uri for s in shard_set]), **config}))
        return made[-1].start()

    yield start
    for one in made:
        one.stop()


@pytest.fixture
def background():
    made = []

    def start(function, threads=1):
        made.append(Background(function, threads))
        return made[-1]

    yield start
    for one in made:
        one.stopping.set()


@pytest.fixture
def watcher(proxy):
    """A client of the module's own proxy, with documents; of another kind than those whose cursors
    are looked at, so that it keeps none of them."""
    client = pymongo.MongoClient(proxy.uri, appname="watcher")
    collection = client.app.ranged
    collection.drop()
    collection.insert_many([{"_id": i} for i in range(900)])
    yield client
    client.close()
