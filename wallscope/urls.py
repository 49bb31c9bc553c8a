"""URLs that may hold credentials: what can be shown of them, in our own messages and in those of libraries.

A password may contain any letter, escaped or not, and libraries escape anew. Anything that may be a
credential is therefore left out. Of a library error with credentials, only the kind of error is shown, never
its message.
"""

import os
import re
from itertools import pairwise

_SCHEME = r"[a-zA-Z][a-zA-Z0-9+.-]{1,30}"
_URL = re.compile(r"[a-zA-Z][a-zA-Z0-9+.-]*(?:://|::)")
_LOCAL = re.compile(r"(?:file|local)://", re.IGNORECASE)
_HEAD = re.compile(rf"{_SCHEME}:/+")  # Path makes one slash of two
_IN_TEXT = re.compile(rf"{_SCHEME}:/[^\s'\"<>`]*[^\s'\"<>`.,:;)\]}}]")
_USERINFO = re.compile(r"(?<![^\s'\"<>`/@:=])[^\s'\"<>`/@:=]{1,200}:[^\s'\"<>`/@]{1,500}@(?=[\w\[])")
_NAMED_SECRET = re.compile(
    r"""((?:sig|signature|token|secret|passw(?:or)?d|pwd|credentials?|access_?key(?:_?id)?|api_?key|accountkey)
    ['"]?\s{0,3}[=:]\s{0,3}['"]?)[^\s'"&,;]+""",
    re.IGNORECASE | re.VERBOSE,
)
_AUTHORIZATION = re.compile(r"\b(basic|bearer)\s+[\w.~+/=-]{4,}", re.IGNORECASE)
_BUCKETS = frozenset({"abfs", "abfss", "adl", "az", "gcs", "gs", "hdfs", "memory", "oci", "oss", "s3", "s3a"})
"""Schemes whose paths may well hold `@` behind a name without one."""
_PLAIN_HOST = re.compile(r"(?:[\w-]+(?:[.][\w-]+)+|localhost|\[[0-9a-fA-F:.]+\])")
_HOST_AND_PORT = re.compile(r"(?:[\w.-]*|\[[0-9a-fA-F:.]+\])(?::[0-9]*)?")
_PATTERN = re.compile(r"[?*\w\[\]-]{0,12}(?:[./][^=&%?#]*)?")
_HIDDEN = "…"
_MOST = 200


def is_url(named: str) -> bool:
    """Return whether a user names a URL, and no path.

    >>> is_url("s3://runs/a.sqlite"), is_url("simplecache::s3://runs"), is_url("runs/a.sqlite")
    (True, True, False)
    """
    return _URL.match(named) is not None


def strip_local(named: str) -> str:
    """Return the path behind `file://` or `local://`; anything else as it is."""
    return _LOCAL.sub("", named, count=1) if _LOCAL.match(named) else named


def redact_url(url: str) -> str:
    """Return a URL, or a chain of them, without user, password, query and fragment.

    >>> redact_url("simplecache::https://me:pa/s@s@host/run.sqlite?sig=secret")
    'simplecache::https://host/run.sqlite'
    >>> redact_url("s3://runs/rank?.sqlite"), redact_url("az://store?sv=1&sig=secret")
    ('s3://runs/rank?.sqlite', 'az://store')
    """
    starts = [found.start() for found in _HEAD.finditer(url)]
    if not starts:
        return url
    parts = [url[start:end] for start, end in pairwise([*starts, len(url)])]
    shown = [url[: starts[0]]]
    for part, following in zip(parts, [*parts[1:], ""], strict=True):
        link = re.search(r"(?:::[a-zA-Z0-9+.:-]*)?$", part) if following else None
        end = link.start() if link else len(part)
        shown += [_redact_one(part[:end]), part[end:]]
    return "".join(shown)


def has_secret(url: str) -> bool:
    """Return whether a URL holds what `redact_url` leaves out."""
    return redact_url(url) != url


def redact(text: str) -> str:
    """Return a text without what its URLs hold back, and without what is named as a key or password.

    >>> redact("GET https://me:pw@host/a?sig=x failed"), redact("token='abc' refused")
    ('GET https://host/a failed', "token='…' refused")
    """
    if not any(mark in text for mark in ":=") and " " not in text:
        return text
    shown = _IN_TEXT.sub(lambda found: redact_url(found[0]), text)
    shown = _USERINFO.sub("", shown)
    shown = _AUTHORIZATION.sub(rf"\1 {_HIDDEN}", shown)
    return _NAMED_SECRET.sub(rf"\1{_HIDDEN}", shown)


def describe_failure(error: BaseException, url: str) -> str:
    """Return why a library failed at a URL: in its words, but by its kind alone where the URL has secrets."""
    if has_secret(url):
        return _describe_kind(error)
    text = " ".join(redact(str(error).replace(url, "it")).split())[:_MOST]
    bare = url.partition("://")[2].strip("/")
    if text.strip("/") not in {"", "it", bare}:
        return text
    return describe_failure(error.__cause__, url) if error.__cause__ is not None else _describe_kind(error)


def _describe_kind(error: BaseException) -> str:
    if isinstance(error, FileNotFoundError):
        return "it is not there"
    if isinstance(error, ImportError):
        return redact(str(error))[:_MOST]  # names packages alone
    kind, status = type(error).__name__, getattr(error, "status", None)
    if isinstance(status, int):
        return f"{kind}, status {status}"
    number = error.errno if isinstance(error, OSError) else None
    return f"{kind}: {os.strerror(number)}" if isinstance(number, int) and number > 0 else kind


def _redact_one(url: str) -> str:
    """Return one URL without its secrets; of one that may hide more the scheme alone."""
    head = _HEAD.match(url)
    if head is None:
        return url
    scheme, body = head[0].partition(":")[0].lower(), url[head.end() :]
    end = _query_start(body, is_web=scheme in {"http", "https"})
    first = re.split(r"[/?#]", body, maxsplit=1)[0]
    last_at = body.rfind("@")
    is_bucket = scheme in _BUCKETS and ":" not in first
    if last_at > end and (is_bucket or _PLAIN_HOST.fullmatch(first)):
        last_at = -1  # part of the query
    if last_at > len(first) and (is_bucket or _PLAIN_HOST.fullmatch(first)):
        last_at = -1  # part of the path
    if last_at > end:
        return f"{head[0]}{_HIDDEN}"
    host = re.split(r"[/?#]", body[last_at + 1 :], maxsplit=1)[0]
    if not is_bucket and ":" in host and not _HOST_AND_PORT.fullmatch(host):
        return f"{head[0]}{_HIDDEN}"
    return f"{head[0]}{body[last_at + 1 : end]}"


def _query_start(body: str, *, is_web: bool) -> int:
    """Return where query and fragment begin; elsewhere than on the web, `?` may stand for any letter."""
    last_pair = body.rfind("=")
    for place, letter in enumerate(body):
        if letter == "?" and (is_web or _PATTERN.fullmatch(body, place) is None):
            return place
        if letter in "#;" and (is_web or place < last_pair):
            return place
    return len(body)
