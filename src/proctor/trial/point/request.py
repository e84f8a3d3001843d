"""How a process of its own is told which point to run."""

REQUEST = "PROCTOR_POINT_REQUEST"
"""The variable that holds the request as JSON."""
