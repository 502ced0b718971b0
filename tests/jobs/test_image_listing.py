"""Which images a source names; no Spark but for tables, which `sources` reads."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from trainyard.errors import JobError
from trainyard.images.listing import list_images
from trainyard.images.pixels import BadImageError, Limits, Pixels
from trainyard.images.reading import ImageReader

NO_SPARK: Any = None


def listed(source: Path | str, **more: Any) -> list[str]:
    return [image for image, _ in rows(source, **more)]


def rows(source: Path | str, spark: Any = NO_SPARK, form: str = "auto") -> list[tuple[str, Any]]:
    images = list_images(spark, str(source), form, more_column(form)).images
    return [(row["path"], row["fault"]) for row in images.to_pylist()]


def more_column(form: str) -> str | None:
    return "photo" if form != "auto" else None


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("b.jpg", "a.jpg", "deep/er/c.PNG", "notes.txt", ".hidden", ".cache/d.jpg"):
        path = tmp_path / "photos" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(name.encode())
    (tmp_path / "photos" / "x.jpg").mkdir()
    return tmp_path / "photos"


@pytest.fixture
def reader() -> ImageReader:
    pixels = Pixels(crop=1.0, mean=(0.0, 0.0, 0.0), std=(1.0, 1.0, 1.0))
    return ImageReader(pixels, (3, 8, 8), Limits(bytes=100))


def names(folder: Path, *found: str) -> list[str]:
    return [str(folder / name) for name in found]


def test_a_folder_is_every_file_below_it(folder: Path) -> None:
    wanted = names(folder, "a.jpg", "b.jpg", "deep/er/c.PNG", "notes.txt")
    assert listed(folder) == listed(f"{folder}/") == listed(folder.as_uri()) == wanted


def test_a_link_to_a_folder_is_not_followed_and_not_forgotten(folder: Path) -> None:
    (folder / "deep" / "loop").symlink_to(folder)
    assert listed(folder / "deep") == names(folder, "deep/er/c.PNG", "deep/loop")


def test_a_pattern_names_files(folder: Path) -> None:
    assert listed(folder / "*.jpg") == names(folder, "a.jpg", "b.jpg")
    assert listed(folder / "**/*.PNG") == names(folder, "deep/er/c.PNG")


def test_one_image_or_url(folder: Path) -> None:
    assert listed(folder / "a.jpg") == names(folder, "a.jpg")
    assert listed("https://host/a.jpg?x=1") == ["https://host/a.jpg?x=1"]


def test_the_sample() -> None:
    assert [Path(path).name for path in listed("sample:photographs")] == ["china.jpg", "flower.jpg"]


def test_a_list_of_lines_as_people_write_them(folder: Path) -> None:
    (folder / "l\u2028s.jpg").touch()
    lines = [
        "\ufeffa.jpg",
        "l\u2028s.jpg",
        "",
        "  b.jpg  ",
        "a.jpg",
        "/else/where.jpg",
        "https://host/ä.jpg",
        "gone",
    ]
    (folder / "list.txt").write_bytes("\r\n".join(lines).encode())
    found = list_images(NO_SPARK, str(folder / "list.txt"), "auto", None)
    wanted = [
        *names(folder, "a.jpg", "l\u2028s.jpg", "b.jpg"),
        "/else/where.jpg",
        "https://host/ä.jpg",
    ]
    assert found.images.column("path").to_pylist() == [*wanted, *names(folder, "gone")]
    assert (found.repeated, found.blank) == (1, 1)


def test_a_list_named_by_a_relative_path(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "list.txt").write_text("a.jpg\n../b.jpg\n")
    monkeypatch.chdir(folder)
    assert listed("list.txt") == [str(folder / "a.jpg"), str(folder.parent / "b.jpg")]


def test_a_name_that_can_be_none_spoils_no_other(folder: Path, reader: ImageReader) -> None:
    (folder / "list.txt").write_text("s3://[x/a.jpg\nhttp://[x/a.jpg\na.jpg\n")
    bad, *_ = found = listed(folder / "list.txt")
    assert len(found) == 3
    with pytest.raises(BadImageError, match=r"cannot be read \(ValueError\)"):
        reader.read(bad)


@pytest.mark.parametrize(
    "line", ["abfss://box@account.dfs.core.windows.net/a.jpg", "s3://b/a@b.jpg"]
)
def test_an_at_sign_is_not_always_a_passwords(folder: Path, line: str) -> None:
    (folder / "list.txt").write_text(line)
    assert rows(folder / "list.txt") == [(line, None)]


def test_a_directory_that_may_not_be_read_is_an_error(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its images would be missing, and nobody would know."""
    real = os.scandir

    def scandir(path: Any) -> Any:
        if str(path).endswith("deep"):
            raise PermissionError(13, "Permission denied", str(path))
        return real(path)

    monkeypatch.setattr(os, "scandir", scandir)
    with pytest.raises(JobError, match="deep' cannot be read: Permission denied"):
        listed(folder)


