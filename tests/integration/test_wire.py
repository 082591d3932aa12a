"""The wire protocol byte by byte: what is accepted, what gets an error, what closes."""

import struct
import threading
import time
import zlib

import bson
import pytest
from wire import (CHECKSUM_PRESENT, EXHAUST_ALLOWED, MORE_TO_COME, OP_COMPRESSED, OP_MSG, OP_REPLY,
                  SNAPPY, ZLIB, ZSTD, WireClient, body_section, sequence_section)

pytestmark = [pytest.mark.timeout(90), pytest.mark.proxy_only]
PING = {"ping": 1, "$db": "admin"}
HELLO = {"hello": 1, "$db": "admin"}
META = {"driver": {"name": "wire.py", "version": "1"}, "os": {"type": "Linux"}}


@pytest.fixture
def wire(target):
    with WireClient(target.port) as made:
        yield made


@pytest.fixture
def probe(target):
    """Asks on a fresh connection whether the server still serves."""
    yield
    with WireClient(target.port) as fresh:
        assert fresh.command(PING).ok


def test_hello_as_a_router(wire):
    reply = wire.command({"hello": 1, "helloOk": True, "$db": "admin"}).document
    assert reply["isWritablePrimary"] is True and "ismaster" not in reply
    assert reply["msg"] == "isdbgrid" and reply["helloOk"] is True and reply["ok"] == 1.0
    assert reply["maxBsonObjectSize"] == 16777216
    assert reply["maxMessageSizeBytes"] == 48000000
    assert reply["maxWriteBatchSize"] == 100000
    assert reply["minWireVersion"] == 0 and reply["maxWireVersion"] >= 8
    assert set(reply["topologyVersion"]) == {"processId", "counter"}
    assert "logicalSessionTimeoutMinutes" not in reply, "the shards are no replica sets"
    for field in ("setName", "hosts", "me", "primary", "readOnly"):
        assert field not in reply


@pytest.mark.parametrize("name", ["isMaster", "ismaster"])
def test_legacy_hello_over_op_msg(wire, name):
    reply = wire.command({name: 1, "$db": "admin"}).document
    assert reply["ismaster"] is True and reply["msg"] == "isdbgrid"
    assert "isWritablePrimary" not in reply and "helloOk" not in reply


@pytest.mark.parametrize("document", [{"isMaster": 1, "helloOk": True}, {"ismaster": 1},
                                      {"hello": 1},
                                      {"$query": {"isMaster": 1}, "$readPreference": {}}])
def test_hello_over_op_query(wire, document):
    request_id = wire.send_query(document)
    reply = wire.receive()
    assert reply.opcode == OP_REPLY and reply.response_to == request_id
    assert reply.flags == 8 and reply.cursor_id == 0 and reply.number_returned == 1
    assert reply.document["msg"] == "isdbgrid" and reply.document["ok"] == 1
    assert wire.command(PING).ok


def test_other_commands_over_op_query_are_refused(wire, probe):
    wire.send_query({"find": "users"}, namespace="app.$cmd")
    reply = wire.receive()
    assert reply.opcode == OP_REPLY
    assert reply.document["ok"] == 0 and reply.code == 352


def test_connection_id_grows(target):
    with WireClient(target.port) as one, WireClient(target.port) as two:
        first = one.command(HELLO).document["connectionId"]
        assert two.command(HELLO).document["connectionId"] > first


def test_client_metadata_rules(target):
    with WireClient(target.port) as wire:
        assert wire.command({**HELLO, "client": META}).ok
        assert wire.command({**HELLO, "client": META}).code == 186
        assert wire.command(PING).ok
    with WireClient(target.port) as wire:
        big = {**META, "x": "y" * 513}
        assert wire.command({**HELLO, "client": big}).code == 185
    with WireClient(target.port) as wire:
        long_name = {**META, "application": {"name": "a" * 129}}
        assert wire.command({**HELLO, "client": long_name}).code == 184
    with WireClient(target.port) as wire:
        assert wire.command({**HELLO, "client": {"application": {"name": "a"}}}).code == 183


