"""Credentials of URLs are shown nowhere, however they are spelled and whoever repeats them."""

import os
import subprocess
import sys
import time
from urllib.parse import quote

import pytest

from tests.conftest import ROOT
from wallscope.errors import StoreError, WallscopeError
from wallscope.jobs.inputs import Url, fetch_source, find_captures, list_files, url_version
from wallscope.store import Store
from wallscope.urls import describe_failure, redact, redact_url

SECRET = "s3cr3tpw"
URLS = [
    f"https://me:{SECRET}@host/a.sqlite",
    f"https://{SECRET}@host/a.sqlite",
    f"https://me:x@{SECRET}@host/a.sqlite",
    f"https://me:x/{SECRET}@host/a.sqlite",
    f"https://me:1/{SECRET}@host/a.sqlite",
    f"https://me:x@y/{SECRET}@host/a.sqlite",
    f"https://me:x%2f{SECRET}%40@host/a.sqlite",
    f"https://me:x?{SECRET}@host/a.sqlite",
    f"https://me:x#{SECRET}@host/a.sqlite",
    f"https://me:x:{SECRET}@host/a.sqlite",
    f"https://me:x {SECRET}@host/a.sqlite",
    f"https://me:x'{SECRET}@host/a.sqlite",
    f"https://me:{SECRET}%40host/a.sqlite",
    f"https://host/a.sqlite?sig={SECRET}",
    f"https://host/a.sqlite?x=a@b&sig={SECRET}",
    f"https://host/a.sqlite#{SECRET}",
    f"https://host/a.sqlite;jsessionid={SECRET}",
    f"simplecache::https://me:{SECRET}@host/a.sqlite",
    f"filecache::simplecache::ftp://me:x/{SECRET}@host/a.sqlite?y={SECRET}",
    f"zip://a.sqlite::https://me:{SECRET}@host/a.zip?sig={SECRET}",
    f"s3://AKIA:x/{SECRET}@bucket/a.sqlite",
    f"s3://AKIA:1/{SECRET}@bucket/a.sqlite",
    f"az://box/a.sqlite?sv=1&sig={SECRET}",
    f"abfs://box@account/a.sqlite?sig={SECRET}",
    f"sftp://me:x?{SECRET}@host/a.sqlite",
    f"nosuch://me:{SECRET}@host/a.sqlite",
    f"webhdfs://host/a.sqlite?delegation={SECRET}",
]


@pytest.mark.parametrize("url", URLS)
def test_no_credential_is_left_of_a_url(url):
    assert SECRET not in redact_url(url)
    assert SECRET not in str(Url(url))
    assert SECRET not in repr(Url(url))
    assert SECRET not in Url(url).name


@pytest.mark.parametrize("url", [url for url in URLS if not {" ", "'"} & set(url)])
def test_no_credential_is_left_of_a_text_with_urls(url):
    for text in (f"GET {url}: no", f"({url})", f'url="{url}", {url}', f"a\n{url}\n"):
        assert SECRET not in redact(text)


@pytest.mark.parametrize(
    "text",
    [
        f"https:/me:{SECRET}@host/a",
        f"login as me:{SECRET}@host failed",
        f"Authorization: Basic {SECRET}",
        f"Bearer {SECRET}",
        f"X-Amz-Signature={SECRET} is wrong",
        f"{{'aws_secret_access_key': '{SECRET}'}}",
        f"url: /a?sig={SECRET}",
        f"password={SECRET}",
    ],
)
def test_what_is_named_as_a_credential_is_left_out(text):
    assert SECRET not in redact(text)


@pytest.mark.parametrize(
    "text",
    [
        "s3://bucket/a@b/run.sqlite",
        "s3://runs/rank?.sqlite",
        "tcp://10.0.0.1:8786",
        "run.sqlite — there is no such file — check the path",
        "at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<int>>",
        "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
    ],
)
def test_what_holds_no_credential_stays(text):
    assert redact(text) == text


@pytest.mark.parametrize("url", URLS)
@pytest.mark.parametrize("spelled", [str, str.upper, quote, lambda url: url.replace("%2f", "%2F")])
def test_a_library_that_repeats_a_url_in_its_own_spelling_is_not_quoted(url, spelled):
    for error in (
        ValueError(spelled(url)),
        OSError(5, spelled(url)),
        FileNotFoundError(2, url, spelled(url)),
    ):
        assert SECRET.upper() not in describe_failure(error, url).upper()


