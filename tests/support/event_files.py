"""A small reader of TensorBoard's event files, independent of lockstep's writer: TFRecord's frame with its CRCs, and the
fields of Protocol Buffers."""
import pathlib
import struct


def masked_crc(data: bytes) -> int:
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    crc ^= 0xFFFFFFFF
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def records(data: bytes, may_be_torn: bool = False) -> list[bytes]:
    """The contents of all records. Raises ValueError for a wrong CRC and, unless `may_be_torn`, for a torn last record."""
    found = []
    while data:
        if len(data) < 12 or len(data) < 16 + struct.unpack("<Q", data[:8])[0]:
            if may_be_torn:
                break
            raise ValueError("the last record is torn")
        (length,) = struct.unpack("<Q", data[:8])
        content = data[12 : 12 + length]
        if struct.unpack("<I", data[8:12])[0] != masked_crc(data[:8]):
            raise ValueError("the CRC of a length is wrong")
        if struct.unpack("<I", data[12 + length : 16 + length])[0] != masked_crc(content):
            raise ValueError("the CRC of a record is wrong")
        found.append(content)
        data = data[16 + length :]
    return found


def fields(message: bytes) -> list[tuple[int, object]]:
    """The fields of a message: numbers, and whole numbers, floats, doubles or bytes."""
    found, at = [], 0

    def varint() -> int:
        nonlocal at
        value = shift = 0
        while True:
            byte = message[at]
            at += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value

    while at < len(message):
        key = varint()
        number, kind = key >> 3, key & 7
        if kind == 0:
            value = varint()
        elif kind == 2:
            size = varint()
            value, at = message[at : at + size], at + size
        else:
            size, form = {1: (8, "<d"), 5: (4, "<f")}[kind]
            value, at = struct.unpack(form, message[at : at + size])[0], at + size
        found.append((number, value))
    return found


def events(folder: pathlib.Path, may_be_torn: bool = False) -> list[dict]:
    """The events of all files of a folder in the order of their names: step, version, graph, and scalars by tag."""
    found = []
    for path in sorted(p for p in pathlib.Path(folder).iterdir() if p.is_file()):
        for record in records(path.read_bytes(), may_be_torn):
            event = {"step": 0, "scalars": {}, "tags": []}
            for number, value in fields(record):
                if number in (1, 2, 3, 4):
                    event[{1: "wall_time", 2: "step", 3: "version", 4: "graph"}[number]] = value
                for _, one in fields(value) if number == 5 else []:
                    parts = dict(fields(one))
                    event["tags"].append(parts[1].decode())
                    if 2 in parts:
                        event["scalars"][parts[1].decode()] = parts[2]
            found.append(event)
    return found


def scalars(folder: pathlib.Path, may_be_torn: bool = False) -> dict[str, list[tuple[int, float]]]:
    """Steps and values by tag."""
    found: dict[str, list[tuple[int, float]]] = {}
    for event in events(folder, may_be_torn):
        for tag, value in event["scalars"].items():
            found.setdefault(tag, []).append((event["step"], value))
    return found