def test_await_hello(wire):
    version = wire.command(HELLO).document["topologyVersion"]
    assert wire.command({**HELLO, "topologyVersion": version}).code == 51760
    assert wire.command({**HELLO, "maxAwaitTimeMS": 10}).code == 51760
    wrong = dict(version, counter=bson.Int64(-1))
    assert wire.command({**HELLO, "topologyVersion": wrong, "maxAwaitTimeMS": 10}).code == 51758
    assert wire.command({**HELLO, "topologyVersion": version, "maxAwaitTimeMS": -1}).code == 51759
    wrong = dict(version, counter=bson.Int64(version["counter"] + 1))
    assert wire.command({**HELLO, "topologyVersion": wrong, "maxAwaitTimeMS": 10}).code == 51761
    start = time.monotonic()
    reply = wire.command({**HELLO, "topologyVersion": version, "maxAwaitTimeMS": 700})
    waited = time.monotonic() - start
    assert reply.ok and reply.document["topologyVersion"] == version
    assert 0.6 <= waited < 5
    other = dict(version, processId=bson.ObjectId())
    start = time.monotonic()
    assert wire.command({**HELLO, "topologyVersion": other, "maxAwaitTimeMS": 5000}).ok
    assert time.monotonic() - start < 2


def test_exhaust_hello(wire):
    version = wire.command(HELLO).document["topologyVersion"]
    assert wire.command(HELLO, flags=EXHAUST_ALLOWED).code == 51763
    request_id = wire.send_command({**HELLO, "topologyVersion": version, "maxAwaitTimeMS": 200},
                                   flags=EXHAUST_ALLOWED)
    previous = request_id
    for _ in range(4):
        reply = wire.receive()
        assert reply.flags & MORE_TO_COME and reply.ok
        assert reply.response_to == previous
        previous = reply.request_id


@pytest.mark.parametrize("await_ms, replies_max", [(0, 3), (2**63 - 1, 1)])
def test_exhaust_hello_is_no_flood(wire, await_ms, replies_max):
    version = wire.command(HELLO).document["topologyVersion"]
    wire.send_command({**HELLO, "topologyVersion": version, "maxAwaitTimeMS": bson.Int64(await_ms)},
                      flags=EXHAUST_ALLOWED)
    wire.socket.settimeout(0.7)
    end, replies = time.monotonic() + 1, 0
    while time.monotonic() < end:
        try:
            assert wire.receive().ok
            replies += 1
        except TimeoutError:
            break
    assert replies <= replies_max


def test_exhaust_find_get_more_is_one_ordinary_reply(wire):
    reply = wire.command({"find": "nothing", "$db": "app"}, flags=EXHAUST_ALLOWED)
    assert reply.ok and not reply.flags & MORE_TO_COME


def test_checksum(wire, target, probe):
    request_id = wire.send_command(PING, checksum="good")
    reply = wire.receive()  # which checks the reply's own checksum
    assert reply.response_to == request_id and reply.flags & CHECKSUM_PRESENT
    assert not wire.command(PING).flags & CHECKSUM_PRESENT
    with WireClient(target.port) as bad:
        bad.send_command(PING, checksum="bad")
        bad.expect_close()


@pytest.mark.parametrize("bit,closes", [(2, True), (7, True), (15, True), (17, False), (20, False),
                                        (31, False)])
def test_flag_bits(wire, probe, bit, closes):
    wire.send_command(PING, flags=1 << bit)
    if closes:
        wire.expect_close()
    else:
        assert wire.receive().ok


def test_document_sequences(wire, client):
    client.app.users.drop()
    sections = [sequence_section("documents", [{"_id": i} for i in range(50)]),
                body_section({"insert": "users", "$db": "app"})]
    wire.send_sections(sections)
    reply = wire.receive()
    assert reply.ok and reply.document["n"] == 50
    wire.send_sections([body_section({"update": "users", "$db": "app"}), sequence_section(
        "updates", [{"q": {"_id": i}, "u": {"$set": {"v": 1}}} for i in range(10)])])
    assert wire.receive().document["nModified"] == 10
    wire.send_sections([body_section({"delete": "users", "$db": "app"}), sequence_section(
        "deletes", [{"q": {"v": 1}, "limit": 0}])])
    assert wire.receive().document["n"] == 10
    assert client.app.users.count_documents({}) == 40
    client.app.users.drop()


