import os
import stat
import threading
import time
from pathlib import Path

import pytest

from wallscope.cache_folder import Cache, EntryKind, user_cache
from wallscope.errors import OptionError

NAMES = [f"{number:040x}" for number in range(8)]
ONE = NAMES[0]


@pytest.fixture
def cache(tmp_path) -> Cache:
    return Cache(tmp_path / "kept")


def place(cache: Cache, name: str = ONE) -> Path:
    return cache.folder / EntryKind.ANSWERS / name


def test_what_was_kept_is_found_under_its_kind_and_name(cache):
    cache.write(EntryKind.ANSWERS, ONE, b"an answer\nof lines")

    assert cache.read(EntryKind.ANSWERS, ONE) == b"an answer\nof lines"
    assert cache.read(EntryKind.PAGES, ONE) is None
    assert cache.read(EntryKind.ANSWERS, NAMES[1]) is None


def test_folder_and_entries_are_the_users_alone(cache):
    (cache.folder / EntryKind.ANSWERS).mkdir(parents=True)
    (cache.folder / EntryKind.ANSWERS).chmod(0o755)
    cache.write(EntryKind.ANSWERS, ONE, b"private")

    assert stat.S_IMODE(place(cache).parent.stat().st_mode) == 0o700
    assert stat.S_IMODE(place(cache).stat().st_mode) == 0o600


@pytest.mark.parametrize(
    "damage",
    [
        pytest.param(lambda content: content[:-1], id="cut"),
        pytest.param(lambda content: content[:0], id="empty"),
        pytest.param(lambda content: content + b" ", id="longer"),
        pytest.param(lambda content: content.replace(b"answer", b"Answer"), id="changed inside"),
        pytest.param(lambda content: content.replace(b"cache 1", b"cache 2"), id="another format"),
        pytest.param(lambda content: content.partition(b"\n")[2], id="without its seal"),
        pytest.param(lambda content: b"\x80\x04" + content, id="something else"),
    ],
)
def test_a_damaged_entry_counts_as_absent_and_is_replaced(cache, damage):
    cache.write(EntryKind.ANSWERS, ONE, b"an answer")
    place(cache).write_bytes(damage(place(cache).read_bytes()))

    assert cache.read(EntryKind.ANSWERS, ONE) is None

    cache.write(EntryKind.ANSWERS, ONE, b"an answer")

    assert cache.read(EntryKind.ANSWERS, ONE) == b"an answer"


def test_an_entry_under_the_name_of_another_counts_as_absent(cache):
    cache.write(EntryKind.ANSWERS, ONE, b"an answer")
    place(cache).rename(place(cache, NAMES[1]))

    assert cache.read(EntryKind.ANSWERS, NAMES[1]) is None


def test_the_longest_unused_go_first_once_the_limit_is_passed(tmp_path):
    sealed_bytes = 1_000 + 83
    cache = Cache(tmp_path, 3 * sealed_bytes)
    for number, name in enumerate(NAMES[:3]):
        cache.write(EntryKind.ANSWERS, name, bytes(1_000))
        os.utime(place(cache, name), (number, number))

    assert cache.read(EntryKind.ANSWERS, ONE) == bytes(1_000)  # used now
    cache.write(EntryKind.PAGES, NAMES[3], bytes(1_000))

    assert {(entry.kind, entry.name) for entry in cache.entries()} == {
        ("answers", ONE),
        ("answers", NAMES[2]),
        ("pages", NAMES[3]),
    }


def test_what_is_larger_than_the_limit_is_not_kept_and_moves_nothing_out(tmp_path):
    cache = Cache(tmp_path, 2_000)
    cache.write(EntryKind.ANSWERS, ONE, bytes(1_000))
    cache.write(EntryKind.ANSWERS, NAMES[1], bytes(3_000))

    assert [entry.name for entry in cache.entries()] == [ONE]


def test_clearing_removes_the_entries_and_nothing_else(cache):
    cache.write(EntryKind.ANSWERS, ONE, b"an answer")
    own = cache.folder / EntryKind.ANSWERS / "notes.txt"
    own.write_text("the user's")

    assert [entry.name for entry in cache.clear()] == [ONE]
    assert cache.entries() == ()
    assert own.read_text() == "the user's"


