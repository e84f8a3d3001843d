"""Indexes of points in the plane, one file each, all with the same small interface."""
