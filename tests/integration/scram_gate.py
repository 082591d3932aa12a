"""Puts authentication in front of a server that has none, as a shard with users: what comes before a
client has logged in is refused, all else goes through. An implementation of SCRAM of its own."""

import asyncio
import base64
import hashlib
import hmac
import os
import struct

import bson
from loop_server import LoopServer

OP_QUERY, OP_MSG = 2004, 2013
BEFORE = {"hello", "isMaster", "ismaster", "buildInfo", "ping", "saslStart", "saslContinue"}


class Scram:
    """The server's end of one conversation."""

    def __init__(self, mechanism, user, password):
        self.hash = "sha1" if mechanism == "SCRAM-SHA-1" else "sha256"
        if self.hash == "sha1":
            password = hashlib.md5(f"{user}:mongo:{password}".encode()).hexdigest()
        self.user, self.salt, self.count = user, os.urandom(16), 4096
        salted = hashlib.pbkdf2_hmac(self.hash, password.encode(), self.salt, self.count)
        self.stored = hashlib.new(self.hash, self._hmac(salted, b"Client Key")).digest()
        self.server = self._hmac(salted, b"Server Key")

    def _hmac(self, key, text):
        return hmac.digest(key, text, self.hash)

    def first(self, message):
        header, bare = message[:3], message[3:]
        assert header == b"n,,"
        fields = dict(part.split(b"=", 1) for part in bare.split(b","))
        self.known = fields[b"n"].decode() == self.user
        self.bare, self.nonce = bare, fields[b"r"] + base64.b64encode(os.urandom(12))
        self.answer = b"r=%s,s=%s,i=%d" % (self.nonce, base64.b64encode(self.salt), self.count)
        return self.answer

    def last(self, message):
        without, proof = message.split(b",p=")
        assert without == b"c=biws,r=" + self.nonce
        text = self.bare + b"," + self.answer + b"," + without
        signature = self._hmac(self.stored, text)
        key = bytes(a ^ b for a, b in zip(base64.b64decode(proof), signature, strict=True))
        if not self.known or hashlib.new(self.hash, key).digest() != self.stored:
            return None
        return b"v=" + base64.b64encode(self._hmac(self.server, text))


class ScramGate(LoopServer):
    """Listens on a free loopback port. `logins` are the mechanisms of successful logins, `refused` the
    commands before a login."""

    def __init__(self, port, user, password, mechanisms=("SCRAM-SHA-1", "SCRAM-SHA-256")):
        self._target, self.user, self.password = port, user, password
        self.mechanisms, self.logins, self.refused = mechanisms, [], []
        super().__init__(self._serve)

    async def _serve(self, reader, writer):
        far_reader = far_writer = None
        try:
            far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self._target)
            await self._talk(reader, writer, far_reader, far_writer)
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()
            if far_writer:
                far_writer.close()

    @staticmethod
    async def _message(reader):
        length = await reader.readexactly(4)
        return length + await reader.readexactly(struct.unpack("<i", length)[0] - 4)

    async def _talk(self, reader, writer, far_reader, far_writer):
        scram, inside = None, False
        while True:
            message = await self._message(reader)
            request_id, opcode = struct.unpack_from("<i", message, 4)[0], \
                struct.unpack_from("<i", message, 12)[0]
            command = bson.decode(message[21:21 + struct.unpack_from("<i", message, 21)[0]]) \
                if opcode == OP_MSG else {}
            name = next(iter(command), "")
            reply = None
            if name == "saslStart":
                scram = Scram(command["mechanism"], self.user, self.password)
                scram.mechanism = command["mechanism"]
                assert scram.mechanism in self.mechanisms
                reply = {"conversationId": 1, "done": False, "ok": 1,
                         "payload": scram.first(bytes(command["payload"]))}
            elif name == "saslContinue":
                payload = scram.last(bytes(command["payload"]))
                inside = payload is not None
                reply = {"conversationId": 1, "done": True, "payload": payload, "ok": 1}
                if not inside:
                    reply = {"ok": 0, "code": 18, "codeName": "AuthenticationFailed",
                             "errmsg": "Authentication failed."}
                else:
                    self.logins.append(scram.mechanism)
            elif "saslSupportedMechs" in command:
                reply = {"ismaster": True, "maxWireVersion": 21, "minWireVersion": 0, "ok": 1,
                         "saslSupportedMechs": list(self.mechanisms)}
            elif opcode == OP_MSG and not inside and name not in BEFORE:
                self.refused.append(name)
                reply = {"ok": 0, "code": 13, "codeName": "Unauthorized",
                         "errmsg": f"Command {name} requires authentication"}
            if reply is not None:
                body = b"\0" * 5 + bson.encode(reply)
                writer.write(struct.pack("<iiii", 16 + len(body), 1, request_id, OP_MSG) + body)
            else:
                far_writer.write(message)
                await far_writer.drain()
                writer.write(await self._message(far_reader))
            await writer.drain()