@pytest.mark.parametrize("kind", EntryKind)
def test_what_only_bears_the_name_of_an_entry_is_never_removed(tmp_path, kind):
    cache = Cache(tmp_path, 2_000)
    own = tmp_path / kind / (f"{ONE}.sqlite" if kind is EntryKind.EXPORTS else ONE)
    own.parent.mkdir()
    own.write_bytes(b"the user's" * 1_000)
    os.utime(own, (0, 0))
    cache.write(EntryKind.ANSWERS, NAMES[1], b"an answer")

    assert [entry.name for entry in cache.clear()] == [NAMES[1]]
    assert own.read_bytes() == b"the user's" * 1_000


def test_an_export_that_is_one_is_removed(cache):
    made = cache.make_folder(EntryKind.EXPORTS) / f"{ONE}.sqlite"
    made.write_bytes(b"SQLite format 3\0 and so on")

    assert [entry.name for entry in cache.clear()] == [made.name]
    assert not made.exists()


def test_links_lead_nowhere(cache, tmp_path):
    cache.write(EntryKind.ANSWERS, ONE, b"an answer")
    elsewhere = tmp_path / "elsewhere"
    place(cache).rename(elsewhere)
    place(cache).symlink_to(elsewhere)

    assert cache.read(EntryKind.ANSWERS, ONE) is None
    assert cache.clear() == ()

    cache.write(EntryKind.ANSWERS, ONE, b"another")

    assert not place(cache).is_symlink()
    assert b"an answer" in elsewhere.read_bytes()


def test_a_folder_that_is_a_link_is_left_alone(cache, tmp_path):
    (tmp_path / "elsewhere").mkdir()
    cache.folder.mkdir()
    (cache.folder / EntryKind.ANSWERS).symlink_to(tmp_path / "elsewhere")
    cache.write(EntryKind.ANSWERS, ONE, b"an answer")

    assert list((tmp_path / "elsewhere").iterdir()) == []
    assert cache.read(EntryKind.ANSWERS, ONE) is None


def test_the_folder_of_another_user_is_left_alone(cache, monkeypatch):
    cache.write(EntryKind.ANSWERS, ONE, b"an answer")
    monkeypatch.setattr(os, "geteuid", lambda: 4_294_967_294)

    assert cache.read(EntryKind.ANSWERS, ONE) is None
    assert cache.entries() == ()


def test_a_place_that_cannot_be_a_folder_is_no_reason_to_fail(tmp_path, caplog):
    (tmp_path / "file").write_text("")
    caplog.set_level("INFO")
    cache = Cache(tmp_path / "file" / "below")
    cache.write(EntryKind.ANSWERS, ONE, b"an answer")

    assert cache.read(EntryKind.ANSWERS, ONE) is None
    assert [record.levelname for record in caplog.records] == ["INFO", "INFO"]
    assert "going on without the cache" in caplog.text


def test_writers_at_once_leave_one_whole_entry(cache):
    texts = [bytes([number]) * 50_000 for number in range(4)]

    def write(text: bytes) -> None:
        for _ in range(20):
            cache.write(EntryKind.ANSWERS, ONE, text)
            assert cache.read(EntryKind.ANSWERS, ONE) in texts

    writers = [threading.Thread(target=write, args=(text,)) for text in texts]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()

    assert cache.read(EntryKind.ANSWERS, ONE) in texts
    assert [path.name for path in place(cache).parent.iterdir()] == [ONE]


def test_what_a_killed_writer_left_goes_a_day_later(cache):
    cache.write(EntryKind.ANSWERS, ONE, b"an answer")
    room = place(cache).parent
    for name, age_s in ((".aside-old", 90_000), (".aside-new", 0)):
        (room / name).write_bytes(b"half")
        os.utime(room / name, (room.stat().st_mtime - age_s,) * 2)
    (room / ".aside-folder").mkdir()
    (room / ".aside-folder" / "export.sqlite").write_bytes(b"half")
    os.utime(room / ".aside-folder", (0, 0))
    cache.write(EntryKind.ANSWERS, NAMES[1], b"another")

    assert sorted(path.name for path in room.iterdir()) == [".aside-new", ONE, NAMES[1]]


