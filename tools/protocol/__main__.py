"""`python -m tools.protocol` rewrites src/braidlog/wire/generated and the walks over records."""

from __future__ import annotations

from tools.protocol.generate import TARGET, generated_files
from tools.protocol.record_walk import walked_files


def main() -> None:
    files = generated_files()
    for path in TARGET.glob("*.py"):
        if path.name != "__init__.py" and path.name not in files:
            path.unlink()
    for name, text in files.items():
        (TARGET / name).write_text(text, encoding="utf-8")
    walked = walked_files()
    for path, text in walked.items():
        path.write_text(text, encoding="utf-8")
    print(f"{len(files)} modules in {TARGET.name}/, {len(walked)} with a walk over records")


if __name__ == "__main__":
    main()
