"""A name for the content of a file that may be gigabytes long."""

import hashlib
import os
from pathlib import Path

_BLOCK_BYTES, _MOST_BLOCKS = 65_536, 64


def file_fingerprint(path: Path, size_bytes: int) -> str:
    """BLAKE2 of the size and of up to 64 evenly spaced blocks of 64 KiB, the first and the last among them.

    Files up to 4 MiB are read whole. Of larger ones it notices another size and whatever SQLite writes: the
    first block holds the change counter, the page count and the schema's version. It does not notice bytes
    that something else than SQLite patched between the blocks.

    Raises:
        OSError: the file cannot be read.
    """
    digest = hashlib.blake2b(size_bytes.to_bytes(8, "big"), digest_size=16)
    blocks = -(-size_bytes // _BLOCK_BYTES)
    with path.open("rb", buffering=0) as stream:
        for index in range(min(blocks, _MOST_BLOCKS)):
            block = index if blocks <= _MOST_BLOCKS else index * (blocks - 1) // (_MOST_BLOCKS - 1)
            stream.seek(block * _BLOCK_BYTES, os.SEEK_SET)
            digest.update(stream.read(_BLOCK_BYTES))
    return digest.hexdigest()