@pytest.mark.parametrize("jump_s", [-(10**9), -90_000, 90_000, 10**9])
def test_a_clock_that_jumps_costs_no_entry(cache, monkeypatch, jump_s):
    cache.write(EntryKind.ANSWERS, ONE, b"before")
    now_s = time.time()
    monkeypatch.setattr("wallscope.cache_folder.time.time", lambda: now_s + jump_s)
    other = NAMES[1]
    cache.write(EntryKind.ANSWERS, other, b"after")

    assert cache.read(EntryKind.ANSWERS, ONE) == b"before"
    assert cache.read(EntryKind.ANSWERS, other) == b"after"


@pytest.mark.parametrize(
    ("text", "size_bytes"), [("0", 0), ("500", 500), ("2K", 2_048), ("3 MiB", 3 << 20), ("4g", 4 << 30)]
)
def test_the_size_can_be_set(monkeypatch, tmp_path, text, size_bytes):
    monkeypatch.setenv("WALLSCOPE_CACHE_DIR", str(tmp_path / "place"))
    monkeypatch.setenv("WALLSCOPE_CACHE_SIZE", text)

    assert user_cache() == Cache(tmp_path / "place", size_bytes)


def test_a_size_that_is_none_is_refused(monkeypatch):
    monkeypatch.setenv("WALLSCOPE_CACHE_SIZE", "much")

    with pytest.raises(OptionError, match=r"^WALLSCOPE_CACHE_SIZE=much — is not a size — write"):
        user_cache()


def test_without_a_word_the_cache_is_where_the_system_keeps_them(monkeypatch, tmp_path):
    monkeypatch.delenv("WALLSCOPE_CACHE_DIR", raising=False)
    monkeypatch.delenv("WALLSCOPE_CACHE_SIZE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))

    assert user_cache() == Cache(tmp_path / "wallscope", 4 << 30)


@pytest.mark.parametrize("mode", [0o660, 0o606, 0o622])
def test_an_entry_that_others_may_write_counts_as_absent(cache, mode):
    cache.write(EntryKind.ANSWERS, "a" * 32, b"mine")
    path = cache.folder / "answers" / ("a" * 32)
    assert cache.is_trustworthy(EntryKind.ANSWERS, "a" * 32)
    path.chmod(mode)
    assert cache.read(EntryKind.ANSWERS, "a" * 32) is None
    assert not cache.is_trustworthy(EntryKind.ANSWERS, "a" * 32)
    cache.write(EntryKind.ANSWERS, "a" * 32, b"mine again")
    assert cache.read(EntryKind.ANSWERS, "a" * 32) == b"mine again"


@pytest.mark.parametrize("mode", [0o770, 0o707, 0o722])
def test_a_folder_that_others_may_write_is_not_read_and_is_mended_empty(cache, mode):
    cache.write(EntryKind.ANSWERS, "a" * 32, b"perhaps theirs")
    (cache.folder / "answers").chmod(mode)
    assert cache.read(EntryKind.ANSWERS, "a" * 32) is None
    cache.write(EntryKind.ANSWERS, "b" * 32, b"mine")
    assert (cache.folder / "answers").stat().st_mode & 0o777 == 0o700
    assert cache.read(EntryKind.ANSWERS, "a" * 32) is None
    assert cache.read(EntryKind.ANSWERS, "b" * 32) == b"mine"


@pytest.mark.parametrize(("mode", "is_read"), [(0o777, False), (0o770, False), (0o1777, True), (0o755, True)])
def test_the_folder_around_is_looked_at_too(cache, mode, is_read):
    cache.write(EntryKind.ANSWERS, "a" * 32, b"mine")
    cache.folder.chmod(mode)
    assert (cache.read(EntryKind.ANSWERS, "a" * 32) is not None) == is_read


def test_an_entry_of_another_user_counts_as_absent(cache, monkeypatch):
    cache.write(EntryKind.ANSWERS, "a" * 32, b"mine")
    own = os.fstat

    def other(handle):
        status = own(handle)
        is_file = Path(f"/proc/self/fd/{handle}").readlink().name == "a" * 32
        return os.stat_result([*status[:4], status.st_uid + 1, *status[5:]]) if is_file else status

    monkeypatch.setattr(os, "fstat", other)
    assert cache.read(EntryKind.ANSWERS, "a" * 32) is None
