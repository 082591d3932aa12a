"""A small client that speaks the wire protocol byte by byte, to send what no driver would."""

import itertools
import socket
import struct
import zlib

import bson

OP_REPLY, OP_QUERY, OP_KILL_CURSORS, OP_COMPRESSED, OP_MSG = 1, 2004, 2007, 2012, 2013
CHECKSUM_PRESENT, MORE_TO_COME, EXHAUST_ALLOWED = 1, 2, 1 << 16
NOOP, SNAPPY, ZLIB, ZSTD = range(4)
TIMEOUT_S = 20.0

_CRC_TABLE = []
for _n in range(256):
    for _ in range(8):
        _n = (_n >> 1) ^ (0x82F63B78 if _n & 1 else 0)
    _CRC_TABLE.append(_n)


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc = _CRC_TABLE[(crc ^ byte) & 0xFF] ^ (crc >> 8)
    return crc ^ 0xFFFFFFFF


def compress(compressor, data):
    if compressor == NOOP:
        return data
    if compressor == ZLIB:
        return zlib.compress(data)
    if compressor == SNAPPY:
        import snappy
        return snappy.compress(data)
    import zstandard
    return zstandard.ZstdCompressor().compress(data)


def decompress(compressor, data, size):
    if compressor == NOOP:
        return data
    if compressor == ZLIB:
        return zlib.decompress(data)
    if compressor == SNAPPY:
        import snappy
        return snappy.uncompress(data)
    import zstandard
    return zstandard.ZstdDecompressor().decompress(data, max_output_size=size)


def body_section(document):
    return b"\x00" + (document if isinstance(document, bytes) else bson.encode(document))


def sequence_section(name, documents):
    payload = name.encode() + b"\0" + b"".join(bson.encode(d) for d in documents)
    return b"\x01" + struct.pack("<i", len(payload) + 4) + payload


class Reply:
    """One message from the server: its header, flags and first document."""

    def __init__(self, header, payload):
        self.length, self.request_id, self.response_to, self.opcode = header
        self.compressor = None
        opcode, data = self.opcode, payload
        if opcode == OP_COMPRESSED:
            opcode, size, self.compressor = struct.unpack_from("<iiB", data)
            data = decompress(self.compressor, data[9:], size)
            assert len(data) == size, "uncompressedSize is wrong"
        self.flags = struct.unpack_from("<I", data)[0]
        if opcode == OP_REPLY:
            self.cursor_id, self.starting_from, self.number_returned = struct.unpack_from(
                "<qii", data, 4)
            self.document = bson.decode(data[20:])
            return
        assert opcode == OP_MSG, f"opcode {opcode}"
        end = len(data)
        if self.flags & CHECKSUM_PRESENT:
            end -= 4
            head = struct.pack("<iiii", len(data) + 16, self.request_id, self.response_to, OP_MSG)
            assert struct.unpack_from("<I", data, end)[0] == crc32c(head + data[:end])
        assert data[4] == 0, "a reply's first section is its body"
        size = struct.unpack_from("<i", data, 5)[0]
        self.document = bson.decode(data[5:5 + size])
        assert 5 + size == end, "bytes after the body"

    @property
    def ok(self):
        return self.document.get("ok") == 1

    @property
    def code(self):
        return self.document.get("code")


class WireClient:
    """One connection. receive() raises ConnectionError when the peer has closed it."""

    def __init__(self, port, timeout_s=TIMEOUT_S):
        self.socket = socket.create_connection(("127.0.0.1", port), timeout_s)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._ids = itertools.count(1000)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        self.socket.close()

    def send_raw(self, data):
        self.socket.sendall(data)

    def send(self, opcode, payload, length=None):
        """Sends a message and returns its id; `length` replaces the true messageLength."""
        request_id = next(self._ids)
        length = len(payload) + 16 if length is None else length
        head = struct.pack("<iiii", length, request_id, 0, opcode)
        self.send_raw(head + payload)
        return request_id

    def send_sections(self, sections, flags=0, checksum=None):
        """An OP_MSG of ready-made sections. `checksum`: None, "good" or "bad"."""
        if checksum is None:
            return self.send(OP_MSG, struct.pack("<I", flags) + b"".join(sections))
        payload = struct.pack("<I", flags | CHECKSUM_PRESENT) + b"".join(sections)
        request_id = next(self._ids)
        head = struct.pack("<iiii", len(payload) + 20, request_id, 0, OP_MSG)
        crc = crc32c(head + payload) ^ (0 if checksum == "good" else 1)
        self.send_raw(head + payload + struct.pack("<I", crc))
        return request_id

    def send_command(self, document, flags=0, **keywords):
        return self.send_sections([body_section(document)], flags, **keywords)

    def send_query(self, document, namespace="admin.$cmd", flags=0, n_return=-1):
        payload = struct.pack("<I", flags) + namespace.encode() + b"\0"
        payload += struct.pack("<ii", 0, n_return) + bson.encode(document)
        return self.send(OP_QUERY, payload)

    def send_compressed(self, compressor, document, size=None, opcode=OP_MSG, data=None):
        """Sends a command inside OP_COMPRESSED; `size` and `data` replace the true ones."""
        inner = struct.pack("<I", 0) + body_section(document)
        packed = compress(compressor, inner) if data is None else data
        head = struct.pack("<iiB", opcode, len(inner) if size is None else size, compressor)
        return self.send(OP_COMPRESSED, head + packed)

    def _read(self, count):
        data = bytearray()
        while len(data) < count:
            chunk = self.socket.recv(min(count - len(data), 1 << 20))
            if not chunk:
                raise ConnectionError("closed by the peer")
            data += chunk
        return bytes(data)

    def receive(self):
        header = struct.unpack("<iiii", self._read(16))
        assert 16 <= header[0] <= 48_000_000, f"reply of {header[0]} bytes"
        return Reply(header, self._read(header[0] - 16))

    def command(self, document, **keywords):
        request_id = self.send_command(document, **keywords)
        reply = self.receive()
        assert reply.response_to == request_id
        return reply

    def expect_close(self):
        """The peer must close without sending a byte."""
        try:
            data = self.socket.recv(1)
        except ConnectionError:
            return
        assert data == b"", f"got a byte instead of a close: {data!r}"
