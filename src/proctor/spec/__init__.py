"""From a file a person wrote to a `Spec`."""
