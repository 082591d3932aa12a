"""Decompression bombs: OP_COMPRESSED messages that lie about their size, made by hand."""

import struct
import zlib

from bench_tools import Client, Closed, bson, op_msg, values

SNAPPY, ZLIB, ZSTD = 1, 2, 3
NAMES = {SNAPPY: "snappy", ZLIB: "zlib", ZSTD: "zstd"}
HEADER_BYTES = 16


def compressed(compressor, declared, payload, opcode=2013):
    body = struct.pack("<iiB", opcode, declared, compressor) + payload
    return struct.pack("<iiii", HEADER_BYTES + len(body), 1, 0, 2012) + body


def varint(number):
    out = b""
    while number >= 0x80:
        out, number = out + bytes([number & 0x7f | 0x80]), number >> 7
    return out + bytes([number])


def snappy_zeros(count, says=None):
    """A stream of `count` zeros (a literal and copies of 64) that says `says`."""
    copies, rest = divmod(count - 1, 64)
    stream = varint(count if says is None else says) + b"\0\0" + b"\xfe\x01\x00" * copies
    return stream + (bytes([(rest - 1) << 2 | 2, 1, 0]) if rest else b"")


def snappy_literal(data):
    out = varint(len(data))
    for at in range(0, len(data), 60):
        piece = data[at:at + 60]
        out += bytes([(len(piece) - 1) << 2]) + piece
    return out


def zstd_frame(blocks, content_bytes=None, window_log=None):
    """A frame with the window or, in a single segment, the content's size in its header."""
    if window_log is not None:
        head = bytes([0x00, (window_log - 10) << 3])
    else:
        head = b"\xe0" + struct.pack("<Q", content_bytes)
    return b"\x28\xb5\x2f\xfd" + head + blocks


def zstd_zeros(count, **header):
    """`count` zeros as run-length blocks of 128 KiB: four bytes each."""
    blocks, left = b"", count
    while left > 0 or not blocks:
        piece = min(left, 128 * 1024)
        left -= piece
        blocks += struct.pack("<I", piece << 3 | 1 << 1 | (left == 0))[:3] + b"\0"
    return zstd_frame(blocks, **(header or {"content_bytes": count}))


def zstd_raw(data):
    return zstd_frame(struct.pack("<I", len(data) << 3 | 1)[:3] + data, content_bytes=len(data))


def zeros(compressor, count):
    if compressor == SNAPPY:
        return snappy_zeros(count)
    return zlib.compress(bytes(count), 9) if compressor == ZLIB else zstd_zeros(count)


def packed(compressor, data):
    return {SNAPPY: snappy_literal, ZLIB: zlib.compress, ZSTD: zstd_raw}[compressor](data)


def bombs(message_bytes_max):
    """(name, message): none of them is a command, each asks for as much as a message may have."""
    largest = message_bytes_max - HEADER_BYTES
    for compressor, name in NAMES.items():
        small, large = zeros(compressor, 100), zeros(compressor, largest)
        inner = compressed(compressor, largest, large)
        lies = {
            "declares 2 GiB": (0x7fffffff, small),
            "declares less than nothing": (-1, small),
            "declares one byte too many": (largest + 1, large),
            "inflates to the largest message, of zeros, as declared": (largest, large),
            "inflates to the largest message, declares 100 bytes": (100, large),
            "inflates to 100 bytes, declares the largest message": (largest, small),
            "ends in the middle": (largest, large[:len(large) // 2]),
            "no payload": (largest, b""),
            "an envelope in an envelope": (len(inner) - 16, packed(compressor, inner[16:]), 2012),
        }
        for lie, what in lies.items():
            yield f"{name}: {lie}", compressed(compressor, *what)
    yield ("snappy: its own size says 4 GiB",
           compressed(SNAPPY, largest, snappy_zeros(1000, 0xffffffff)))
    yield "zstd: a window of 2 GiB", compressed(ZSTD, 1000, zstd_zeros(1000, window_log=31))
    yield "zstd: a window of 3.75 TiB", compressed(ZSTD, 1000, zstd_zeros(1000, window_log=41))
    yield ("zstd: its own size says 2^62",
           compressed(ZSTD, largest, zstd_zeros(1000, content_bytes=1 << 62)))


def outcome(port, message, timeout_s=20):
    """What became of a message: "closed", "CODE", "ok", or "no answer"."""
    client = Client(port, timeout_s)
    try:
        client.send(message)
        reply = client.receive_message()
        if struct.unpack_from("<i", reply, 8)[0] != 2013:
            return "compressed answer"
        answer = values(reply, 17)
        return "ok" if answer.get("ok") == 1.0 else str(answer.get("code"))
    except Closed:
        return "closed"
    except TimeoutError:
        return "no answer"
    finally:
        client.close()


def answers_compressed_ping(port, compressor):
    """That honest messages still pass: a compressed ping gets an answer."""
    body = op_msg(bson({"ping": 1, "$db": "admin"}))[HEADER_BYTES:]
    return outcome(port, compressed(compressor, len(body), packed(compressor, body))) in (
        "compressed answer", "ok")
