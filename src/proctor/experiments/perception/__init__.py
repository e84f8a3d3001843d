"""Experiments on what agents see: throughput, stages, and the price of storage and interpolation."""
