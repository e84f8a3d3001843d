"""A provider of models that runs anywhere: a little server with scripted replies and faults on purpose."""
