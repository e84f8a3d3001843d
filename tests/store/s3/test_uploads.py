from __future__ import annotations

import threading
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, HTTPServer

import boto3
import pytest

from proctor.errors import StoreError, UsageError
from proctor.store.s3.address import Place, parse
from proctor.store.s3.uploads import abort, unfinished


def begin(url: str, *keys: str) -> None:
    place = parse(url)
    client = boto3.client("s3", endpoint_url=place.endpoint, region_name="us-east-1")
    for key in keys:
        client.create_multipart_upload(Bucket=place.bucket, Key=key)
    client.close()


def test_unfinished_uploads_below_the_prefix_are_listed_and_ended(url: str):
    place = parse(url)
    begin(url, f"{place.prefix}/ab/x y&z", f"{place.prefix}/cd/y", "elsewhere/z")
    found = list(unfinished(place))
    assert {each.key for each in found} == {f"{place.prefix}/ab/x y&z", f"{place.prefix}/cd/y"}
    assert all(each.age_s > 0 for each in found)
    for each in found:
        abort(place, each)
    assert list(unfinished(place)) == []


def test_without_a_key_it_is_said_what_to_do(url: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    with pytest.raises(UsageError, match="let a rule of the bucket end them"):
        list(unfinished(parse(url)))


def test_a_store_that_refuses_or_is_away_is_said(url: str):
    place = parse(url)
    with pytest.raises(StoreError, match="404 NoSuchBucket"):
        list(unfinished(replace(place, bucket="no-such-bucket")))
    with pytest.raises(StoreError, match="does not answer"):
        list(unfinished(replace(place, endpoint="http://127.0.0.1:9")))


def test_the_signature_is_the_one_that_amazon_computes(monkeypatch: pytest.MonkeyPatch):
    """Against botocore, for the same request at the same moment."""
    from datetime import UTC, datetime

    from botocore.auth import S3SigV4Auth
    from botocore.awsrequest import AWSRequest
    from botocore.credentials import Credentials

    from proctor.store.s3 import uploads

    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret/with+chars")
    monkeypatch.setenv("AWS_SESSION_TOKEN", "token")
    moment = datetime.now(UTC)
    monkeypatch.setattr(uploads, "_utc", lambda: moment)
    place = parse("s3://bucket/p?endpoint=https://s3.example&region=eu-west-1")
    ours = uploads._signed(place, "GET", "s3.example", "/bucket", "prefix=p%2F&uploads=")
    request = AWSRequest("GET", "https://s3.example/bucket?prefix=p%2F&uploads=", headers={})
    request.context["timestamp"] = ours["x-amz-date"]
    signer = S3SigV4Auth(Credentials("AKIDEXAMPLE", "secret/with+chars", "token"), "s3", "eu-west-1")
    for name in ("x-amz-content-sha256", "x-amz-date", "x-amz-security-token"):
        request.headers[name] = ours[name]
    request.headers["host"] = "s3.example"
    scope = signer.string_to_sign(request, signer.canonical_request(request))
    assert signer.signature(scope, request) == ours["Authorization"].rpartition("Signature=")[2]


@pytest.mark.parametrize("code", ["NotImplemented", "NoSuchUpload"])
def test_a_store_that_keeps_no_list_of_uploads_has_none(url: str, code: str):
    del url  # its credentials are set

    class Refuses(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(501)
            self.end_headers()
            self.wfile.write(f"<Error><Code>{code}</Code></Error>".encode())

        def log_message(self, *_: object) -> None:
            """Tests say nothing."""

    with HTTPServer(("127.0.0.1", 0), Refuses) as server:
        threading.Thread(target=server.handle_request).start()
        place = Place("bucket", endpoint=f"http://127.0.0.1:{server.server_port}", region="us-east-1")
        assert list(unfinished(place)) == []
