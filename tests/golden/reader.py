#!/usr/bin/env python3
"""Reads a journal as docs/journal-format.md describes it, and knows nothing else of it. Prints what `journeyman dump DIR --json
--payloads` prints, so that the two can be compared: python3 tests/golden/reader.py DIR"""

import json
import os
import re
import struct
import sys

TABLE = []
for byte in range(256):
    for _ in range(8):
        byte = byte >> 1 ^ (0x82F63B78 if byte & 1 else 0)
    TABLE.append(byte)


def crc(data):
    state = 0xFFFFFFFF
    for byte in data:
        state = TABLE[(state ^ byte) & 255] ^ state >> 8
    return state ^ 0xFFFFFFFF


class Damage(Exception):
    pass


def need(holds, what):
    if not holds:
        raise Damage(what)


class Fields:
    """Postcard, taken off the front."""

    def __init__(self, data):
        self.data, self.at = data, 0

    def bytes(self, length=None):
        length = self.number() if length is None else length
        need(self.at + length <= len(self.data), "fields that end too early")
        self.at += length
        return self.data[self.at - length:self.at]

    def byte(self):
        return self.bytes(1)[0]

    def number(self):
        value = shift = 0
        while True:
            byte = self.byte()
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value
            need(shift < 70, "a number of 64 bits")

    def text(self):
        return self.bytes().decode("utf-8")

    def option(self, take):
        return take() if self.byte() else None

    def list(self, take):
        return [take() for _ in range(self.number())]

    def job(self):
        job = {"priority": self.byte(), "kind": self.text(), "version": self.number(), "codec": self.byte()}
        job["target"] = self.option(self.text)
        job["options"] = self.list(lambda: [self.number(), self.number()])
        job["meta"] = self.list(lambda: [self.text(), self.text()])
        job["payload"] = self.bytes()
        return job


def header(data, mark, size):
    need(len(data) >= size and data[:8] == mark and struct.unpack("<I", data[size - 4:size])[0] == crc(data[:size - 4]), "a header")
    _, least, checksum = struct.unpack_from("<HHI", data, 8)
    need(least <= 1, "format 1, not %d" % least)
    return checksum, data[16:32], struct.unpack_from("<8Q" if size > 100 else "<4Q", data, 32)


def issued_in(directory, first, previous, length, checksum):
    """How many tickets the snapshot behind which a segment begins says were given out; None when that is not to be had."""
    path = os.path.join(directory, "%020d.snapshot" % (first - 1))
    if not os.path.exists(path):
        return None
    data = open(path, "rb").read()
    said, salt, numbers = header(data[:128], b"JYSNAPST", 128)
    seq, _, segment, bytes_there, chunks, total, _, digest = numbers
    need((seq, segment, bytes_there, said) == (first - 1, previous, length, checksum), "a snapshot that ends where the segment begins")
    need(total == len(data) - 128 and digest == crc(salt + data[128:]), "the chunks that the meta data name")
    body = b""
    for number in range(chunks):
        chunk = data[128 + number * 65536:128 + (number + 1) * 65536]
        mark, index, size, own = struct.unpack_from("<4sIII", chunk)
        need((mark, index, size) == (b"JYCK", number, len(chunk) - 16), "chunk %d" % number)
        need(own == crc(salt + struct.pack("<Q", seq) + chunk[:12] + chunk[16:]), "chunk %d with a right checksum" % number)
        body += chunk[16:]
    facts = Fields(body[4:4 + struct.unpack_from("<I", body)[0]])
    need((facts.number(), facts.number()) == (1, seq), "the facts first")
    facts.number()
    return facts.number()


ENDS = ["done", "rejected", "unsafe", "spent", "late"]