def test_wrong_sections(target, probe):
    insert = body_section({"insert": "users", "$db": "app"})
    one = sequence_section("documents", [{"_id": 1}])
    cases = [
        ([insert, one, one], 40431),
        ([body_section({"insert": "users", "documents": [{}], "$db": "app"}), one], 40433),
        ([one], 40587),
        ([insert, insert], 40430),
        ([insert, b"\x07" + one[1:]], 40432),
    ]
    for sections, code in cases:
        with WireClient(target.port) as wire:
            wire.send_sections(sections)
            assert wire.receive().code == code
            assert wire.command(PING).ok, "the connection stays usable"
    with WireClient(target.port) as wire:
        wire.send_sections([insert, one, sequence_section("b", [{}]), sequence_section("c", [{}])])
        wire.expect_close()


def test_missing_or_wrong_database(wire):
    assert wire.command({"ping": 1}).code == 40571
    assert wire.command({"find": "c", "$db": ""}).code == 73
    assert wire.command({"find": "c", "$db": "a.b"}).code == 73
    assert wire.command({"find": "c", "$db": "x" * 64}).code == 73
    assert wire.command(PING).ok


def test_more_to_come_insert(wire, client):
    client.app.users.drop()
    wire.send_command({"insert": "users", "documents": [{"_id": i} for i in range(30)],
                       "writeConcern": {"w": 0}, "$db": "app"}, flags=MORE_TO_COME)
    wire.send_command({"insert": "users", "documents": [{"_id": 3}],
                       "writeConcern": {"w": 0}, "$db": "app"}, flags=MORE_TO_COME)
    request_id = wire.send_command({"count": "users", "$db": "app"})
    reply = wire.receive()
    assert reply.response_to == request_id, "w:0 writes get no reply, failed ones neither"
    assert reply.document["n"] == 30
    client.app.users.drop()


def test_pipelined_requests_are_answered_in_order(wire, client):
    client.app.ranged.drop()
    client.app.ranged.insert_many([{"_id": i} for i in range(0, 900, 10)])
    sent = []
    for i in range(200):
        document = ({"find": "ranged", "filter": {"_id": i % 90 * 10}, "$db": "app"} if i % 3
                    else PING)
        sent.append((wire.send_command(document), i))
    for request_id, i in sent:
        reply = wire.receive()
        assert reply.response_to == request_id and reply.ok
        if i % 3:
            assert reply.document["cursor"]["firstBatch"] == [{"_id": i % 90 * 10}]
    client.app.ranged.drop()


def test_message_in_single_bytes(wire):
    payload = struct.pack("<I", 0) + body_section(PING)
    message = struct.pack("<iiii", len(payload) + 16, 77, 0, OP_MSG) + payload
    for byte in message:
        wire.send_raw(bytes([byte]))
    reply = wire.receive()
    assert reply.ok and reply.response_to == 77


@pytest.mark.parametrize("length", [48_000_001, 15, 0, -1, 2**31 - 1, -2**31])
def test_impossible_lengths_close(wire, probe, length):
    wire.send(OP_MSG, struct.pack("<I", 0) + body_section(PING), length=length)
    wire.expect_close()


@pytest.mark.parametrize("opcode", [0, 1, 2001, 2002, 2005, 2006, 2007, 2010, 2011, 9999, -5])
def test_other_opcodes_close(wire, probe, opcode):
    wire.send(opcode, struct.pack("<I", 0) + body_section(PING))
    wire.expect_close()


def test_message_of_48_000_000_bytes_is_read(wire, client):
    """The largest message there may be: an insert of almost 48 MB."""
    client.app.plain.drop()
    sections = [body_section({"insert": "plain", "$db": "app"})]
    documents = [{"_id": i, "p": b"\0" * 15_900_000} for i in range(3)]
    size = sum(len(s) for s in sections) + len(sequence_section("documents", documents)) + 20
    documents[0]["p"] += b"\0" * (48_000_000 - size)
    sections.append(sequence_section("documents", documents))
    assert sum(len(s) for s in sections) + 20 == 48_000_000
    wire.socket.settimeout(60)
    wire.send_sections(sections)
    reply = wire.receive()
    assert reply.ok and reply.document["n"] == 3, reply.document
    client.app.plain.drop()


