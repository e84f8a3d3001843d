from __future__ import annotations

import pytest

from proctor.errors import UsageError
from proctor.store.s3.address import Place, parse


def test_an_address_has_a_bucket_a_prefix_and_options():
    found = parse(
        "s3://b-1/team/a%20b?endpoint=https%3A%2F%2Fminio:9000&region=eu-west-1&sse=AES256&wait_s=5"
    )
    assert found == Place("b-1", "team/a b", "https://minio:9000", "eu-west-1", "AES256", "", 5.0)
    assert found.where == "s3://b-1/team/a%20b"
    assert parse("s3://bucket") == Place("bucket")


@pytest.mark.parametrize(
    ("address", "said"),
    [
        ("s3://key:hunter2@bucket/x", "a user or a password"),
        ("s3://bucket/x?endpoint=https://key:hunter2@host", "a user or a password"),
        ("s3://bucket/x?secret_access_key=hunter2", "never from the address"),
        ("s3://bucket/x?token=hunter2", "never from the address"),
        ("s3://bucket/x?reigon=hunter2", "'reigon' is not an option"),
        ("s3:///x", "not the name of a bucket"),
        ("s3://bucket/a//b", "not a prefix"),
        ("s3://bucket/../b", "not a prefix"),
        ("s3://bucket/x?sse=rot13", "AES256 or aws:kms"),
        ("s3://bucket/x?kms_key=k", "kms_key needs sse"),
        ("s3://bucket/x?endpoint=minio:9000", "not the address of a server"),
        ("s3://bucket/x?wait_s=soon", "not a number of seconds"),
        ("s3://bucket/x?region", "not one of S3"),
    ],
)
def test_a_wrong_address_is_refused_and_its_secret_not_repeated(address: str, said: str):
    with pytest.raises(UsageError, match=said) as caught:
        parse(address)
    assert "hunter2" not in str(caught.value)
