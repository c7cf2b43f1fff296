"""A partition on disk, as the offline tools see it."""

from __future__ import annotations

import json
from pathlib import Path

from braidlog.core.ids import parse_id
from braidlog.core.slices import ByteSlice
from braidlog.storage.files import OsFiles
from braidlog.storage.inspection.dump import Entry, dump_file, entry_text
from braidlog.storage.log.unified_log import UnifiedLog
from braidlog.wire.records.validation import ORIGIN_COORDINATOR
from support.manager_fixture import NOW

FILES = OsFiles()


ID = parse_id("AAECAwQFBgcICQoLDA0ODw")


def produce(log: UnifiedLog, data: bytes, **fields: int) -> None:
    origin = {"origin": ORIGIN_COORDINATOR} if fields.get("marker") else {}
    log.append_as_leader(ByteSlice(data, 0, len(data)), 3, now_ms=NOW, **origin)
    log.write_staged()
    log.advance_high_watermark(log.log_end_offset)


def only(directory: Path, suffix: str) -> list[str]:
    return [str(path) for path in sorted(directory.iterdir()) if path.name.endswith(suffix)]


def dumped(path: str | Path, **options: bool) -> list[Entry]:
    entries = list(dump_file(FILES, str(path), **options))
    for entry in entries:
        assert json.loads(json.dumps(entry)) == entry
        assert entry_text(entry)
    return entries
