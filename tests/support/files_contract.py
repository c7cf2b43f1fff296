"""What every implementation of `braidlog.storage.files` promises; a test class per implementation inherits it."""

from __future__ import annotations

import os

import pytest

from braidlog.storage.files import Files


class FilesContract:
    """Subclasses define the fixtures `files` and `root`, an existing empty directory of theirs."""

    @pytest.fixture
    def own_disk(self, root: str) -> str:
        """An empty directory on a disk that may be filled, for it is nobody else's."""
        return root

    def test_appends_go_to_the_end_and_are_read_from_any_position(self, files: Files, root: str) -> None:
        file = files.open_append(f"{root}/a")
        file.writev([b"abc", memoryview(b"xdefx")[1:4]])
        file.writev([bytearray(b"gh")])
        assert file.size() == files.size(f"{root}/a") == 8
        assert file.pread(100, 0) == b"abcdefgh"
        assert file.pread(3, 2) == b"cde"
        assert file.pread(3, 7) == b"h"
        assert file.pread(3, 8) == b""
        file.close()

    def test_a_write_of_no_parts_or_empty_parts_changes_nothing(self, files: Files, root: str) -> None:
        file = files.open_append(f"{root}/a")
        file.writev([b""])
        file.writev([b"", b"x", b""])
        assert file.pread(10, 0) == b"x"
        file.close()

    def test_more_parts_than_one_system_call_takes_arrive_in_order(self, files: Files, root: str) -> None:
        parts = [b"%05d" % number for number in range(5000)]
        file = files.open_append(f"{root}/a")
        file.writev(parts)
        assert file.pread(1 << 20, 0) == b"".join(parts)
        file.close()

    def test_reopening_keeps_content_and_appends_behind_it(self, files: Files, root: str) -> None:
        file = files.open_append(f"{root}/a")
        file.writev([b"one"])
        file.close()
        file.close()
        again = files.open_append(f"{root}/a")
        again.writev([b"two"])
        assert again.pread(10, 0) == b"onetwo"
        again.close()

    def test_two_open_files_of_one_path_see_each_others_writes(self, files: Files, root: str) -> None:
        writer = files.open_append(f"{root}/a")
        writer.writev([b"one"])
        reader = files.open_read(f"{root}/a")
        writer.writev([b"two"])
        assert reader.pread(10, 0) == b"onetwo"
        assert reader.size() == 6
        reader.sync()
        writer.close()
        reader.close()

    def test_truncation_shortens_and_later_appends_follow_the_new_end(self, files: Files, root: str) -> None:
        file = files.open_append(f"{root}/a")
        file.writev([b"abcdef"])
        file.truncate(2)
        assert file.size() == 2
        file.writev([b"z"])
        assert file.pread(10, 0) == b"abz"
        file.close()

    def test_reserving_changes_nothing_that_is_seen(self, files: Files, root: str) -> None:
        file = files.open_append(f"{root}/a")
        file.writev([b"abc"])
        assert file.reserve(1 << 20)
        assert (file.size(), file.pread(10, 0)) == (3, b"abc")
        file.writev([b"def"])
        file.truncate(6)
        assert files.read_bytes(f"{root}/a") == b"abcdef"
        file.close()

    def test_reserving_more_than_there_is_changes_nothing_at_all(self, files: Files, own_disk: str) -> None:
        file = files.open_append(f"{own_disk}/a")
        file.writev([b"abc"])
        assert not file.reserve(files.disk_usage(own_disk).total * 2)
        file.writev([b"def"])
        assert files.read_bytes(f"{own_disk}/a") == b"abcdef"
        file.close()

    def test_sync_keeps_what_was_written(self, files: Files, root: str) -> None:
        file = files.open_append(f"{root}/a")
        file.writev([b"abc"])
        file.sync()
        files.sync_dir(root)
        assert files.read_bytes(f"{root}/a") == b"abc"
        file.close()

    def test_an_open_file_survives_rename_and_removal(self, files: Files, root: str) -> None:
        file = files.open_append(f"{root}/a")
        file.writev([b"abc"])
        files.rename(f"{root}/a", f"{root}/b")
        assert file.pread(3, 0) == b"abc"
        files.remove(f"{root}/b")
        assert file.pread(3, 0) == b"abc"
        assert not files.exists(f"{root}/a")
        assert not files.exists(f"{root}/b")
        file.close()

    def test_rename_replaces_the_target(self, files: Files, root: str) -> None:
        files.write_atomic(f"{root}/a", b"new")
        files.write_atomic(f"{root}/b", b"old")
        files.rename(f"{root}/a", f"{root}/b")
        assert files.listdir(root) == ["b"]
        assert files.read_bytes(f"{root}/b") == b"new"

    def test_a_renamed_directory_takes_its_files_along(self, files: Files, root: str) -> None:
        files.mkdir(f"{root}/d/e")
        files.write_atomic(f"{root}/d/e/f", b"1")
        files.rename(f"{root}/d", f"{root}/g")
        assert files.listdir(f"{root}/g/e") == ["f"]
        assert files.read_bytes(f"{root}/g/e/f") == b"1"
        assert not files.exists(f"{root}/d")

    def test_listing_is_sorted_and_names_only_direct_children(self, files: Files, root: str) -> None:
        files.mkdir(f"{root}/b/deep")
        files.write_atomic(f"{root}/c", b"")
        files.write_atomic(f"{root}/a", b"")
        assert files.listdir(root) == ["a", "b", "c"]
        assert files.is_dir(f"{root}/b")
        assert not files.is_dir(f"{root}/a")
        assert files.exists(f"{root}/b")
        files.mkdir(f"{root}/b")
        assert files.listdir(f"{root}/b") == ["deep"]

    def test_removing_a_tree_removes_all_of_it_and_nothing_else(self, files: Files, root: str) -> None:
        files.mkdir(f"{root}/d/e")
        files.write_atomic(f"{root}/d/e/f", b"1")
        files.write_atomic(f"{root}/dd", b"1")
        files.rmtree(f"{root}/d")
        files.rmtree(f"{root}/d")
        assert files.listdir(root) == ["dd"]

    def test_what_is_missing_is_reported_as_such(self, files: Files, root: str) -> None:
        with pytest.raises(FileNotFoundError):
            files.open_read(f"{root}/none")
        with pytest.raises(FileNotFoundError):
            files.read_bytes(f"{root}/none")
        with pytest.raises(FileNotFoundError):
            files.remove(f"{root}/none")
        with pytest.raises(FileNotFoundError):
            files.size(f"{root}/none")
        with pytest.raises(FileNotFoundError):
            files.rename(f"{root}/none", f"{root}/other")
        with pytest.raises(FileNotFoundError):
            files.listdir(f"{root}/none")
        with pytest.raises(FileNotFoundError):
            files.open_append(f"{root}/none/a")

    @pytest.mark.parametrize("sync", [True, False])
    def test_an_atomic_write_replaces_the_whole_content(self, files: Files, root: str, sync: bool) -> None:
        files.write_atomic(f"{root}/a", b"a longer first content", sync=sync)
        files.write_atomic(f"{root}/a", b"short", sync=sync)
        assert files.read_bytes(f"{root}/a") == b"short"
        assert files.listdir(root) == ["a"]

    def test_modification_times_can_be_set(self, files: Files, root: str) -> None:
        files.write_atomic(f"{root}/a", b"1")
        files.set_modified_ms(f"{root}/a", 1_500_000_000_123)
        assert files.modified_ms(f"{root}/a") == 1_500_000_000_123

    def test_disk_usage_is_plausible(self, files: Files, root: str) -> None:
        usage = files.disk_usage(root)
        assert 0 <= usage.free <= usage.total

    def test_a_descriptor_is_real_or_refused(self, files: Files, root: str) -> None:
        file = files.open_append(f"{root}/a")
        file.writev([b"abc"])
        try:
            descriptor = file.fileno()
        except OSError:
            return
        finally:
            content = file.pread(3, 0)
        assert os.pread(descriptor, 3, 0) == content == b"abc"
        file.close()
