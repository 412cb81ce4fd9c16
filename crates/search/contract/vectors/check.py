#!/usr/bin/env python3
"""Checks the vectors of this folder with an implementation that shares nothing with the Rust one.

Usage: check.py          compares every expected value with its own result
       check.py --write  writes its own results as the expected values

Written from docs/search-contract.md and the BLAKE3 paper; plain Python, no packages.
"""
import json
import struct
import sys
from pathlib import Path

HERE = Path(__file__).parent

# --- BLAKE3, hash mode -------------------------------------------------------------------------------------

IV = [0x6A09E667, 0xBB67AE85, 0x3C6EF372, 0xA54FF53A, 0x510E527F, 0x9B05688C, 0x1F83D9AB, 0x5BE0CD19]
PERMUTATION = [2, 6, 3, 10, 7, 0, 4, 13, 1, 11, 12, 5, 9, 14, 15, 8]
CHUNK_START, CHUNK_END, PARENT, ROOT = 1, 2, 4, 8
MASK = 0xFFFFFFFF


def compress(chaining, block, counter, length, flags):
    words = list(struct.unpack("<16I", block.ljust(64, b"\0")))
    v = chaining[:8] + IV[:4] + [counter & MASK, counter >> 32, length, flags]

    def mix(a, b, c, d, x, y):
        rotate = lambda n, by: ((n >> by) | (n << (32 - by))) & MASK
        for word, r1, r2 in ((x, 16, 12), (y, 8, 7)):
            v[a] = (v[a] + v[b] + word) & MASK
            v[d] = rotate(v[d] ^ v[a], r1)
            v[c] = (v[c] + v[d]) & MASK
            v[b] = rotate(v[b] ^ v[c], r2)

    for _ in range(7):
        for i in range(4):
            mix(i, 4 + i, 8 + i, 12 + i, words[2 * i], words[2 * i + 1])
        for i in range(4):
            mix(i, 4 + (i + 1) % 4, 8 + (i + 2) % 4, 12 + (i + 3) % 4, words[8 + 2 * i], words[9 + 2 * i])
        words = [words[p] for p in PERMUTATION]
    return [v[i] ^ v[i + 8] for i in range(8)]


def chunk(data, counter, root):
    blocks = [data[i : i + 64] for i in range(0, len(data), 64)] or [b""]
    chaining = IV
    for i, block in enumerate(blocks):
        last = i == len(blocks) - 1
        flags = (CHUNK_START if i == 0 else 0) | (CHUNK_END if last else 0) | (ROOT if last and root else 0)
        chaining = compress(chaining, block, counter, len(block), flags)
    return chaining