@pytest.mark.parametrize("count,code", [(0, 16), (100_001, 16), (100_000, None)])
def test_write_batch_size(wire, client, count, code):
    client.app.plain.drop()
    wire.socket.settimeout(80)
    wire.send_sections([body_section({"insert": "plain", "$db": "app"}), sequence_section(
        "documents", [{"_id": i} for i in range(count)])])
    reply = wire.receive()
    assert reply.code == code, reply.document
    assert client.app.plain.count_documents({}) == (0 if code else count)
    client.app.plain.drop()


def test_bson_nesting_is_bounded(wire, probe):
    nested = b"\x05\0\0\0\0"
    for _ in range(5000):
        nested = struct.pack("<i", len(nested) + 8) + b"\x03a\0" + nested + b"\0"
    rest = bson.encode({"find": "users", "$db": "app"})[4:-1]
    command = rest + b"\x03filter\0" + nested + b"\0"
    wire.send_sections([body_section(struct.pack("<i", len(command) + 4) + command)])
    try:
        reply = wire.receive()
        assert not reply.ok
    except ConnectionError:
        pass


@pytest.mark.parametrize("garbage", [
    b"", b"\x00", b"\x00\x05\x00\x00\x00", b"\x00\xff\xff\xff\x7f", b"\x00\x00\x00\x00\x00",
    b"\x00\x05\x00\x00\x00\x01", b"\x01\x04\x00\x00\x00", b"\x01\xff\xff\xff\xff",
    b"\x01\x02\x00\x00\x00", b"\x00" + struct.pack("<i", 12) + b"\x10ping\x00\x01\x00",
    b"\x00" + struct.pack("<i", 20) + b"\x02a\x00\xff\xff\xff\x7fx\x00\x00\x00\x00\x00\x00"])
def test_garbage_gets_an_error_or_a_close(wire, probe, garbage):
    wire.send(OP_MSG, struct.pack("<I", 0) + garbage)
    try:
        assert not wire.receive().ok
    except ConnectionError:
        pass


@pytest.mark.parametrize("name,compressor", [("snappy", SNAPPY), ("zlib", ZLIB), ("zstd", ZSTD)])
def test_compression(wire, client, name, compressor):
    hello = wire.command({**HELLO, "compression": [name]})
    assert hello.document["compression"] == [name] and hello.compressor is None
    client.app.users.drop()
    client.app.users.insert_many([{"_id": i, "p": "x" * 500} for i in range(300)])
    request_id = wire.send_compressed(compressor, {"find": "users", "batchSize": 300,
                                                   "$db": "app"})
    reply = wire.receive()
    assert reply.response_to == request_id and reply.compressor == compressor
    assert len(reply.document["cursor"]["firstBatch"]) == 300
    assert wire.command(PING).compressor is None, "a plain request gets a plain reply"
    client.app.users.drop()


def test_compression_negotiation(wire):
    document = wire.command({**HELLO, "compression": ["zstd", "nonsense", "snappy"]}).document
    assert document["compression"] == ["zstd", "snappy"], "in the client's order"
    assert wire.command(HELLO).document["compression"] == ["zstd", "snappy"]
    assert "compression" not in wire.command({**HELLO, "compression": ["nonsense"]}).document


@pytest.mark.parametrize("compressor", [SNAPPY, ZLIB, ZSTD])
@pytest.mark.parametrize("lie", [-1, 1, 2**31 - 1, 47_999_985, "short", "long"])
def test_declared_size_is_checked(wire, target, probe, compressor, lie):
    """An uncompressedSize that lies must close the connection, and cost no memory."""
    wire.command({**HELLO, "compression": ["snappy", "zlib", "zstd"]})
    true_size = len(struct.pack("<I", 0) + body_section(PING))
    size = {"short": true_size - 1, "long": true_size + 1}.get(lie, lie)
    before = target.rss_bytes()
    wire.send_compressed(compressor, PING, size=size)
    wire.expect_close()
    assert target.sanitized or target.rss_bytes() - before < 16 << 20


