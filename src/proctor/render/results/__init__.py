"""Every kind of result as a document, for all renderers."""
