"""Blobs in a bucket of S3 or of a store that speaks its API."""
