"""Charts of measurements: inline SVG by our own code, no script, light and dark through CSS variables."""
