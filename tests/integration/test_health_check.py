"""spillway --healthcheck: says hello where the same configuration serves."""

import os
import signal
import socket
import subprocess

import pytest
from certificates import Certificates
from hello_server import a_mongod
from proxy import free_port, routing
from users import user_entry
from waiting import wait_for

pytestmark = [pytest.mark.timeout(120), pytest.mark.proxy_only]


@pytest.fixture(scope="module")
def certificates(tmp_path_factory):
    return Certificates(tmp_path_factory.mktemp("certificates"))


def check(binary, *arguments, **environment):
    done = subprocess.run([binary, *arguments, "--healthcheck"], capture_output=True, text=True,
                          timeout=30, env={**os.environ, **environment})
    return done.returncode, done.stdout, done.stderr


def served(shard_set, **more):
    net = {"port": free_port(), "bindIp": "127.0.0.1", **more.pop("net", {})}
    return {"routing": routing([shard.uri for shard in shard_set]), "net": net, **more}


def test_it_says_whether_it_serves(binary, shard_set, make_proxy):
    proxy = make_proxy(served(shard_set))
    assert check(binary, "--config", proxy.config_path) == (0, "serving\n", "")
    assert check(binary, SPILLWAY_CONFIG=str(proxy.config_path)) == (0, "serving\n", "")
    assert check(binary, SPILLWAY_NET_PORT=str(proxy.port)) == (0, "serving\n", "")
    code, out, err = check(binary, "--config", proxy.config_path, "--set", f"net.port={free_port()}")
    assert code == 1 and not out and "is not serving: " in err
    # A file that has become wrong says nothing against the process that goes on without it.
    text = proxy.config_path.read_text()
    proxy.config_path.write_text(text.replace('"workers"', '"wrokers"'))
    assert check(binary, "--config", proxy.config_path)[0] == 0
    # Without a port in the configuration there is no health: another server may have the default port.
    proxy.config_path.write_text("net: {")
    code, out, err = check(binary, "--config", proxy.config_path, "--set", f"net.port={proxy.port}")
    assert code == 1 and not out and "not valid YAML" in err and "names no port to ask" in err
    proxy.config_path.write_text(text)


@pytest.mark.parametrize("limit", [{"net": {"maxIncomingConnections": 1}},
                                   {"limits": {"perAddress": {"connections": 1}}}])
def test_one_that_is_full_is_alive(binary, shard_set, make_proxy, limit):
    proxy = make_proxy(served(shard_set, **limit))
    with socket.create_connection(("127.0.0.1", proxy.port)):
        def full():
            return check(binary, "--config", proxy.config_path)
        wait_for(lambda: full() == (0, "alive, but takes no more clients for now\n", ""), "the limit")
    wait_for(lambda: full() == (0, "serving\n", ""), "its end")


def test_one_that_hangs_is_not_waited_for(binary, shard_set, make_proxy):
    proxy = make_proxy(served(shard_set))
    proxy.process.send_signal(signal.SIGSTOP)
    try:
        code, _, err = check(binary, "--config", proxy.config_path)
    finally:
        proxy.process.send_signal(signal.SIGCONT)
    assert code == 1 and "is not serving" in err


@pytest.mark.parametrize("clients", ["without certificates", "with certificates", "with certificates if they like"])
def test_over_tls_and_without_logging_in(binary, shard_set, make_proxy, certificates, clients):
    tls = {"mode": "requireTLS", "certificateKeyFile": certificates.server}
    if clients == "with certificates":
        tls["CAFile"] = certificates.ca
    if clients == "with certificates if they like":
        # The server's own is none of these clients' authority.
        tls.update(CAFile=certificates.other_ca, allowConnectionsWithoutCertificates=True)
    user = user_entry(binary, "ann", "secret", ("root", "admin"))
    proxy = make_proxy(served(shard_set, net={"tls": tls},
                              security={"authorization": "enabled", "users": [user]}))
    assert check(binary, "--config", proxy.config_path) == (0, "serving\n", "")
    plain = served(shard_set, net={"port": proxy.port})["net"]
    assert check(binary, "--set", f"net={{port: {plain['port']}}}")[0] == 1


def test_another_server_on_the_port_is_no_router(binary):
    with a_mongod() as port:
        code, out, err = check(binary, "--set", f"net.port={port}")
    assert code == 1 and not out and "is no router" in err
