"""`python -m tools.protocol` rewrites src/braidlog/wire/generated."""

from __future__ import annotations

from tools.protocol.generate import TARGET, generated_files


def main() -> None:
    files = generated_files()
    for path in TARGET.glob("*.py"):
        if path.name != "__init__.py" and path.name not in files:
            path.unlink()
    for name, text in files.items():
        (TARGET / name).write_text(text, encoding="utf-8")
    print(f"{len(files)} modules in {TARGET.name}/")


if __name__ == "__main__":
    main()