def test_a_table_of_paths(spark: Any, folder: Path) -> None:
    table = pa.table({"id": [1, 2, 3], "photo": ["a.jpg", None, "b.jpg"]})
    pq.write_table(table, folder / "list.parquet")
    wanted = names(folder, "a.jpg", "b.jpg")
    assert listed(folder / "list.parquet", spark=spark, form="parquet") == wanted
    with pytest.raises(JobError, match="has no column 'path'"):
        list_images(spark, str(folder / "list.parquet"), "auto", None)
    with pytest.raises(JobError, match=r"column 'id' .* is bigint, and names no image"):
        list_images(spark, str(folder / "list.parquet"), "auto", "id")
    (folder / "dir.parquet").mkdir()
    pq.write_table(table, folder / "dir.parquet" / "part.parquet")
    found = list_images(spark, f"{folder}/dir.parquet/", "auto", "photo")
    assert found.images.column("path").to_pylist() == wanted


def test_a_password_is_kept_nowhere(folder: Path) -> None:
    (folder / "list.txt").write_text("https://me:secret@host/a.jpg\nhttps://token@host/b.jpg\n")
    found = rows(folder / "list.txt")
    told = "the URL holds a password"
    assert found == [("https://host/a.jpg", told), ("https://host/b.jpg", told)]


def test_a_name_that_is_not_utf_8(folder: Path) -> None:
    Path(os.fsdecode(os.fsencode(folder) + b"/caf\xe9.jpg")).touch()
    assert (f"{folder}/caf\\xe9.jpg", "the file's name is not UTF-8") in rows(folder)


@pytest.mark.parametrize("source", ["nothing", "*.gif", "empty", "empty.txt", "blank.txt"])
def test_no_image_is_an_error(folder: Path, source: str) -> None:
    (folder / "empty").mkdir()
    (folder / "empty.txt").write_bytes(b"")
    (folder / "blank.txt").write_bytes(b"\r\n\n  \n")
    with pytest.raises(JobError, match=r"setting 'source' is .*(nothing is there|names no image)"):
        listed(folder / source)


def test_the_digest_tells_what_changed(folder: Path) -> None:
    def digest(source: Path) -> str:
        return list_images(NO_SPARK, str(source), "auto", None).digest

    first = digest(folder)
    assert digest(folder) == first
    os.utime(folder / "a.jpg", ns=(1, 1))
    second = digest(folder)
    (folder / "new.jpg").write_bytes(b"")
    assert len({first, second, digest(folder)}) == 3


class TestReading:
    @pytest.mark.parametrize(
        ("path", "reason"),
        [
            ("/no/such/file.jpg", "nothing is there"),
            ("{folder}/x.jpg", "the path names no file"),
            ("{folder}/pipe", "the path names no file"),
            ("{folder}/large.jpg", "more than 100 bytes"),
            ("/dev/zero", "the path names no file"),
            (f"/{'long' * 99}.jpg", "cannot be read"),
            ("ftp://host/a.jpg", "ftp:// is not read"),
            ("memory://a.jpg", "memory:// is not read"),
            ("github://who:what@/a.jpg", "github:// is not read"),
            ("https://host/a.jpg", "not in 'allowed_hosts'"),
            ("nul\0.jpg", "cannot be read"),
        ],
    )
    def test_what_cannot_be_read_says_why(
        self, reader: ImageReader, folder: Path, path: str, reason: str
    ) -> None:
        os.mkfifo(folder / "pipe")
        (folder / "large.jpg").write_bytes(b"x" * 101)
        with pytest.raises(BadImageError, match=reason):
            reader.read(path.format(folder=folder))

    def test_a_file_is_read_by_path_and_by_uri(self, reader: ImageReader, folder: Path) -> None:
        for path in (str(folder / "a.jpg"), (folder / "a.jpg").as_uri()):
            assert reader.read(path) == b"a.jpg"
