"""What a store may touch: its own files in its own folder, and nothing through a link."""

import json
import os
import shutil
import time
from types import SimpleNamespace

import pytest

from tests.store.test_records import BED, PROFILES, opened, run
from wallscope.errors import StoreError
from wallscope.store import Store, object_name, records

MARKER = "wallscope-store.json"
NAME = object_name(PROFILES[0])
OBJECT = f"objects/{NAME[:2]}/{NAME[2:]}"
OLDER = 7_200


@pytest.fixture
def later(monkeypatch):
    """Two hours from now, as retention sees it."""
    monkeypatch.setattr(records, "time", SimpleNamespace(time=lambda: time.time() + OLDER))


@pytest.fixture(params=["folder", "piece by piece"])
def kind(request):
    return request.param


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "store"


def contents(folder):
    """The bytes of all regular files below a folder, by path."""
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


FOREIGN = [
    "notes.txt",
    ".aside-notes",
    "notes/.aside-notes",
    "objects/notes.txt",
    "objects/.aside-notes",
    "objects/aa/notes.txt",
    f"objects/aa/{'b' * 61}",
    f"objects/aa/{'B' * 62}",
    f"objects/AA/{'b' * 62}",
    f"objects/aa/{'b' * 62}",  # the name of an object, and other bytes
    f"objects/aa/bb/{'b' * 62}",
    "objects/aa/bb/.aside-notes",
    f"objects/notes/{'b' * 62}",
    "objects/notes/.aside-notes",
    "records/notes.txt",
    "records/.aside-notes",
    "records/abcd/notes.json",
    f"records/abcd/{'0' * 31}.json",
    "records/abcd/notes/.aside-notes",
    "records/notes/.aside-notes",
]


@pytest.mark.usefixtures("later")
def test_retention_deletes_nothing_that_is_no_file_of_a_store(kind, folder):
    store = opened(kind, folder)
    store.add(*run("abcd"))
    store.keep(PROFILES[1])
    for name in FOREIGN:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("the user's")
    before = contents(folder)
    store.retain(BED, 1)

    gone = object_name(PROFILES[1])
    assert before.keys() - contents(folder).keys() == {f"objects/{gone[:2]}/{gone[2:]}"}
    assert all((folder / name).read_text() == "the user's" for name in FOREIGN)


@pytest.mark.usefixtures("later")
def test_an_object_store_keeps_what_is_no_object(tmp_path):
    store = opened("object store", tmp_path)
    store.add(*run("abcd"))
    foreign = [name for name in FOREIGN if name.count("/") == 2]
    for name in foreign:
        store.storage.write(name, b"the user's")
    store.retain(BED, 1)

    assert {store.storage.read(name) for name in foreign} == {b"the user's"}


@pytest.mark.usefixtures("later")
def test_a_pipe_in_the_place_of_an_object_is_left_where_it_is(folder):
    store = Store(folder)
    store.add(*run("abcd"))
    pipe = folder / "objects" / "aa" / ("b" * 62)
    pipe.parent.mkdir(exist_ok=True)
    os.mkfifo(pipe)
    store.retain(BED, 1)

    assert pipe.exists()
    (folder / OBJECT).unlink()
    os.mkfifo(folder / OBJECT)
    with pytest.raises(StoreError, match="is not a regular file"):
        store.keep(PROFILES[0])
    assert (folder / OBJECT).is_fifo()


def move_behind_a_link(path, elsewhere):
    """Put what is at a path elsewhere, and a link to that in its place."""
    path.rename(elsewhere)
    path.symlink_to(elsewhere)


LINKED = {
    "objects": "objects",
    "folder of objects": f"objects/{NAME[:2]}",
    "object": OBJECT,
    "records": "records",
    "folder of a commit": "records/abcd",
    "record": "records/abcd/*.json",
    "marker": MARKER,
}


@pytest.mark.usefixtures("later")
@pytest.mark.parametrize("linked", LINKED.values(), ids=LINKED)
@pytest.mark.parametrize("act", ["add", "retain"])
def test_a_link_is_neither_written_to_nor_deleted_through(kind, folder, tmp_path, linked, act):
    Store(folder).add(*run("abcd"))
    (path,) = folder.glob(linked)
    elsewhere = tmp_path / "elsewhere"
    move_behind_a_link(path, elsewhere)
    before = contents(tmp_path)
    store = opened(kind, folder)

    with pytest.raises(StoreError, match="is a link") as failed:
        store.add(*run("abcd")) if act == "add" else store.retain(BED, 1)
    assert "\n" not in str(failed.value)
    assert contents(tmp_path) == before
    assert path.is_symlink()


@pytest.mark.parametrize("linked", LINKED.values(), ids=LINKED)
def test_a_link_is_not_read_through(kind, folder, tmp_path, linked):
    Store(folder).add(*run("abcd"))
    (path,) = folder.glob(linked)
    move_behind_a_link(path, tmp_path / "elsewhere")
    store = opened(kind, folder)

    with pytest.raises(StoreError, match="is a link"):
        store.profile(store.all_records()[0].representative.object)


ACTS = {
    "add": lambda store: store.add(*run("abcd", 1)),
    "retain": lambda store: store.retain(BED, 1),
    "read": lambda store: store.all_records(),
}


@pytest.mark.parametrize("act", ACTS.values(), ids=ACTS)
def test_a_link_beside_the_files_of_a_store_is_refused(kind, folder, tmp_path, act):
    Store(folder).add(*run("abcd"))
    (tmp_path / "notes.txt").write_text("the user's")
    (folder / "notes.txt").symlink_to(tmp_path / "notes.txt")
    before = contents(tmp_path)

    with pytest.raises(StoreError, match=r"notes[.]txt — is a link"):
        act(opened(kind, folder))
    assert contents(tmp_path) == before