def test_compressed_garbage_closes(target, probe):
    cases = [
        dict(compressor=9, document=PING, data=b"abc"),
        dict(compressor=ZLIB, document=PING, data=b"\x78\x9cgarbage"),
        dict(compressor=ZSTD, document=PING, data=b"\x28\xb5\x2f\xfd\xff\xff"),
        dict(compressor=SNAPPY, document=PING, data=b"\xff\xff\xff\xff\x0f"),
        dict(compressor=SNAPPY, document=PING, data=b""),
        dict(compressor=ZLIB, document=PING, opcode=OP_COMPRESSED),
    ]
    for case in cases:
        with WireClient(target.port) as wire:
            wire.command({**HELLO, "compression": ["snappy", "zlib", "zstd"]})
            wire.send_compressed(**case)
            wire.expect_close()


def test_zip_bomb_is_refused_cheaply(target, probe):
    """A 40 MB declared size is legal; a stream that yields more than declared is not."""
    bomb = zlib.compress(b"\0" * 200_000_000, 9)
    with WireClient(target.port) as wire:
        wire.command({**HELLO, "compression": ["zlib"]})
        before = target.rss_bytes()
        wire.send_compressed(ZLIB, PING, size=100_000, data=bomb)
        wire.expect_close()
        assert target.sanitized or target.rss_bytes() - before < 32 << 20


def test_half_a_message_then_gone(target, probe):
    for cut in (1, 15, 16, 20, 30):
        payload = struct.pack("<I", 0) + body_section(PING)
        message = struct.pack("<iiii", len(payload) + 16, 1, 0, OP_MSG) + payload
        with WireClient(target.port) as wire:
            wire.send_raw(message[:cut])


def test_declared_sizes_cost_no_memory_before_bytes_come(target, probe):
    """Fifty clients each announce 47 MB and send nothing more."""
    before = target.rss_bytes()
    clients = [WireClient(target.port) for _ in range(50)]
    try:
        for wire in clients:
            wire.send_raw(struct.pack("<iiii", 47_000_000, 1, 0, OP_MSG) + b"\0" * 100)
        with WireClient(target.port) as fresh:
            assert fresh.command(PING).ok
        assert target.sanitized or target.rss_bytes() - before < 64 << 20
    finally:
        for wire in clients:
            wire.close()


def test_duplicate_and_misspelt_fields(wire):
    twice = bson.encode({"ping": 1, "$db": "admin"})
    twice = twice[:-1] + b"\x10ping\x00\x01\x00\x00\x00" + b"\0"
    twice = struct.pack("<i", len(twice)) + twice[4:]
    wire.send_sections([body_section(twice)])
    assert wire.receive().code == 9
    assert wire.command({"ping": 1, "$maxTimeMs": 5, "$db": "admin"}).code == 72


def test_many_connections_at_once(target):
    clients = [WireClient(target.port) for _ in range(300)]
    try:
        for wire in clients:
            wire.send_command(PING)
        assert all(wire.receive().ok for wire in clients)
    finally:
        for wire in clients:
            wire.close()


def test_concurrent_commands_do_not_mix(target, client):
    client.app.ranged.drop()
    # Few, for FerretDB reads all of a shard's for each find; over all shards.
    client.app.ranged.insert_many([{"_id": i, "p": f"{i}" * 50} for i in range(0, 900, 10)])
    failures = []

    def run(seed):
        try:
            with WireClient(target.port) as wire:
                for turn in range(150):
                    key = (seed * 131 + turn * 17) % 90 * 10
                    reply = wire.command({"find": "ranged", "filter": {"_id": key}, "$db": "app"})
                    batch = reply.document["cursor"]["firstBatch"]
                    if batch != [{"_id": key, "p": f"{key}" * 50}]:
                        failures.append((key, batch))
        except Exception as error:  # shown below
            failures.append(error)

    threads = [threading.Thread(target=run, args=(seed,)) for seed in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not failures
    client.app.ranged.drop()