def tree(data, counter=0, root=True):
    if len(data) <= 1024:
        return chunk(data, counter, root)
    # The left side holds the largest power of two of whole chunks that leaves something for the right.
    left = 1024
    while left * 2 < len(data):
        left *= 2
    children = tree(data[:left], counter, False) + tree(data[left:], counter + left // 1024, False)
    return compress(IV, struct.pack("<16I", *children), 0, 64, PARENT | (ROOT if root else 0))


def blake3(data):
    return struct.pack("<8I", *tree(data)).hex()


# --- The canonical byte form -------------------------------------------------------------------------------

u32 = lambda n: struct.pack("<I", n)
u64 = lambda n: struct.pack("<Q", n)
sized = lambda b: u64(len(b)) + b
text = lambda s: sized(s.encode())
tag = lambda n: bytes([n])
KINDS = {"upsert": 1, "patch": 2, "delete": 3}


def canonical_bits(bits, exponent_bits, fraction_bits):
    exponent = ((1 << exponent_bits) - 1) << fraction_bits
    fraction = (1 << fraction_bits) - 1
    if bits & exponent == exponent and bits & fraction:
        return exponent | 1 << (fraction_bits - 1)
    return 0 if bits == 1 << (exponent_bits + fraction_bits) else bits


f16 = lambda bits: struct.pack("<H", canonical_bits(bits, 5, 10))
f32 = lambda hexadecimal: u32(canonical_bits(int(hexadecimal, 16), 8, 23))
f64 = lambda hexadecimal: u64(canonical_bits(int(hexadecimal, 16), 11, 52))


def members(mapping):
    keys = sorted(mapping, key=lambda name: name.encode())
    return u64(len(keys)) + b"".join(text(name) + value(mapping[name]) for name in keys)


def value(v):
    (kind, x), = v.items()
    if kind == "null":
        return tag(0)
    if kind == "bool":
        return tag(1) + tag(int(x))
    if kind == "i64":
        return tag(2) + struct.pack("<q", int(x))
    if kind == "u64":
        return tag(3) + u64(int(x))
    if kind == "f32":
        return tag(4) + f32(x)
    if kind == "f64":
        return tag(5) + f64(x)
    if kind == "string":
        return tag(6) + text(x)
    if kind == "bytes":
        return tag(7) + sized(bytes.fromhex(x))
    if kind == "f32_vector":
        return tag(8) + u64(len(x)) + b"".join(map(f32, x))
    if kind == "f16_vector":
        raw = bytes.fromhex(x)
        return tag(9) + u64(len(raw)) + b"".join(f16(h) for (h,) in struct.iter_unpack("<H", raw))
    if kind == "quantized_vector":
        return tag(10) + u32(x["dimensions"]) + sized(bytes.fromhex(x["codes"])) + f32(x["scale"]) + f32(x["offset"])
    if kind == "list":
        return tag(11) + u64(len(x)) + b"".join(map(value, x))
    if kind == "objects":
        return tag(12) + u64(len(x)) + b"".join(map(members, x))
    raise ValueError(kind)


def content(kind, row):
    return u32(KINDS[kind]) + tag(1) + u64(int(row["doc"])) + members(row.get("fields", {}))


def entry(e):
    (kind, x), = e.items()
    if kind == "progress":
        marks = x.get("watermarks", [])
        watermarks = b"".join(u32(modality) + u64(int(ts)) for modality, ts in marks)
        return tag(2) + u64(int(x["resolved_ts"])) + u64(len(marks)) + watermarks
    if kind == "barrier":
        return tag(3) + u64(int(x["barrier_ts"])) + text(x["fence_id"])
    version = x.get("schema_version")
    return tag(1) + (tag(255) if version is None else tag(1) + u32(version)) + content(kind, x)


def batch(b):
    head = [b["namespace"], b["collection_id"], b["source_partition"], b["schema_generation_token"]]
    body = u64(len(b["entries"])) + b"".join(map(entry, b["entries"]))
    return text("searchfabric.v1.batch") + b"".join(map(text, head)) + body


def row_digest(e):
    (kind, x), = e.items()
    return blake3(text("searchfabric.v1.row") + content(kind, x))


# --- Canonical JSON ----------------------------------------------------------------------------------------


def number(x):
    if isinstance(x, int):
        return str(x)
    if x == 0:
        return "0.0"
    mantissa, exponent = f"{x:.17e}".split("e")
    for digits in range(17):
        mantissa, exponent = f"{x:.{digits}e}".split("e")
        if float(f"{mantissa}e{exponent}") == x:
            break
    e = int(exponent)
    sign, digits = ("-" if x < 0 else ""), mantissa.lstrip("-").replace(".", "").rstrip("0") or "0"
    if not -5 <= e <= 15:
        return sign + digits[0] + ("." + digits[1:] if digits[1:] else "") + f"e{e}"
    if e < 0:
        return sign + "0." + "0" * (-e - 1) + digits
    whole, fraction = digits[: e + 1].ljust(e + 1, "0"), digits[e + 1 :] or "0"
    return f"{sign}{whole}.{fraction}"


def canonical_json(v):
    if isinstance(v, dict):
        keys = sorted(v, key=lambda name: name.encode())
        return "{" + ",".join(canonical_json(k) + ":" + canonical_json(v[k]) for k in keys) + "}"
    if isinstance(v, list):
        return "[" + ",".join(map(canonical_json, v)) + "]"
    if isinstance(v, str):
        return json.dumps(v, ensure_ascii=False)
    if v is None or isinstance(v, bool):
        return {None: "null", True: "true", False: "false"}[v]
    return number(v)


def depth(v):
    inner = v.values() if isinstance(v, dict) else v if isinstance(v, list) else None
    return 0 if inner is None else 1 + max(map(depth, inner), default=0)


def integer(digits):
    """What no 64-bit integer can hold is a double."""
    n = int(digits)
    return float(digits) if digits == "-0" or not -(2**63) <= n < 2**64 else n


def no_number(name):
    raise ValueError(name)


def checked_json(source):
    try:
        v = json.loads(source, parse_int=integer, parse_constant=no_number)
    except ValueError:
        return {"error": "SF_JSON_INVALID"}
    return {"error": "SF_JSON_TOO_DEEP"} if depth(v) > 16 else {"canonical": canonical_json(v)}


# --- The files ---------------------------------------------------------------------------------------------


def results(name, case):
    if name == "fingerprints.json":
        form = batch(case["batch"])
        rows = [row_digest(e) for e in case["batch"]["entries"] if set(e) & set(KINDS)]
        return {"form": form.hex(), "fingerprint": blake3(form), "row_digests": rows}
    return checked_json(case["json"])


def main():
    assert blake3(b"") == "af1349b9f5f9a1a6a0404dea36dcc9499bcb25c9adc112b7cc9a93cae41f3262"
    wrong = 0
    for name in ("fingerprints.json", "json.json"):
        path = HERE / name
        cases = json.loads(path.read_text())
        for case in cases:
            mine = results(name, case)
            if "--write" in sys.argv:
                case["expect"] = mine
            elif case["expect"] != mine:
                wrong += 1
                print(f"{name}: {case['name']}: expected {case['expect']}, got {mine}")
        if "--write" in sys.argv:
            path.write_text(json.dumps(cases, indent=1, ensure_ascii=False) + "\n")
        print(f"{name}: {len(cases)} cases")
    sys.exit(1 if wrong else 0)


main()
