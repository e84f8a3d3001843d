"""Signing in through an OpenID Connect issuer: authorization code with PKCE."""