@pytest.mark.parametrize("url", URLS)
def test_messages_about_stores_and_exports_hold_no_credential(url, monkeypatch):
    core = pytest.importorskip("fsspec.core", reason="URLs need the extra remote")

    class System:
        """A plugin that repeats what it is given, spelled anew, whatever it is asked."""

        def __getattr__(self, name):
            def fails(*_: object, **__: object):
                raise RuntimeError(f"{name} of {url} and {quote(url)}: {SECRET}")

            return fails

    monkeypatch.setattr(core, "url_to_fs", lambda _: (System(), "root"))
    store = Store(url)
    acts = [
        store.all_records,
        lambda: store.base("abcd"),
        lambda: store.commit("abcd"),
        lambda: store.profile("a" * 64),
        lambda: url_version(Url(url)),
        lambda: list_files(Url(url)),
        lambda: fetch_source(Url(url)).__enter__(),
    ]
    for act in acts:
        with pytest.raises(WallscopeError) as failed:
            act()
        assert SECRET not in str(failed.value)
    assert SECRET not in str(store)

    def refuses(_: str) -> None:
        raise ValueError(url)

    monkeypatch.setattr(core, "url_to_fs", refuses)
    with pytest.raises(StoreError) as refused:
        Store(url)
    assert SECRET not in str(refused.value)


@pytest.mark.parametrize(
    ("url", "every"),
    [
        pytest.param(URLS[0], 1, marks=pytest.mark.slow),
        (URLS[16], 5),
        *(pytest.param(url, 5, marks=pytest.mark.slow) for url in URLS[1:3] + URLS[17:19]),
    ],
)
def test_credentials_are_in_no_message_of_a_command(started, url, every):
    for words in (
        ["info", url],
        ["analyze", url],
        ["diff", url, url],
        ["record", "x.json", "--commit", "abcd", "--store", url],
        ["history", "step", "--store", url],
        ["history", "step", url, url],
        ["analyze", "x.sqlite", "--dask", url],
        [url],
    )[::every]:
        ran = started(*words)
        assert ran.code == 2
        assert SECRET not in ran.out + ran.err


@pytest.mark.parametrize(
    "part", ["a:/", "::", "a::", "a:b@", "://", "a", "sig", "basic ", "ab::", "a.", "?", "#", ";"]
)
def test_long_texts_take_no_time(part):
    text = part * 50_000
    begun_s = time.process_time()
    for some in (text, f"s3://{text}=", f"https://{text}", f"{text}:{text}@"):
        redact(some)
        redact_url(some)
    assert time.process_time() - begun_s < 8


@pytest.mark.parametrize("url", URLS)
def test_a_side_of_a_comparison_that_is_a_url_is_refused_without_its_credential(url):
    with pytest.raises(WallscopeError, match="is a URL") as failed:
        find_captures(url)
    assert SECRET not in str(failed.value)


def test_a_local_url_is_a_file_and_so_is_a_name_like_a_url(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a::b.json").touch()
    assert [path.name for path in find_captures(f"file://{tmp_path}/a::b.json")] == ["a::b.json"]
    assert [path.name for path in find_captures("a::b.json")] == ["a::b.json"]


def test_what_libraries_log_and_warn_of_holds_no_credential(tmp_path):
    script = (
        "import logging, warnings, wallscope.cli\n"
        "def fails(**_):\n"
        f"    logging.basicConfig(level='INFO'); logging.info('GET {URLS[0]}')\n"
        f"    warnings.warn('slow: {URLS[7]}')\n"
        f"    raise RuntimeError('{URLS[13]}')\n"
        "wallscope.cli.app = fails\n"
        "from wallscope.__main__ import main\n"
        "main()\n"
    )
    (tmp_path / "run.py").write_text(script)
    ran = subprocess.run(
        [sys.executable, "run.py"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 70
    assert "GET https://host/a.sqlite" in ran.stderr
    assert "RuntimeError: https://host/a.sqlite" in ran.stderr
    assert SECRET not in ran.stderr