def test_a_link_that_leads_nowhere_is_refused_too(folder):
    Store(folder).add(*run("abcd"))
    shutil.rmtree(folder / "objects")
    (folder / "objects").symlink_to("nowhere")

    with pytest.raises(StoreError, match="is a link"):
        Store(folder).add(*run("abcd"))
    assert not (folder / "nowhere").exists()


@pytest.mark.usefixtures("later")
def test_a_folder_that_becomes_a_link_while_retention_runs_is_not_deleted_from(folder, tmp_path, monkeypatch):
    store = Store(folder)
    store.add(*run("abcd", 1))
    store.keep(PROFILES[0])
    delete, elsewhere = store.storage.delete, tmp_path / "elsewhere"

    def swapped(name):
        move_behind_a_link((folder / name).parent, elsewhere)
        delete(name)

    monkeypatch.setattr(store.storage, "delete", swapped)
    with pytest.raises(StoreError, match="is a link"):
        store.retain(BED, 1)
    assert list(contents(elsewhere)) == [NAME[2:]]


def test_a_store_may_lie_behind_a_link_that_the_user_names(folder, tmp_path):
    folder.mkdir()
    (tmp_path / "link").symlink_to(folder)
    Store(tmp_path / "link").add(*run("abcd"))

    assert Store(folder).commits() == ("abcd",)


PLACES = ["folder", "piece by piece", "object store"]


@pytest.mark.parametrize("place", PLACES)
def test_a_new_store_has_a_marker(place, tmp_path):
    store = opened(place, tmp_path / "store")
    assert store.all_records() == ()
    store.add(*run("abcd"))

    assert json.loads(store.storage.read(MARKER)) == {"schema": "wallscope.store/1"}


def test_a_store_can_be_made_in_an_empty_folder(folder):
    folder.mkdir()
    Store(folder).add(*run("abcd"))

    assert (folder / MARKER).is_file()


OTHERS = {
    "a repository": {"HEAD": "ref: refs/heads/main", f"objects/aa/{'b' * 38}": "x", "config": ""},
    "objects of git alone": {f"objects/aa/{'b' * 38}": "x"},
    "a file": {"notes.txt": "x"},
    "a file that is hidden": {".gitignore": "*"},
    "a store with something else": {f"records/abcd/{'0' * 32}.json": "x", "notes.txt": "x"},
    "records of something else": {"records/2024/january.json": "x"},
    "objects of something else": {"objects/chair/model.obj": "x"},
    "folders below those of objects": {f"objects/aa/bb/{'b' * 60}": "x"},
}


@pytest.mark.usefixtures("later")
@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("files", OTHERS.values(), ids=OTHERS)
def test_what_holds_something_else_is_no_store(place, folder, files):
    store = opened(place, folder)
    for name, text in files.items():
        store.storage.write(name, text.encode())
    acts = (
        lambda: store.add(*run("abcd")),
        lambda: store.keep(PROFILES[0]),
        lambda: store.retain(BED, 1),
        store.all_records,
        store.commits,
        lambda: store.profile("0" * 64),
    )
    for act in acts:
        with pytest.raises(
            StoreError, match="is not a wallscope store — name a new or an empty folder"
        ) as failed:
            act()
        assert "\n" not in str(failed.value)

    assert {name: store.storage.read(name).decode() for name in files} == files
    assert not store.storage.has(MARKER)


@pytest.mark.parametrize("place", PLACES)
def test_a_store_of_an_earlier_version_is_read_and_marked_when_it_is_written(place, folder):
    opened(place, folder).add(*run("abcd"))
    opened(place, folder).storage.delete(MARKER)

    assert opened(place, folder).commits() == ("abcd",)
    assert not opened(place, folder).storage.has(MARKER)
    opened(place, folder).add(*run("beef"))
    assert opened(place, folder).storage.has(MARKER)
    assert opened(place, folder).commits() == ("abcd", "beef")


def test_what_a_killed_writer_left_does_not_make_a_store_unknown(folder):
    Store(folder).add(*run("abcd"))
    (folder / MARKER).rename(folder / ".aside-marker")
    (folder / "records" / "abcd" / ".aside-record").write_text("{")

    assert Store(folder).commits() == ("abcd",)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        pytest.param('{"schema": "wallscope.store/2"}', "is wallscope.store/2, not", id="another version"),
        pytest.param("", "does not mark a store", id="empty"),
        pytest.param("[1]", "does not mark a store", id="something else"),
        pytest.param("[" * 100_000, "does not mark a store", id="nested deeply"),
    ],
)
def test_a_marker_that_is_not_ours_is_one_line(folder, text, said):
    folder.mkdir()
    (folder / MARKER).write_text(text)

    for act in (Store(folder).all_records, lambda: Store(folder).add(*run("abcd"))):
        with pytest.raises(StoreError, match=said) as failed:
            act()
        assert "\n" not in str(failed.value)
    assert (folder / MARKER).read_text() == text


@pytest.mark.parametrize("made", ["pipe", "folder"])
def test_a_marker_that_is_no_file_marks_nothing(folder, made):
    folder.mkdir(exist_ok=True)
    path = folder / "wallscope-store.json"
    os.mkfifo(path) if made == "pipe" else path.mkdir()
    (folder / "thesis.tex").write_text("mine")
    with pytest.raises(StoreError, match="does not mark a store"):
        Store(folder).all_records()
    with pytest.raises(StoreError, match="does not mark a store"):
        Store(folder).add(*run("abcd"))
    assert sorted(entry.name for entry in folder.iterdir()) == ["thesis.tex", "wallscope-store.json"]