def shown(event, fields, state):
    """One record as `dump` shows it: the same names in the same order."""
    tag = fields.number()

    def fault():
        cause, text = fields.byte(), fields.bytes()
        event.update(cause=cause, text_bytes=len(text), text=text.decode("utf-8"))

    if tag == 1:
        state["issued"] = None if state["issued"] is None else state["issued"] + 1
        event.update(op="enqueue", ticket=state["issued"], now=fields.number(), due=fields.number())
        key = fields.option(fields.text)
        job = fields.job()
        event.update((name, job[name]) for name in ["kind", "version", "codec", "target", "priority", "options"])
        event.update(key_bytes=None if key is None else len(key.encode("utf-8")), meta_pairs=len(job["meta"]))
        event.update(payload_bytes=len(job["payload"]), key=key, meta=job["meta"])
        try:
            event["payload"] = job["payload"].decode("utf-8")
        except UnicodeDecodeError:
            event["payload_hex"] = job["payload"].hex()
    elif tag in (2, 4):
        event.update(op="select" if tag == 2 else "cancel", ticket=fields.number())
    elif tag in (3, 8):
        event.update(op="complete", ticket=fields.number(), attempt=fields.number(), end=ENDS[fields.byte()])
        if tag == 8:
            fault()
    elif tag in (5, 6):
        event.update(op="requeue" if tag == 5 else "defer", ticket=fields.number(), attempt=fields.number(), due=fields.number())
        if tag == 5:
            fault()
    elif tag == 7:
        event["op"] = "lead"
        need(fields.number() <= event["epoch"], "an epoch that its batch has")
    else:
        raise Damage("record tag %d" % tag)
    print(json.dumps(event, separators=(",", ":")).replace("\x7f", "\\u007f"))


def frame(data, at, salt):
    """The frame at an offset; None when there is no valid one."""
    head = data[at:at + 64]
    if len(head) < 64 or head[:4] != b"JYFR" or struct.unpack("<I", head[60:])[0] != crc(salt + head[:60]):
        return None
    _, kind, length, count, epoch, first, time, _, before, own, _, checksum = struct.unpack("<4sIIIQQQQIIII", head)
    body = data[at + 64:at + 64 + length]
    if len(body) < length or own != crc(salt + body):
        return None
    return kind, count, epoch, first, time, before, checksum, body, at + 64 + length


def read_segment(data, head, successor, state):
    checksum, salt, (number, first, _, _) = head
    at = 96
    while successor is None or at < successor[2][3]:
        found = frame(data, at, salt)
        if found is None:
            need(successor is None, "segment %d: a frame at byte %d" % (number, at))
            behind = [i.start() + at + 1 for i in re.finditer(b"JYFR", data[at + 1:])]
            later = [i for i in (frame(data, i, salt) for i in behind) if i and (i[0] == 2 or i[3] > state["last"] + 1)]
            need(not later, "segment %d: a frame at byte %d, as a later one is whole" % (number, at))
            break
        kind, count, epoch, first, time, before, own, body, at = found
        need(before == checksum, "segment %d: a frame before byte %d that follows the one before it" % (number, at))
        checksum = own
        if kind == 1:
            need(first == state["last"] + 1 and epoch >= state["epoch"], "record %d next" % (state["last"] + 1))
            fields = Fields(body)
            for seq in range(first, first + count):
                shown({"seq": seq, "time": time, "epoch": epoch}, fields, state)
            need(fields.at == len(body), "a body without anything left over")
            state.update(last=first + count - 1, epoch=epoch)
    if successor is not None:
        need((at, checksum) == (successor[2][3], successor[0]), "segment %d: the end that the next one names" % number)


def main(directory):
    names = sorted(name for name in os.listdir(directory) if re.fullmatch(r"\d{20}\.segment", name))
    datas = [open(os.path.join(directory, name), "rb").read() for name in names]
    if datas and not any(datas[-1][96:]):
        try:
            header(datas[-1], b"JYSEGMNT", 96)
        except Damage:
            datas.pop()  # A torn creation.
    heads = [header(data, b"JYSEGMNT", 96) for data in datas]
    state = {"last": 0, "epoch": 0, "issued": 0}
    for at, (data, head) in enumerate(zip(datas, heads)):
        checksum, _, (number, first, previous, length) = head
        need(number == int(names[at][:20]), "the header of segment %s" % names[at])
        if at == 0 and previous:
            state.update(last=first - 1, issued=issued_in(directory, first, previous, length, checksum))
        need(previous == (heads[at - 1][2][0] if at else previous) and first == state["last"] + 1, "segment %d in its place" % number)
        need(previous or first == 1, "record 1 first")
        read_segment(data, head, heads[at + 1] if at + 1 < len(heads) else None, state)


if __name__ == "__main__":
    try:
        main(sys.argv[1])
    except Damage as damage:
        sys.exit("expected " + str(damage))
